"""Compare two experiments, runs or dumps; can fail when the second is slower."""

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from model_profiling.api.definition import parameters_of, takes
from model_profiling.api.verbs import compare, compare_runtimes
from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.base.printing import warn
from model_profiling.cli import export as export_command
from model_profiling.cli.answer import answer, show_result
from model_profiling.cli.arguments import flags_said, keywords
from model_profiling.cli.progress import call
from model_profiling.cli.run_argument import resolve_argument, start_numpy
from model_profiling.report.blocks import Fact, Report, Section

if TYPE_CHECKING:
    from model_profiling.api import Comparisons
    from model_profiling.gates.verdict import Judgement, Limits

# Some file systems allow 143 bytes.
_MOST_NAME = 100
TAKES = takes(
    compare,
    "fail_if_slower fail_if_startup_slower fail_if_memory_above strict any_baseline junit summary verbose "
    "html=ComparePage json runtimes timeout_s=Timeout out=Out force inputs @profile",
)
COMMON = "before after fail_if_slower runtimes executorch runs budget_s threads platform html json"
EXAMPLE = "sme2-kit compare before.pte after.pte --fail-if-slower 5"
# What a file of another runtime ends with; the table of runtimes is not imported for every command line.
_OTHER_FILES = (".onnx", ".tflite")
# What only runtimes have, beside the options of an export, and what only two programs or runs have.
_OF_RUNTIMES = ("timeout_s", "out", "force", "inputs")
_OF_TWO = (
    *("fail_if_slower", "fail_if_startup_slower", "fail_if_memory_above", "junit", "summary", "categories"),
    *("executorch", "metric", "data", "max_drop", "lower_is_better"),
)


def run(args: argparse.Namespace) -> int:
    start_numpy()
    if args.runtimes or any(map(_is_of_runtime, (args.before, args.after))):
        _runtimes(args)
        return 0
    alone = [each for each in parameters_of(compare_runtimes) if each.name in _OF_RUNTIMES]
    if found := [*export_command.flags_given(args), *flags_said(args, alone)]:
        raise InputError(f"{found[0]} is for --runtimes", "Leave it out, or name runtimes.")
    return _two(args)


def _two(args: argparse.Namespace) -> int:
    from model_profiling.gates.baseline import refuse_wrong_baseline
    from model_profiling.gates.verdict import Limits, conclusion, judge
    from model_profiling.pipeline.schedule import STARTUP_LAUNCHES
    from model_profiling.runner.sdk import split_choices

    before = str(resolve_argument(args.before))
    after = None if args.after is None else str(resolve_argument(args.after))
    limits = Limits(args.fail_if_slower, args.fail_if_startup_slower, args.fail_if_memory_above, args.max_drop)
    if limits.given and after is not None:
        refuse_wrong_baseline(before, after, bool(args.any_baseline))
    versions, strict = split_choices(args.executorch, "--executorch"), bool(args.strict)
    if limits.startup_slower is not None and before.endswith(".pte") and args.startup_launches is None:
        args.startup_launches = STARTUP_LAUNCHES
    found = call(args, compare, quiet=not before.endswith(".pte"), before=before, after=after)
    judgements = judge(list(found), limits, strict)
    page = None
    if args.html is not None:
        sides = [args.before, args.after] if args.after is not None else [args.before, *versions]
        page = found.report(args.html or _default_page(*sides))
    following = _next(Path(after)) if not limits.given and after is not None else []
    said = (page, following, args.verbose)
    answer(args, list(found), lambda: show_result(_document(found, limits, args.verbose), *said), page)
    for judgement in judgements:
        warn(f"gate: {judgement.sentence}\n")
    if judgements:
        warn(f"gate: {conclusion(judgements, strict)}\n")
    _leave_for_ci(args, found, judgements)
    return 1 if any(judgement.failed for judgement in judgements) else 0


def _default_page(*sides: str) -> str:
    """Return a name in this directory that says what was compared."""
    names = [re.sub(r"[^\w.@-]+", "_", Path(side).name.removesuffix(".pte")).strip("._") for side in sides]
    return f"{'_'.join(['compare', *filter(None, names)])[:_MOST_NAME]}.html"


def _next(after: Path) -> list[object]:
    """Return what shows more of the second side: of a run its page, of a program what its operators take."""
    if after.is_dir():
        return ["report", after, "--html"]
    return ["profile", after] if after.suffix == ".pte" else []


def _document(found: "Comparisons", limits: "Limits", verbose: bool) -> Report:
    """Return what is shown; with --verbose, and of what has a limit, start-up and memory too."""
    from model_profiling.report import words
    from model_profiling.report.content import comparison, dumps

    made, facts = comparison.opening(list(found)), []
    for each in found:
        every = verbose or each.kernels is not None
        if each.startup is not None and (every or limits.startup_slower is not None):
            facts.append(Fact("Start-up", note=words.startup_sentence(each.startup)))
        if each.memory is not None and (every or limits.memory_above is not None):
            facts.append(Fact("Memory", note=words.memory_sentence(each.memory)))
    tables = [table for each in found for table in dumps.compared_tables(each.profile)] if verbose else []
    sections = [Section("operators", "Categories and operators", [*tables])] if tables else []
    made = made.with_facts(*facts[: 2 if not verbose else None]) if facts else made
    return msgspec.structs.replace(made, sections=sections)


def _leave_for_ci(args: argparse.Namespace, found: "Comparisons", judgements: "list[Judgement]") -> None:
    """Write what a CI system reads: JUnit for its test view, Markdown for its summary."""
    if not args.junit and not args.summary:
        return
    from model_profiling.gates.ci_files import job_summary, junit_xml

    if args.junit:
        files.write_text(args.junit, junit_xml(list(found), judgements))
    if args.summary:
        # Several steps of one job share this file: what others wrote stays.
        earlier = files.read_bytes(args.summary, "job summary") if args.summary.exists() else b""
        ours = files.text_bytes(job_summary(list(found), judgements, bool(args.strict)))
        files.write_bytes(args.summary, earlier + ours)


def _runtimes(args: argparse.Namespace) -> None:
    if wrong := flags_said(args, [each for each in TAKES if each.name in _OF_TWO]):
        raise InputError(f"{wrong[0]} is not for other runtimes", "Leave it out, or compare two .pte.")
    model, runtimes = str(args.before), keywords(args, compare_runtimes).get("runtimes", [])
    if args.after is not None and not _is_of_runtime(args.after):
        raise InputError(f"with --runtimes there is one model, and {args.after} is a second", "Leave it out.")
    if not runtimes and not _is_of_runtime(model):
        runtimes = ["executorch"]
    runtimes += [str(args.after)] if args.after is not None else []
    found = call(args, compare_runtimes, model=model, runtimes=runtimes)
    place = None
    if args.html is not None:
        names = [args.before, args.after] if args.after is not None else [args.before, *(args.runtimes or ["runtimes"])]
        place = found.report(args.html or _default_page(*names))
    from model_profiling.report.content.runtimes import report as document

    answer(args, found, lambda: show_result(document(found), place, (), args.verbose), place)


def _is_of_runtime(side: object) -> bool:
    return str(side).lower().endswith(_OTHER_FILES)
