"""What changed in a run: the changed lines first, adding up, and no claim of a program against itself."""

from pathlib import Path

import pytest

from model_profiling.report import markdown
from model_profiling.report.blocks import Name, Number, Report, Section, Table
from model_profiling.report.content import whole as content
from model_profiling.store.run_directory import ExperimentRecord, Manifest
from sme2_kit import Run
from tests.conftest import ROOT
from tests.helpers.run_forge import forge_run
from tests.helpers.screens import whole_text

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
_REPEATS = 20


def forged(target: Path, slower: str = "", by: float = 1.0, executions: int = 60) -> Run:
    """A run of one program twice, the second time with one kind of operator slower."""
    pair = ("linux_fp16arith_on", "linux_fp16arith_on_2")

    def times(record: ExperimentRecord, name: str, _: int) -> float:
        took = 20_000.0 + 1_000 * (len(name) % 17)
        return took * by if slower and name.startswith(slower) and record.name == pair[1] else took

    def compared(manifest: Manifest) -> None:
        manifest.experiments = {name: manifest.experiments[name] for name in pair}
        manifest.compare_pairs = [pair]

    made = forge_run(KNOWN_GOOD, target, executions=executions, launches=10, copies=2, times=times, change=compared)
    return Run.open(made)


def changes_of(report: Report) -> Section:
    return next(section for section in report.sections if section.key == "changes")


def test_the_changed_operators_come_first_and_rows_add_up(tmp_path: Path) -> None:
    run = forged(tmp_path / "run", "Fully Connected", 3.0)
    (found,) = run.changes
    assert {part.operators[0].split(" (")[0] for part in found.told} == {"Fully Connected"}
    assert len(found.told) == 4 and run.full_summary.changes == [found]
    assert [*run.changes.told] == found.told and [*run.changes.parts] == found.parts
    assert sum(module.difference_ms for module in run.changes.modules) == pytest.approx(found.difference_ms)
    section = changes_of(content.report(run))
    table = next(block for block in section.blocks if isinstance(block, Table))
    *rows, whole = table.rows
    names = [row[0].text for row in rows if isinstance(row[0], Name)]
    assert len(names) == 4 and all(name.startswith("Fully Connected") for name in names)
    assert table.columns[-1].startswith("difference")  # the same operators: only their time changed

    def value(cell: object) -> float:
        assert isinstance(cell, Number) and cell.value is not None
        return cell.value

    for column in (1, 2, 3):
        assert sum(value(row[column]) for row in rows) == pytest.approx(value(whole[column]), abs=1e-9)
    # Nobody knows its lines: the terminal lists its operators already.
    assert "largest changes" not in whole_text(run)


def test_a_program_against_itself_has_one_sentence(tmp_path: Path) -> None:
    claimed = 0
    for repeat in range(_REPEATS):
        # Another number of executions is other noise.
        run = forged(tmp_path / str(repeat), executions=60 + repeat)
        claimed += bool(run.changes[0].told)
        if repeat == 0:
            section = changes_of(content.report(run))
            assert not any(isinstance(block, Table) for block in section.blocks)
            assert "no difference seen" in markdown.render(content.report(run), {})
    assert claimed <= _REPEATS * 0.05


def test_too_few_launches_claim_nothing() -> None:
    run = Run.open(KNOWN_GOOD)
    assert not run.changes[0].told
    shown = markdown.render(content.report(run), {})
    assert "Too few launches to tell a change from noise" in shown
