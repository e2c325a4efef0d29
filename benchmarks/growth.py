"""How the kit's work grows: the processor time of one more of everything, as an exponent (1 is linear).

Sizes double three times. Time is that of the processor and the least of several tries, side by side in one process, so
that a busy machine changes the numbers little and the exponents less.
"""

import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

import sme2_kit
from model_profiling.analysis.compare.program_changes import program_changes
from model_profiling.analysis.run.dumps import analyse_dumps
from model_profiling.analysis.run.validation import check_staleness, problems
from model_profiling.analysis.timing.categories import load_table
from model_profiling.analysis.timing.latency import compare, summarise
from model_profiling.fleet.history.run_history import RunHistory
from model_profiling.formats import etdump, etrecord
from model_profiling.report import markdown
from model_profiling.report.content.whole import report as report_content
from model_profiling.report.files.page_files import write_combined
from model_profiling.report.files.report_files import write_report
from model_profiling.store.run_directory import RunDirectory, Turn
from model_profiling.store.runs import list_runs, resolve
from sme2_kit import Run
from tests.helpers.bulk_dump import delegate, write_dump
from tests.helpers.history_forge import Forge
from tests.helpers.program_forge import CONV, FC, Op, network, side
from tests.helpers.run_forge import forge_run
from tests.helpers.sketching import Sketcher
from tests.readers.test_etdump_fuzz import vtable_for_every_event
from tests.readers.test_etrecord import TRACE, edge, node
from tests.readers.test_etrecord import forge as forge_etrecord

KNOWN_GOOD = Path(__file__).parents[1] / "tests" / "data" / "known_good_run"
Work = Callable[[], object]


class GrowthStudy(NamedTuple):
    """What grows; `prepare` makes what one size needs and returns the work that is measured."""

    name: str
    smallest: int
    prepare: Callable[[int, Path], Work]


class Growth(NamedTuple):
    sizes: list[int]
    seconds: list[float]

    @property
    def exponent(self) -> float:
        """The slope of log time over log size, by least squares."""
        x, y = [math.log(size) for size in self.sizes], [math.log(max(s, 1e-6)) for s in self.seconds]
        middle_x, middle_y = sum(x) / len(x), sum(y) / len(y)
        above = sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True))
        return above / sum((a - middle_x) ** 2 for a in x)


def analyse_work(dump: Path) -> Work:
    return lambda: analyse_dumps([dump], load_table())


def compare_work(dump: Path) -> Work:
    """Measure `compare` of a dump with itself, as the command does it."""

    return lambda: sme2_kit.compare(dump, dump)


def _executions(size: int, folder: Path) -> Work:
    write_dump(folder / "e.etdump", [[delegate(50)]], size)
    return compare_work(folder / "e.etdump")


def _operators(size: int, folder: Path) -> Work:
    write_dump(folder / "o.etdump", [[delegate(size)]], 5)
    return compare_work(folder / "o.etdump")


def _names(size: int, folder: Path) -> Work:
    write_dump(folder / "n.etdump", [[delegate(size, kinds=size)]], 5)
    return compare_work(folder / "n.etdump")


def _methods(size: int, folder: Path) -> Work:
    write_dump(folder / "m.etdump", [[delegate(10, instruction=method)] for method in range(size)], 2 * size)
    return analyse_work(folder / "m.etdump")


def _delegates(size: int, folder: Path) -> Work:
    write_dump(folder / "d.etdump", [[delegate(1, instruction=call) for call in range(size)]], 5)
    return compare_work(folder / "d.etdump")


def _lines(size: int, folder: Path) -> Work:
    """Measure what changed between two programs with source lines: of every twenty lines one is gone, one is edited."""
    program = network(size // 3)
    edited = [op._replace(code=f"{op.code}  # edited") if n % 20 == 3 else op for n, op in enumerate(program) if n % 20]
    generator = np.random.default_rng(0)
    before, after = side("A", program, generator), side("B", edited, generator)
    return lambda: program_changes(before, after, paired=True)


def _strangers(size: int, folder: Path) -> Work:
    """Measure what changed between two programs without source lines that have no operator in common."""
    generator = np.random.default_rng(0)
    before, after = (side(name, [Op(name, rows=n + 1) for n in range(size)], generator) for name in (CONV, FC))
    return lambda: program_changes(before, after, paired=True)


def _experiments(size: int, folder: Path) -> Work:
    """Measure analysis, tables and the text of a report; pictures are drawn by a library, one after the other."""
    directory = RunDirectory(forge_run(KNOWN_GOOD, folder / "run", operators=20, executions=20, copies=size))

    def work() -> object:
        run = Run.open(directory.path)
        run.save()
        return markdown.render(report_content(run, ""), {})

    return work


def _reported(size: int, folder: Path) -> Work:
    """Measure a whole report with its page and all that is written beside it, but for the drawing, and then its
    validation."""
    root = forge_run(KNOWN_GOOD, folder / "run", copies=size)

    def work() -> object:
        write_report(Run.open(root), Sketcher(), root / "report.md", page=True)
        return problems(RunDirectory(root)), check_staleness(RunDirectory(root))

    return work


def _combined(size: int, folder: Path) -> Work:
    runs = [Run.open(KNOWN_GOOD) for _ in range(size)]
    for run in runs:
        run.analysed = runs[0].analysed
    return lambda: write_combined(runs, Sketcher(), folder / "combined.md")


def _listed(size: int, folder: Path) -> Work:
    root = Forge(KNOWN_GOOD).series(folder / "run", [1.0] * size)
    return lambda: (list_runs(root), resolve(f"{root}@r0"))


def _launches(size: int, folder: Path) -> Work:
    sides = [
        [Turn(number, 0.0, [1_000_000 + (number * step) % 977] * 5, launch=number // 2) for number in range(2 * size)]
        for step in (7, 11)
    ]
    return lambda: (summarise(sides[0]), compare(("A", sides[0]), ("B", sides[1]), paired=True))


def _nodes(size: int, folder: Path) -> Work:
    """Measure reading an ETRecord in which every node has a line of its own, and one delegate has all of them."""
    nodes = [node(handle, trace=TRACE.replace("29", str(handle))) for handle in range(1, size)]
    handles = {"forward": {"0": list(range(1, size)), **{str(index): index for index in range(1, size)}}}
    path = forge_etrecord(folder / "r.etrecord", edge=edge(*nodes), debug_handle_map=handles)
    return lambda: etrecord.read(path)


def _history(size: int, folder: Path) -> Work:
    forge = Forge(KNOWN_GOOD)
    for model in range(20):
        forge.series(folder / "runs" / f"out_{model}", [1.0] * (size // 20), model=f"model{model}")

    def work() -> object:
        with tempfile.TemporaryDirectory() as cache, patch.dict(os.environ, {"SME2_KIT_CACHE": cache}):
            return RunHistory([folder / "runs"])

    return work


def _vtables(size: int, folder: Path) -> Work:
    data = vtable_for_every_event(size)
    return lambda: etdump.parse(data, folder)


STUDIES = (
    GrowthStudy("executions", 500, _executions),
    GrowthStudy("operators", 2000, _operators),
    GrowthStudy("distinct names", 1000, _names),
    GrowthStudy("methods", 400, _methods),
    GrowthStudy("delegate calls", 1000, _delegates),
    GrowthStudy("lines of two programs", 600, _lines),
    GrowthStudy("operators of two strangers", 200, _strangers),
    GrowthStudy("experiments", 2, _experiments),
    GrowthStudy("experiments of a report", 8, _reported),
    GrowthStudy("runs of a combined report", 50, _combined),
    GrowthStudy("runs of a directory", 50, _listed),
    GrowthStudy("launches", 200, _launches),
    GrowthStudy("nodes of an ETRecord", 4000, _nodes),
    GrowthStudy("vtables of an ETDump", 2000, _vtables),
    GrowthStudy("runs of a history", 200, _history),
)


def grow(study: GrowthStudy, factors: Sequence[int] = (1, 2, 4, 8), scale: int = 1, tries: int = 3) -> Growth:
    """Measure a study at growing sizes, all sizes once per try."""
    sizes = [study.smallest * scale * factor for factor in factors]
    with tempfile.TemporaryDirectory() as scratch:
        works = [study.prepare(size, Path(scratch) / str(size)) for size in sizes if _folder(Path(scratch) / str(size))]
        seconds = [math.inf] * len(sizes)
        for _ in range(tries):
            for number, work in enumerate(works):
                began = time.process_time()
                work()
                seconds[number] = min(seconds[number], time.process_time() - began)
    return Growth(sizes, seconds)


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def report(scale: int = 8) -> None:
    """Print a line per study: the times at four sizes and the exponent."""
    for study in STUDIES:
        found = grow(study, scale=1 if study.name.startswith("experiments") else scale)
        times = "  ".join(f"{size:>9,}: {s:7.3f} s" for size, s in zip(found.sizes, found.seconds, strict=True))
        print(f"{study.name:26}{times}   exponent {found.exponent:.2f}", flush=True)


if __name__ == "__main__":
    report()
