"""`sme2-kit run`: measure a model with acceleration on and off, side by side."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.base.printing import tell, warn
from model_profiling.cli import (
    count_flags,
    input_flags,
    label_flags,
    phase_flags,
    platform_flags,
    runtime_flags,
    shared_flags,
    version_flags,
)
from model_profiling.cli.command_line import command_line
from model_profiling.cli.next_step import after_run, ending
from model_profiling.cli.notes import note, tell_outdated
from model_profiling.cli.progress import progress

if TYPE_CHECKING:
    from model_profiling.api import Run
    from model_profiling.api.measuring import RunRequest
    from model_profiling.base.on_progress import OnProgress
    from model_profiling.platforms.base import Platform

HELP = "profile a .pte with acceleration on and off, interleaved"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", nargs="?", type=Path, metavar="MODEL.pte", help="the model; the rest is chosen for this machine"
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="a JSON config instead (see model_profiling/configs/)"
    )
    input_flags.add_inputs(parser, specs=False, files=True)
    shared_flags.add_out(parser, "default: out_<model>/runs/<platform>")
    platform_flags.prepare_parser(parser)
    parser.add_argument("--only", action="append", metavar="EXPERIMENT", help="only this experiment; may be repeated")
    count_flags.prepare_parser(parser, "per experiment", several=True)
    count_flags.prepare_startup(parser)
    version_flags.prepare_parser(parser, "several, as in 1.5.0,1.5.1, take turns and are compared")
    parser.add_argument("--method", metavar="NAME", help="the method to run (default: forward)")
    phase_flags.prepare_parser(parser)
    label_flags.prepare_parser(parser)
    runtime_flags.add_runtimes(parser, "also measure the model in these, in turns with ExecuTorch on this machine")
    parser.add_argument("--force", action="store_true", help="measure again; the existing run is kept")
    parser.add_argument(
        "--analyze-partial",
        action="store_true",
        help="measure nothing; analyse what an interrupted run has measured so far, labelled as partial",
    )
    parser.add_argument("--analysis-only", action="store_true", help="measure nothing; compute the results again")
    shared_flags.add_html(parser)
    parser.add_argument(
        "--json", action="store_true", help="print analysis_summary.json: the analysis, with its metrics"
    )
    parser.add_argument("--quiet", action="store_true", help="print no table")
    parser.add_argument("--verbose", action="store_true", help="print what is run, what is reused and where")


def run(args: argparse.Namespace) -> int:
    from model_profiling.api import Run
    from model_profiling.api.measuring import measure

    asked = _asked(args)
    if args.analyze_partial:
        return _analyze_partial(args)
    if args.analysis_only:
        found = Run.open(_root(args)[0])
    else:
        with platform_flags.chosen_platform(args, *filter(None, [args.model])) as platform, progress() as report:
            if runtime_flags.names(args):
                from model_profiling.api.run_runtimes import refuse_runtimes

                refuse_runtimes(runtime_flags.names(args), platform, version_flags.choices(args))
            measured = measure(asked, platform, report, note)
            if said := _beside(args, measured.run, platform, report):
                note(said)
        found = measured.run
        if args.verbose:
            kept, ran = ", ".join(measured.kept) or "nothing", ", ".join(measured.ran) or "nothing"
            warn(f"ran: {ran}; reused: {kept}\n")
        for remark in filter(None, (measured.remark, measured.reused)):
            note(remark)
    found.check_outputs()
    _show(found, args)
    found.check()
    return 0


def _beside(args: argparse.Namespace, run: "Run", platform: "Platform", report: "OnProgress") -> str:
    """Measure other runtimes, if some are named; what they cannot take is a run all the same."""
    from model_profiling.base.errors import InputError

    try:
        return runtime_flags.beside(args, run, platform, report)
    except InputError as error:
        return f"not measured in other runtimes: {error.message}"


def _show(run: "Run", args: argparse.Namespace) -> None:
    """Write what derives from a run, and its report; print it."""
    from model_profiling.base.printing import say_json
    from model_profiling.report.terminal import run_text

    outdated = run.save()
    if args.json and not args.quiet:
        say_json(run.full_summary)
    elif not args.quiet:
        run_text.show_run(run)
    page = _written_page(run, args.html)
    (warn if args.json else tell)(ending(page, [] if args.quiet else after_run(run)))
    tell_outdated(outdated)


def _written_page(run: "Run", asked: bool | None) -> Path | None:
    """Write the report; what was measured is no failure because of a page that nobody asked for."""
    from model_profiling.base.errors import KitError

    if asked is False:
        return None
    try:
        return run.report(html=True)[-1]
    except KitError as error:
        if asked:
            raise
        note(f"no page was written: {error.message}. {error.hint}")
        return None


def _analyze_partial(args: argparse.Namespace) -> int:
    """Show what an interrupted run has measured; the machine or device it was measured on is not needed."""
    from model_profiling.api import Run
    from model_profiling.pipeline.salvage import salvage_run
    from model_profiling.store.labels import split_labels

    root, label = _root(args)
    directory = salvage_run(root, split_labels(args.label)[0] or label, command_line(args))
    note(f"{directory.path} is a partial run; to finish it, run the same command without --analyze-partial")
    _show(Run.open(directory.path), args)
    return 0


def _root(args: argparse.Namespace) -> tuple[Path, str | None]:
    """Return where the run lies that the flags mean, and what its config calls it."""
    from model_profiling.pipeline.config import load_config
    from model_profiling.pipeline.defaults import output_root_of
    from model_profiling.platforms.choosing import folder_of

    if args.config is not None:
        config = load_config(args.config)
        return Path(config.output_root), config.label
    return args.out or output_root_of(args.model, folder_of(platform_flags.choice_of(args))), None


def _asked(args: argparse.Namespace) -> "RunRequest":
    from model_profiling.api.measuring import RunRequest
    from model_profiling.base.errors import InputError

    labels = label_flags.chosen(args)
    if (args.model is None) == (args.config is None):
        raise InputError(
            "give a .pte or --config, one of the two",
            "For example: sme2-kit run out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte",
        )
    beside = args.out or args.inputs or args.method or phase_flags.given(args)
    if args.config is not None and (beside or args.runtimes or count_flags.given(args)):
        flags = "--out, --input, --method, --tokens, --runtimes, and all flags of counts, start-up and phases"
        raise InputError(f"{flags} can be used only with a .pte", "Set them in the config.")
    return RunRequest(
        model=args.model,
        config=args.config,
        inputs=args.inputs,
        out=args.out,
        counts=count_flags.counts(args),
        threads=args.threads,
        lengths=phase_flags.lengths(args),
        method=args.method,
        token_file=args.tokens,
        executorch=version_flags.choices(args),
        **labels,
        only=args.only,
        force=args.force,
        command=command_line(args),
    )
