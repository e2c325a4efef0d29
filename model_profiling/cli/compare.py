"""`sme2-kit compare A B`: one line a person can act on, and a gate for CI. Two .pte are measured first, in turns."""

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.cli import counts as count_flags
from model_profiling.cli.numpy_start import start_numpy
from model_profiling.cli.progress import progress
from model_profiling.saying import say, say_json, warn

if TYPE_CHECKING:
    from model_profiling.analysis.categories import CategoryTable
    from model_profiling.analysis.comparison import PairComparison
    from model_profiling.analysis.selection import Chosen
    from model_profiling.gates.verdict import Judgement

HELP = "compare two experiments, runs or dumps; can fail when the second is slower"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    where = "run directory or DIR@LABEL, either with :EXPERIMENT or /EXPERIMENT, .etdump, or .pte to be measured now"
    parser.add_argument("before", metavar="A", help=where)
    parser.add_argument(
        "after", metavar="B", help=f"{where}; of two whole runs, experiments of equal name are compared"
    )
    parser.add_argument(
        "--fail-if-slower",
        type=float,
        metavar="PCT",
        help="exit 1 if the whole 95 %% interval is above the limit: B is slower by more than PCT percent",
    )
    parser.add_argument(
        "--strict", action="store_true", help="with --fail-if-slower: also fail when that cannot be ruled out"
    )
    parser.add_argument(
        "--any-baseline",
        action="store_true",
        help="with --fail-if-slower: accept a baseline A of another model, machine or setting",
    )
    count_flags.prepare_parser(parser, "of each of two .pte")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the result as JUnit XML, for CI systems")
    parser.add_argument(
        "--summary", type=Path, metavar="FILE", help="append a Markdown job summary, e.g. to $GITHUB_STEP_SUMMARY"
    )
    parser.add_argument("--categories", metavar="FILE", help="a JSON file that extends or overrides the category table")
    parser.add_argument("--verbose", action="store_true", help="also say how each category and operator changed")
    parser.add_argument("--json", action="store_true", help="print a JSON list, one comparison for each pair")


def run(args: argparse.Namespace) -> int:
    start_numpy()
    import msgspec

    from model_profiling.analysis.breakdown import break_down
    from model_profiling.analysis.categories import load_table
    from model_profiling.analysis.comparison import PairComparison, compare_profiles
    from model_profiling.analysis.latency import compare
    from model_profiling.gates.baseline import refuse_wrong_baseline
    from model_profiling.gates.verdict import judge
    from model_profiling.report import terminal
    from model_profiling.report.words import comparison_sentence
    from model_profiling.runs import resolve

    args.before, args.after = str(resolve(args.before)), str(resolve(args.after))
    gated = args.fail_if_slower is not None
    if gated:
        refuse_wrong_baseline(args.before, args.after, args.any_baseline)
    table = load_table(Path(args.categories) if args.categories else None)
    results: list[PairComparison] = []
    with tempfile.TemporaryDirectory() as scratch:
        for before, after in _pairs(args, Path(scratch), table):
            paired = bool(before.session) and before.session == after.session
            names = (before.name, after.name) if before.name != after.name else (f"A:{before.name}", f"B:{after.name}")
            latency = compare((names[0], before.turns), (names[1], after.turns), paired)
            caveats = list(dict.fromkeys([*before.caveats, *after.caveats]))
            latency = msgspec.structs.replace(latency, caveats=caveats)
            old, new = before.profile(table), after.profile(table)
            profile = compare_profiles((names[0], old, break_down(old)), (names[1], new, break_down(new)), paired)
            results.append(PairComparison(latency, profile, before.metrics, after.metrics))
    if args.json:
        say_json(results)
    else:
        for result in results:
            say(comparison_sentence(result.latency) + "\n")
            if args.verbose:
                terminal.show_comparison(result.profile)
    judgements = judge([result.latency for result in results], args.fail_if_slower, args.strict) if gated else []
    for judgement in judgements:
        warn(f"gate: {judgement.sentence}\n")
    _leave_for_ci(args, results, judgements)
    return 1 if any(judgement.failed for judgement in judgements) else 0


def _leave_for_ci(args: argparse.Namespace, results: "list[PairComparison]", judgements: "list[Judgement]") -> None:
    """Write what a CI system reads: JUnit for its test view, Markdown for its summary."""
    from model_profiling import files
    from model_profiling.gates.job_summary import job_summary
    from model_profiling.gates.junit import junit_xml

    if args.junit:
        files.write_text(args.junit, junit_xml(results, judgements))
    if args.summary:
        # Several steps of one job share this file: what others wrote stays.
        earlier = files.read_bytes(args.summary, "job summary").decode() if args.summary.exists() else ""
        files.write_text(args.summary, earlier + job_summary(results, judgements))


def _pairs(args: argparse.Namespace, scratch: Path, table: "CategoryTable") -> "list[tuple[Chosen, Chosen]]":
    from model_profiling.analysis.selection import choose
    from model_profiling.errors import InputError

    first, second = args.before, args.after
    programs = [text for text in (first, second) if text.endswith(".pte")]
    if len(programs) == 2:
        return [_in_turns(args, scratch)]
    if programs:
        raise InputError(f"{programs[0]} has not been measured", "Give two .pte, or run this one first (sme2-kit run).")
    if count_flags.given(args):
        flags = "--runs, --launches, --budget and --threads"
        raise InputError(f"{flags} are for two .pte", "A run directory is measured already.")
    before, after = choose(first, table), choose(second, table)
    pairs = [(next(iter(before.values())), next(iter(after.values())))]
    if len(before) > 1 or len(after) > 1:
        pairs = [(before[name], after[name]) for name in before if name in after]
    if not pairs:
        raise InputError(
            f"no experiment is in both ({', '.join(before)} against {', '.join(after)})",
            f"Name one on each side: sme2-kit compare {first}:{next(iter(before))} {second}:{next(iter(after))}",
        )
    usable = [pair for pair in pairs if pair[0].turns and pair[1].turns]
    if not usable:
        raise InputError("there is no latency to compare (trace runs have none)", "Compare timing experiments.")
    return usable


def _in_turns(args: argparse.Namespace, scratch: Path) -> "tuple[Chosen, Chosen]":
    """Measure two programs side by side on this machine: shared machine noise cancels."""
    from model_profiling.analysis.metrics import layout_caveats
    from model_profiling.analysis.selection import Chosen
    from model_profiling.artifacts import ExportPaths
    from model_profiling.errors import InputError
    from model_profiling.pipeline.account import Program
    from model_profiling.pipeline.pipeline import export_record, sample_inputs
    from model_profiling.pipeline.side_by_side import measure
    from model_profiling.platforms.local import LocalPlatform

    counts = count_flags.counts(args)
    programs = {}
    for name, text in (("A", args.before), ("B", args.after)):
        paths = ExportPaths(Path(text).resolve())
        if not paths.pte.is_file():
            raise InputError(f"{text} does not exist", "Export the model first, or check the path.")
        programs[name] = Program(paths.pte, paths.stem, sample_inputs(paths, export_record(paths)))
    platform = LocalPlatform()
    with progress() as report:
        outcomes = measure(platform, programs, scratch, args.threads or 1, report, True, counts)
    caveats = tuple(layout_caveats(platform.probe().environment))
    found = [
        Chosen(
            name=outcome.program.stem,
            turns=outcome.timed,
            latency_source="untraced executions",
            etdump=outcome.file(".etdump"),
            session="now",
            traced_launches=outcome.samples.traced_launches,
            caveats=caveats,
        )
        for outcome in outcomes.values()
    ]
    return found[0], found[1]
