"""Profile a .pte with acceleration on and off, interleaved."""

import argparse
from pathlib import Path
from typing import Any

from model_profiling import api
from model_profiling.api.calling import caller
from model_profiling.api.definition import takes
from model_profiling.api.verbs import one_of
from model_profiling.api.verbs import run as run_program
from model_profiling.base.errors import KitError
from model_profiling.base.printing import say_json, tell, warn
from model_profiling.cli.answer import after_run, ending, note, show_result, tell_outdated
from model_profiling.cli.arguments import choice_of
from model_profiling.cli.progress import call
from model_profiling.store.labels import split_labels

TAKES = takes(run_program, "analyze_partial analysis_only html=NoHtml json quiet verbose")
COMMON = "model config inputs out platform threads runs budget_s executorch label runtimes force json"
EXAMPLE = "sme2-kit run out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte"


def run(args: argparse.Namespace) -> None:
    if args.analyze_partial:
        from model_profiling.pipeline.partial_run import salvage_run

        # The machine or device that it was measured on is not needed.
        root, label = _root(args)
        directory = salvage_run(root, split_labels(args.label or ())[0] or label, caller().command())
        note(f"{directory.path} is a partial run; to finish it, run the same command without --analyze-partial")
        _show(api.Run.open(directory.path), args)
        return
    if args.analysis_only:
        found = api.Run.open(_root(args)[0])
    else:
        parts = list[Any]()
        found = call(args, run_program, parts)
        if args.verbose:
            kept, ran = (", ".join(each) or "nothing" for each in (parts[0].result.kept, parts[0].result.ran))
            warn(f"ran: {ran}; reused: {kept}\n")
    _show(found, args)
    found.check()


def _show(run: "api.Run", args: argparse.Namespace) -> None:
    """Write what derives from a run, and its report; print it."""
    outdated, page = run.save(), None
    if args.json and not args.quiet:
        say_json(run.full_summary)
    try:
        page = None if args.html is False else run.report(html=True)[-1]
    except KitError as error:
        # What was measured is no failure because of a page that nobody asked for.
        if args.html:
            raise
        note(f"no page was written: {error.message}. {error.hint}")
    if args.json or args.quiet:
        (warn if args.json else tell)(ending(page, [] if args.quiet else after_run(run)))
    else:
        show_result(run.document if args.verbose else run.first_screen, page, after_run(run), args.verbose)
    tell_outdated(outdated)


def _root(args: argparse.Namespace) -> tuple[Path, str | None]:
    """Return where the run lies that the flags mean, and what its config calls it."""
    from model_profiling.pipeline.config import load_config
    from model_profiling.pipeline.defaults import output_root_of
    from model_profiling.platforms.platform_table import folder_of

    one_of(args.model, args.config)
    if args.config is not None:
        config = load_config(args.config)
        return Path(config.output_root), config.label
    return args.out or output_root_of(args.model, folder_of(choice_of(args))), None
