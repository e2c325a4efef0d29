"""The first screen says how fast, what to do and where; what repeats stands together, and what is nothing is folded."""

import math
import re
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from model_profiling.analysis.compare.comparison import operator_groups
from model_profiling.analysis.run.experiment_labels import labels_of, replace_names
from model_profiling.base.units import shown_ms
from model_profiling.report import markdown
from model_profiling.report.blocks import AdviceBlock, Branch, Fact, Name, Number, Report, Section, Table, Tree
from model_profiling.report.charts import WIDE, of_run
from model_profiling.report.content import whole as content
from model_profiling.report.content.operators import LEAST_SHARE, Foldable, folded
from model_profiling.report.drawing.theme import LIGHT
from model_profiling.report.files.artifact_files import pipeline_summary
from model_profiling.report.markdown import code, text
from model_profiling.store.run_directory import Manifest
from sme2_kit import Run
from tests.conftest import ROOT, kit
from tests.helpers.run_forge import forge_run
from tests.helpers.screens import first_screen, flat, whole_text

NETWORK = """
import torch
from torch import nn


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Conv2d(4, 4, 1)
        self.register_buffer("order", torch.arange(256) % 64)

    def forward(self, x):
        y = self.scale(x).flatten(2)
        return y[:, :, self.order].sigmoid()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.heads = nn.ModuleList(Head() for _ in range(4))

    def forward(self, x):
        x = self.stem(x)
        first, *others = [head(x) for head in self.heads]
        # One flip costs more than one lookup and less than all of them.
        return torch.cat([first.flip(2), *others], 1)
"""
LOOKUP = 1 + NETWORK.splitlines().index("        return y[:, :, self.order].sigmoid()")
KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A network of one's own whose four heads look values up, from a file: a real run with times as if undisturbed."""
    home = tmp_path_factory.mktemp("own")
    (home / "nets.py").write_text(NETWORK)
    done = kit("export", "nets.py:Net", "--input-shape", "1,3,8,8", "--dtype", "fp16", cwd=home)
    assert done.returncode == 0, done.stderr
    model = next(home.glob("out_*/artifacts/*.pte"))
    done = kit("run", model, "--output-root", home / "run", "--runs", 20, "--quiet", cwd=home)
    assert done.returncode == 0, done.stderr
    # On a busy machine operators of microseconds cannot be told from noise, and nothing would be said of them.
    ns = {"flip.out": 50_000, "index.Tensor_out": 20_000, "": 5_000}
    return Run.open(forge_run(home / "run", home / "calm", launches=6, times=lambda _, name, __: ns.get(name, 2_000)))


@pytest.fixture(scope="module")
def good() -> Run:
    return Run.open(KNOWN_GOOD)


def tables(report: Report, key: str) -> list[Table]:
    return [b for s in report.sections for b in s.blocks if isinstance(b, Table) and b.key == key]


def shown(cell: object) -> str:
    return cell.text if isinstance(cell, Name) else cell.shown if isinstance(cell, Number) else str(cell)


# What to do next comes first.


def test_this_cpus_own_switch_has_both_sides_and_the_factor_with_its_interval(good: Run) -> None:
    comparison = good.metrics.comparisons[0]
    assert comparison.high is not None
    (cpu,) = [fact for fact in content.report(good).facts if fact.label == "This CPU"]
    on, off = shown_ms(comparison.after_ms), shown_ms(comparison.before_ms)
    factor = f"{comparison.ratio:.2f}x {comparison.verdict} ({comparison.low:.2f} to {comparison.high:.2f})"
    assert cpu.text == f"fp16 arithmetic on: {on}, off: {off}, {factor}"


def test_findings_with_line_and_share_come_before_every_section(run: Run) -> None:
    report = content.report(run)
    lookup = next(finding for finding in report.findings if "index" in finding.title)
    assert re.search(rf"^\S*nets\.py:{LOOKUP}: index.* outside the delegate.*: \d+ % of the time$", lookup.title)
    assert not lookup.worth and "nets.py" not in lookup.place
    assert len(report.findings) <= 3
    for rendered in (markdown.render(report, {}), whole_text(run), flat(first_screen(run))):
        plain = flat(rendered.replace("`", "").replace("\\", ""))
        place = plain.index(f"nets.py:{LOOKUP}: index")
        assert place < plain.lower().rindex("where the time goes")


def test_the_first_screen_is_25_lines_of_100_columns_and_says_no_number_twice(run: Run, good: Run) -> None:
    for screen in (first_screen(run), first_screen(good)):
        lines = screen.splitlines()
        assert len(lines) <= 23 and max(map(len, lines)) <= 100, screen
    times = re.findall(r"\d+\.\d+ ms", first_screen(good))
    assert len(times) == len(set(times)) == 2


def test_nothing_of_the_first_screen_is_said_again_by_a_section(good: Run) -> None:
    report = content.report(good)
    sections = markdown.render(Report(report.title, "", [], report.sections), {})
    for sentence in report.headline:
        assert text(sentence) not in sections
    for finding in report.findings:
        assert text(finding.title) not in sections


def test_where_nothing_was_compared_the_figures_are_what_the_run_tells(run: Run, tmp_path: Path) -> None:
    def one(manifest: Manifest) -> None:
        manifest.experiments.pop(next(iter(manifest.experiments)))
        manifest.compare_pairs.clear()

    alone = Run.open(forge_run(run.path, tmp_path / "one", change=one))
    (cpu,) = [fact for fact in content.report(alone).facts if fact.label == "This CPU"]
    assert re.match(r"\d+\.\d+ (ms|us) median of", cpu.text) and "MAD" in cpu.note

    def emulate(manifest: Manifest) -> None:
        manifest.timing = "emulated"

    emulated = content.report(Run.open(forge_run(run.path, tmp_path / "two", change=emulate)))
    assert "times are left out" in emulated.subtitle and not emulated.findings
    assert " ms" not in first_screen(Run.open(tmp_path / "two"))


# Cost by module and line.


def test_a_models_modules_and_lines_are_in_page_markdown_terminal_and_api(run: Run) -> None:
    rows = [row for row in run.modules if row.experiment == run.of_interest[0]]
    lines = {(row.module, row.line) for row in rows if row.kind == "line"}
    assert {(f"heads.{n}", LOOKUP) for n in range(4)} <= lines
    whole = rows[0]
    assert whole.kind == "model" and whole.ms is not None
    assert whole.ms == pytest.approx(sum(row.ms or 0 for row in rows if row.depth == 1))
    sigmoid = [row for row in rows if row.kind == "operator" and row.name.startswith("Sigmoid")]
    assert sigmoid and all(row.operators == 1 for row in sigmoid), "delegated elementwise operators have lines, too"
    report = content.report(run)
    assert report.section("modules") is not None
    rendered = markdown.render(report, {})
    assert re.search(rf"\| \u2003+`[^`]*nets\.py:{LOOKUP}` ", rendered)
    assert "heads" in whole_text(run).split("Cost by module and line")[1]


def test_without_sources_the_tree_says_why(good: Run) -> None:
    (tree,) = [b for b in content.report(good).section("modules").blocks if isinstance(b, Tree)]  # type: ignore[union-attr]
    assert "no ETRecord" in str(tree.root.children[0].detail)
    assert tree.root.cells[0].value == pytest.approx(sum(child.cells[0].value or 0 for child in tree.root.children))


# Repeated operators are grouped, rows that cost nothing are folded.


def test_operators_of_one_name_are_one_row_that_unfolds(run: Run) -> None:
    (table,) = tables(content.report(run), "operators")
    names = [shown(row[0]) for row in table.rows]
    place = names.index("4 x index.Tensor_out (portable)")
    assert [shown(row[0]).split(" (")[0] for row in table.under[place]] == ["index.Tensor_out"] * 4
    sums = [sum(row[1].value or 0 for row in table.under[place] if isinstance(row[1], Number))]
    cell = table.rows[place][1]
    assert isinstance(cell, Number) and [cell.value] == pytest.approx(sums)
    assert "4 x index.Tensor_out (portable)" in whole_text(run)


def test_a_group_has_an_interval_of_its_own_and_holds_its_operators_exactly_once(good: Run) -> None:
    comparison = good.summary.comparisons[0]
    groups = operator_groups(comparison, good.profiles[comparison.before], good.profiles[comparison.after])
    members = [member for group in groups for member in group.members]
    assert sorted(map(id, members)) == sorted(map(id, comparison.operators))
    for group in groups:
        assert group.change.before_ms == pytest.approx(sum(member.change.before_ms for member in group.members))
        assert group.change.after_share == pytest.approx(sum(member.change.after_share for member in group.members))
        low, high, ratio = group.change.low, group.change.high, group.change.ratio
        assert low is None or high is None or ratio is None or low <= ratio <= high


def test_a_group_is_compared_as_a_whole(run: Run) -> None:
    """With launches enough, which the run above has not."""
    (comparison,) = run.summary.comparisons
    (groups,) = run.operator_groups
    assert comparison.unreliable or any(len(g.members) > 1 and g.change.low is not None for g in groups)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3)), max_size=30))
def test_folding_loses_no_row_and_hides_none_that_costs_something(given_rows: list[tuple[float, int]]) -> None:
    rows = [
        Foldable((f"row {n}", Number("", share)), share, [(f"{n}.{m}", Number("", 0.0)) for m in range(count)])
        for n, (share, count) in enumerate(given_rows)
    ]
    table = folded("t", ("a", "b"), rows, {1: lambda total: Number("", total)})
    every = [single for n, row in enumerate(table.rows) for single in table.under.get(n, [row])]
    assert sorted(map(str, every)) == sorted(str(single) for row in rows for single in row.singles)
    total = sum(row[1].value or 0 for row in table.rows if isinstance(row[1], Number))
    assert total == pytest.approx(sum(row.share for row in rows))
    tops = [shown(row[0]) for row in table.rows]
    assert all(shown(row.cells[0]) in tops for row in rows if row.share >= LEAST_SHARE)


def test_the_portable_table_is_sorted_by_the_time_of_all_instances(run: Run) -> None:
    for table in tables(content.report(run), "portable"):
        times = [row[2].value for row in table.rows if isinstance(row[2], Number)]
        assert times == sorted(times, key=lambda ms: -(ms or 0)) and len(times) > 1


# Numbers and names as people read them.


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 1e6))
def test_no_time_but_zero_reads_as_zero(ms: float) -> None:
    shown_time = shown_ms(ms)
    digits = shown_time.split(" ")[0].lstrip("<")
    assert (float(digits) == 0) == (ms == 0), shown_time
    scale = 1000 if shown_time.endswith("us") else 1
    assert shown_time.startswith("<") or math.isclose(float(digits) / scale, ms, rel_tol=0.06, abs_tol=0.000051)


def test_categories_without_time_are_hidden_everywhere(run: Run) -> None:
    comparison = run.summary.comparisons[0]
    nothing = [c.name for c in comparison.categories if not c.before_ms and not c.after_ms]
    assert nothing, "a network without pooling or the like has such a category"
    (table,) = tables(content.report(run), "categories")
    rows = {shown(row[0]) for row in table.rows}
    lines = whole_text(run).splitlines()
    for name in nothing:
        assert name not in rows and not any(line.startswith(f"  {name} ") for line in lines)
    assert not any(f'"{name}"' in str(of_run(run, WIDE, LIGHT)["shift"]).replace("'", '"') for name in nothing)


def test_experiments_are_called_by_what_they_switch_wherever_people_read(good: Run) -> None:
    names = list(good.manifest.experiments)
    report = content.report(good)
    rendered = markdown.render(report, {})
    read = rendered.split("## Environment and method")[0]
    for words in (read, first_screen(good), pipeline_summary(good)):
        assert not any(name in words for name in names), words
    assert "FEAT_FP16" in report.legend and "FEAT_FP16" in whole_text(good)
    assert all(f"`{name}`" in rendered for name in names), "files and commands go by the name, so it is in one table"


def named(manifest: Manifest, experiments: dict[str, list[str]]) -> Manifest:
    """The known-good run's manifest with experiments of these names, each with these features switched off."""
    record = next(iter(manifest.experiments.values()))
    made = {n: msgspec.structs.replace(record, name=n, disable_features=off) for n, off in experiments.items()}
    return msgspec.structs.replace(manifest, experiments=made)


@pytest.mark.parametrize(
    ("experiments", "labels"),
    [
        ({"linux_dot_on": [], "linux_dot_off": ["dot"]}, ["dot product on", "dot product off"]),
        ({"mac_sme2_on": [], "mac_sme2_off": ["sme2"]}, ["SME2 on", "SME2 off"]),
        ({"linux_dotprod_on": [], "linux_dotprod_off": ["dot"]}, ["dot product on", "dot product off"]),
        ({"linux_amx_tile_on": [], "linux_amx_tile_off": ["amx_tile"]}, ["AMX on", "AMX off"]),
        # A user's own names stay, and so do names that the record does not bear out.
        ({"quick": [], "slow": ["sme2"]}, ["quick", "slow"]),
        ({"linux_sme2_on": [], "linux_sme2_off": []}, ["linux_sme2_on", "linux_sme2_off"]),
        ({"linux_sme2_on": [], "mac_sme2_on": []}, ["linux_sme2_on", "mac_sme2_on"]),
        ({"linux_turbo_on": [], "linux_baseline": []}, ["linux_turbo_on", "baseline"]),
    ],
)
def test_a_label_says_only_what_the_record_shows(good: Run, experiments: dict[str, Any], labels: list[str]) -> None:
    found = labels_of(named(good.manifest, experiments))
    assert list(found.values()) == labels
    first = next(iter(experiments))
    assert replace_names(f"{first}: see {first}/x.etdump, not my_{first}", found) == (
        f"{labels[0]}: see {first}/x.etdump, not my_{first}"
    )


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_text_in_markdown_is_never_markup(value: str) -> None:
    for made in (text(value), code(value)):
        outside = re.sub(r"`[^`]*`", "", made.replace("\\`", ""))
        assert not re.search(r"(?<!\\)[*_\[\]<>|]", outside.replace("\\\\", "")), made
        assert "\n" not in made and "|" not in re.sub(r"\\\|", "", made)


def test_identifiers_are_code_and_have_no_backslashes(good: Run) -> None:
    assert text("see toy_cnn.pte (linux_x_on), gelu.out at nets.py:3.") == (
        "see `toy_cnn.pte` (`linux_x_on`), `gelu.out` at `nets.py:3`."
    )
    rendered = markdown.render(content.report(good), {})
    assert "\\" not in rendered and "`toy_cnn_xnnpack_fp16`" in rendered


def test_a_picture_in_a_report_has_no_title_of_its_own(good: Run) -> None:
    assert all("title" in spec for spec in of_run(good, WIDE, LIGHT).values())
    assert all("title" not in spec for spec in of_run(good, WIDE, LIGHT, titled=False).values())


def test_a_hostile_action_or_branch_stays_text() -> None:
    hostile = "<img src=x>|`a` *b*"
    branch = Branch(Name(hostile), hostile, (Number("1", 1.0),), 1.0, "CONV")
    report = Report(
        hostile,
        hostile,
        [hostile],
        [],
        [hostile],
        [[Fact(hostile, hostile, hostile, hostile, [(hostile,)])]],
        legend=hostile,
        findings=[AdviceBlock(hostile, "1x", [], "", hostile)],
    )
    rendered = markdown.render(report, {})
    rendered += markdown.render(Report("", "", [], [Section("", "", [Tree("", ("n",), branch)])]), {})
    assert "<img" not in rendered.replace("\\<img", "")
