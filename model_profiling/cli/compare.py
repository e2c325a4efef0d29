"""`sme2-kit compare A B`: one line a person can act on, and a gate for CI. Two .pte are measured first, in turns."""

import argparse
import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.base.printing import say_json, tell, warn
from model_profiling.cli import count_flags, platform_flags, runtime_flags, version_flags
from model_profiling.cli.next_step import ending
from model_profiling.cli.numpy_start import start_numpy
from model_profiling.cli.progress import progress
from model_profiling.cli.run_argument import resolve_argument

if TYPE_CHECKING:
    from model_profiling.api import Comparisons
    from model_profiling.gates.verdict import Judgement, Limits

# Some file systems allow 143 bytes.
_MOST_NAME = 100
HELP = "compare two experiments, runs or dumps; can fail when the second is slower"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    where = "run directory or DIR@LABEL, either with :EXPERIMENT or /EXPERIMENT, .etdump, or .pte to be measured now"
    parser.add_argument("before", metavar="A", help=f"{where}; with --runtimes a model as `profile` takes it")
    parser.add_argument(
        "after",
        metavar="B",
        nargs="?",
        help=f"{where}; of two whole runs, experiments of equal name are compared; none with two --executorch",
    )
    parser.add_argument(
        "--fail-if-slower",
        type=float,
        metavar="PCT",
        help="exit 1 if the whole 95 %% interval is above the limit: B is slower by more than PCT percent",
    )
    parser.add_argument(
        "--fail-if-startup-slower",
        type=float,
        metavar="PCT",
        help="the same of the time from the start of a process to its first result",
    )
    parser.add_argument(
        "--fail-if-memory-above", type=float, metavar="PCT", help="the same of peak memory: B takes PCT percent more"
    )
    parser.add_argument("--strict", action="store_true", help="with a limit: also fail when that cannot be ruled out")
    parser.add_argument(
        "--any-baseline",
        action="store_true",
        help="with a limit: accept a baseline A of another model, machine or setting",
    )
    count_flags.prepare_parser(parser, "of each of two .pte")
    count_flags.prepare_startup(parser, "none, or 10 with --fail-if-startup-slower")
    version_flags.prepare_parser(parser, "two, as in 1.5.0,1.5.1, run one .pte in turns: A is before, B is after")
    platform_flags.prepare_parser(parser)
    runtime_flags.prepare_parser(parser)
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the result as JUnit XML, for CI systems")
    parser.add_argument(
        "--summary", type=Path, metavar="FILE", help="append a Markdown job summary, e.g. to $GITHUB_STEP_SUMMARY"
    )
    parser.add_argument("--categories", metavar="FILE", help="a JSON file that extends or overrides the category table")
    parser.add_argument("--verbose", action="store_true", help="also say how each category and operator changed")
    parser.add_argument(
        "--html",
        nargs="?",
        const="",
        type=_page,
        metavar="FILE",
        help="also write a page: the verdict, what the difference consists of, modules, both timelines "
        "(default: compare_A_B.html in this directory)",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON list, one comparison for each pair")


def _page(text: str) -> str:
    """Return the name of a page; what follows `--html` and is another word is one of the sides."""
    if text and not text.lower().endswith((".html", ".htm")):
        raise argparse.ArgumentTypeError(f"'{text}' does not end in .html; give --html after A and B")
    return text


def run(args: argparse.Namespace) -> int:
    start_numpy()
    if runtime_flags.asked(args):
        sides = (args.before, args.after, args.runtimes or ["runtimes"])
        return runtime_flags.run(args, None if args.html is None else args.html or _default_page(*sides))
    from model_profiling.api import comparing
    from model_profiling.gates.baseline import refuse_wrong_baseline
    from model_profiling.gates.verdict import Limits, conclusion, judge
    from model_profiling.pipeline.schedule import STARTUP_LAUNCHES

    before = str(resolve_argument(args.before))
    after = None if args.after is None else str(resolve_argument(args.after))
    limits = Limits(args.fail_if_slower, args.fail_if_startup_slower, args.fail_if_memory_above)
    if limits.given and after is not None:
        refuse_wrong_baseline(before, after, args.any_baseline)
    counts, versions = count_flags.counts(args), version_flags.choices(args)
    if limits.startup_slower is not None and counts.startup_launches is None and before.endswith(".pte"):
        counts = dataclasses.replace(counts, startup_launches=STARTUP_LAUNCHES)
    if comparing.is_to_measure(before, after, versions):
        asked = comparing.programs_to_measure(before, after, versions, counts, args.threads)
        with (
            platform_flags.chosen_platform(args, Path(asked.before), Path(asked.after)) as platform,
            progress() as report,
        ):
            found = comparing.measure_pair(asked, args.categories, report, platform)
    else:
        platform_flags.refuse(args, "two .pte")
        found = comparing.compare(before, after or "", args.categories, counts, args.threads)
    if args.json:
        say_json(list(found))
    else:
        _tell(found, limits, args.verbose)
    judgements = judge(list(found), limits, args.strict)
    for judgement in judgements:
        warn(f"gate: {judgement.sentence}\n")
    if judgements:
        warn(f"gate: {conclusion(judgements, args.strict)}\n")
    _leave_for_ci(args, found, judgements)
    page = None
    if args.html is not None:
        page = found.report(args.html or _default_page(args.before, args.after, versions))
    # With --json, standard output has that alone.
    last = warn if args.json else tell
    last(ending(page, _next(Path(after)) if not args.json and not limits.given and after is not None else []))
    return 1 if any(judgement.failed for judgement in judgements) else 0


def _default_page(before: str, after: str | None, versions: Sequence[str]) -> str:
    """Return a name in this directory that says what was compared."""
    sides = [before, after] if after is not None else [before, *versions]
    names = [re.sub(r"[^\w.@-]+", "_", Path(side).name.removesuffix(".pte")).strip("._") for side in sides]
    return f"{'_'.join(['compare', *filter(None, names)])[:_MOST_NAME]}.html"


def _next(after: Path) -> list[object]:
    """Return what shows more of the second side: of a run its page, of a program what its operators take."""
    if after.is_dir():
        return ["report", after, "--html"]
    return ["profile", after] if after.suffix == ".pte" else []


def _tell(found: "Comparisons", limits: "Limits", verbose: bool) -> None:
    """Print a line for each pair; of two versions of ExecuTorch, and with --verbose, all that was compared."""
    from model_profiling.report import words
    from model_profiling.report.terminal import changes_text, run_text

    alone = len(found) == 1
    for each in found:
        tell(words.comparison_sentence(each.latency, busy=alone) + "\n")
        every = verbose or each.kernels is not None
        if each.startup is not None and (every or limits.startup_slower is not None):
            tell(words.startup_sentence(each.startup, busy=alone) + "\n")
        if each.memory is not None and (every or limits.memory_above is not None):
            tell(words.memory_sentence(each.memory) + "\n")
        if each.kernels is not None:
            tell(f"outputs: {words.outputs_sentence(each.outputs)}\n{words.kernels_sentence(each.kernels)}\n")
        for side, runner in zip(("before", "after"), each.runners, strict=False):
            if runner.executorch_path:
                tell(f"{side}: ExecuTorch {runner.executorch_name} in {runner.executorch_path}\n")
        if each.changes is not None:
            changes_text.show_changes(each.changes)
        if every:
            run_text.show_comparison(each.profile)
    if not alone and (busy := words.busy_sentence(found.latency)):
        warn(f"warning: {busy}\n")


def _leave_for_ci(args: argparse.Namespace, found: "Comparisons", judgements: "list[Judgement]") -> None:
    """Write what a CI system reads: JUnit for its test view, Markdown for its summary."""
    from model_profiling.base import files
    from model_profiling.gates.job_summary import job_summary
    from model_profiling.gates.junit import junit_xml

    if args.junit:
        files.write_text(args.junit, junit_xml(list(found), judgements))
    if args.summary:
        # Several steps of one job share this file: what others wrote stays.
        earlier = files.read_bytes(args.summary, "job summary") if args.summary.exists() else b""
        files.write_bytes(args.summary, earlier + files.text_bytes(job_summary(list(found), judgements, args.strict)))
