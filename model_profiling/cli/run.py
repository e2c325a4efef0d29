"""`sme2-kit run`: measure a model with acceleration on and off, side by side."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.cli import counts as count_flags
from model_profiling.cli import platform as platform_flags
from model_profiling.cli.notes import tell_outdated
from model_profiling.cli.progress import progress
from model_profiling.cli.typed import typed
from model_profiling.saying import say, warn

if TYPE_CHECKING:
    from model_profiling.pipeline.config import Config
    from model_profiling.pipeline.pipeline import PipelineResult
    from model_profiling.platforms.base import Platform
    from sme2_kit.run import Run

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
    from model_profiling.analysis.output_checks import verify_kernels, verify_outputs
    from model_profiling.errors import KitError
    from model_profiling.pipeline.pipeline import Pipeline
    from model_profiling.run_directory import RunDirectory
    from sme2_kit.run import Run

    if args.analyze_partial:
        return _analyze_partial(args)
    with platform_flags.chosen_platform(args) as platform, progress() as report:
        config, remark = _config(args, platform)
        directory = RunDirectory(Path(config.output_root))
        if not args.analysis_only:
            try:
                result = Pipeline(config, platform, report, args.only, args.force, typed(args)).run()
            except (KitError, KeyboardInterrupt):
                # What did finish is worth its numbers even if another experiment failed.
                if directory.manifest_path.is_file():
                    tell_outdated(Run.open(directory.path).save())
                raise
            remark = remark or _kept(result)
            if result.archived:
                warn(f"note: the run before this one is kept as {directory.path}@{result.archived}\n")
            if args.verbose:
                kept, ran = ", ".join(result.kept) or "nothing", ", ".join(result.ran) or "nothing"
                warn(f"ran: {ran}; kept: {kept}\n")
    if remark:
        warn(f"note: {remark}\n")
    found = Run.open(directory.path)
    if found.manifest.timing != "measured":
        verify_outputs(found.summary)
    _show(found, args)
    if any(record.mode == "trace" for record in found.manifest.experiments.values()):
        verify_kernels(found.summary)
    return 0


def _show(run: "Run", args: argparse.Namespace) -> None:
    """Write what derives from a run, print it, and write its report if that was asked for."""
    from model_profiling.report import terminal
    from model_profiling.saying import say_json

    outdated = run.save()
    if args.json and not args.quiet:
        say_json(run.summary)
    elif not args.quiet:
        terminal.show_run(run)
    if args.html:
        written = "".join(f"{terminal.seen_from_here(path)}\n" for path in run.report(html=True))
        (warn if args.json else say)(written)
    tell_outdated(outdated)


def _analyze_partial(args: argparse.Namespace) -> int:
    """Show what an interrupted run has measured; the machine or device it was measured on is not needed."""
    from model_profiling.errors import InputError
    from model_profiling.pipeline.config import load_config
    from model_profiling.pipeline.defaults import output_root_of
    from model_profiling.pipeline.partial import put_in_place
    from model_profiling.platforms.local import local_name
    from sme2_kit.run import Run

    if (args.model is None) == (args.config is None):
        raise InputError("give the .pte or --config of the run that was interrupted", "For example as it was typed.")
    config = load_config(args.config) if args.config is not None else None
    label = args.label or (config.label if config else None)
    root = Path(config.output_root) if config else args.output_root
    directory = put_in_place(root or output_root_of(args.model, args.platform or local_name()), label, sys.argv)
    warn(f"note: a partial run, put in {directory.path}; the same command without --analyze-partial goes on\n")
    _show(Run.open(directory.path), args)
    return 0


def _kept(result: "PipelineResult") -> str:
    """Say which numbers are older than this command."""
    if not result.kept:
        return ""
    when = max(result.manifest.experiments[name].finished for name in result.kept)
    what = ", ".join(result.kept) if result.ran else "nothing was measured: all of it"
    return f"{what} was there already, from {when}; --force measures again"


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
