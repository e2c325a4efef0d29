"""`sme2-kit run`: measure a model with acceleration on and off, side by side."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from model_profiling.cli import counts as count_flags
from model_profiling.cli import platform as platform_flags
from model_profiling.cli.progress import progress
from model_profiling.cli.typed import typed
from model_profiling.saying import warn

if TYPE_CHECKING:
    from model_profiling.derived import Outdated
    from model_profiling.pipeline.config import Config
    from model_profiling.pipeline.pipeline import PipelineResult
    from model_profiling.platforms.base import Platform

HELP = "profile a .pte with acceleration on and off, side by side"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", nargs="?", type=Path, metavar="MODEL.pte", help="the model; the rest is chosen for this machine"
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="a JSON config instead (see model_profiling/configs/)"
    )
    parser.add_argument(
        "--inputs",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help=".npy or raw .bin, one per input, without a config; default: the export's samples, else ones",
    )
    parser.add_argument("--output-root", type=Path, metavar="DIR", help="default: out_<model>/runs/<platform>")
    platform_flags.prepare_parser(parser)
    parser.add_argument("--only", action="append", metavar="EXPERIMENT", help="run only this one; may be repeated")
    count_flags.prepare_parser(parser, "per experiment")
    parser.add_argument(
        "--label", metavar="NAME", help="what to call this run; commands take DIR@NAME (default: when it was made)"
    )
    parser.add_argument("--force", action="store_true", help="measure again what is already there; that is kept, too")
    parser.add_argument(
        "--analyze-partial",
        action="store_true",
        help="measure nothing; analyse what an interrupted run has measured so far, labelled as partial",
    )
    parser.add_argument("--analysis-only", action="store_true", help="run nothing; compute the results again")
    parser.add_argument("--html", action="store_true", help="also write the report: report.md and report.html")
    parser.add_argument("--json", action="store_true", help="print the analysis, with its metrics, as JSON")
    parser.add_argument("--quiet", action="store_true", help="print no table")
    parser.add_argument("--verbose", action="store_true", help="say what is run, what is kept and where")


def run(args: argparse.Namespace) -> int:
    from model_profiling.derived import Outdated, notes
    from model_profiling.report.printing import print_notes

    outdated: list[Outdated] = []
    try:
        return _run(args, outdated.append)
    finally:
        # Also of a run that failed: what it did finish may have outdated a report.
        print_notes(notes(outdated))


def _run(args: argparse.Namespace, tell: "Callable[[Outdated], None]") -> int:
    from model_profiling.analysis.ladder import verify_kernels, verify_outputs
    from model_profiling.pipeline.pipeline import Pipeline
    from model_profiling.report import results
    from model_profiling.report.printing import show_run
    from model_profiling.run_directory import RunDirectory

    if args.analyze_partial:
        return _analyze_partial(args, tell)
    with platform_flags.chosen_platform(args) as platform, progress() as report:
        config, remark = _config(args, platform)
        directory = RunDirectory(Path(config.output_root))
        if args.analysis_only:
            results.refreshed(directory, tell=tell)
        else:
            try:
                result = Pipeline(config, platform, report, args.only, args.force, typed(args)).run()
            finally:
                # What did finish is worth its numbers even if another experiment failed.
                results.refresh(directory, tell=tell)
            remark = remark or _kept(result)
            if result.archived:
                warn(f"note: the run before this one is kept as {directory.path}@{result.archived}\n")
            if args.verbose:
                kept, ran = ", ".join(result.kept) or "nothing", ", ".join(result.ran) or "nothing"
                warn(f"ran: {ran}; kept: {kept}\n")
    if platform.timing != "measured":
        verify_outputs(results.refreshed(directory).summary)
    if remark:
        warn(f"note: {remark}\n")
    if not args.quiet:
        show_run(directory, as_json=args.json)
    if args.html:
        _write_report(directory.path, sys.stderr if args.json else sys.stdout)
    if any(record.mode == "trace" for record in directory.manifest().experiments.values()):
        verify_kernels(results.refreshed(directory).summary)
    return 0


def _analyze_partial(args: argparse.Namespace, tell: "Callable[[Outdated], None]") -> int:
    """Show what an interrupted run has measured; the machine or device it was measured on is not needed."""
    from model_profiling.errors import InputError
    from model_profiling.pipeline.config import load_config
    from model_profiling.pipeline.defaults import output_root_of
    from model_profiling.pipeline.partial import put_in_place
    from model_profiling.platforms.local import local_name
    from model_profiling.report import results
    from model_profiling.report.printing import show_run

    if (args.model is None) == (args.config is None):
        raise InputError("give the .pte or --config of the run that was interrupted", "For example as it was typed.")
    config = load_config(args.config) if args.config is not None else None
    label = args.label or (config.label if config else None)
    root = Path(config.output_root) if config else args.output_root
    directory = put_in_place(root or output_root_of(args.model, args.platform or local_name()), label, sys.argv)
    results.refreshed(directory, tell=tell)
    warn(f"note: a partial run, put in {directory.path}; the same command without --analyze-partial goes on\n")
    if not args.quiet:
        show_run(directory, as_json=args.json)
    if args.html:
        _write_report(directory.path, sys.stderr if args.json else sys.stdout)
    return 0


def _kept(result: "PipelineResult") -> str:
    """Say which numbers are older than this command."""
    if not result.kept:
        return ""
    when = max(result.manifest.experiments[name].finished for name in result.kept)
    what = ", ".join(result.kept) if result.ran else "nothing was measured: all of it"
    return f"{what} was there already, from {when}; --force measures again"


def _write_report(directory: Path, say: TextIO) -> None:
    from model_profiling.artifacts import REPORT
    from model_profiling.report import writing
    from model_profiling.report.drawing import Artist
    from model_profiling.report.terminal import seen_from_here

    with Artist() as artist:
        written = writing.write_report(artist, directory, directory / REPORT, "", markdown=True, page=True)
    say.write("".join(f"{seen_from_here(path)}\n" for path in written))


def _config(args: argparse.Namespace, platform: "Platform") -> tuple["Config", str]:
    """The config the user wrote, or one made for this model and machine; and a remark worth making about it."""
    from model_profiling.errors import InputError
    from model_profiling.pipeline.config import load_config
    from model_profiling.pipeline.defaults import default_config

    if (args.model is None) == (args.config is None):
        raise InputError(
            "give a .pte or --config, one of the two",
            "For example: sme2-kit run out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte",
        )
    if args.config is not None:
        if args.output_root or args.inputs or count_flags.given(args):
            flags = "--output-root, --inputs, --runs, --launches, --budget and --threads"
            raise InputError(f"{flags} go with a .pte", "Set them in the config.")
        return _labelled(load_config(args.config), args.label), ""
    counts = count_flags.counts(args)
    config, remark = default_config(args.model, platform, args.output_root, counts, args.threads, inputs=args.inputs)
    return _labelled(config, args.label), remark


def _labelled(config: "Config", label: str | None) -> "Config":
    import msgspec

    from model_profiling.runs import checked_label

    return config if label is None else msgspec.structs.replace(config, label=checked_label(label))
