"""`sme2-kit analyze`: where the time goes in a run directory, or in any .etdump."""

import argparse
from collections.abc import Callable
from pathlib import Path

from model_profiling.cli import shared_flags
from model_profiling.cli.answer import answer
from model_profiling.cli.numpy_start import start_numpy
from model_profiling.cli.run_argument import resolve_argument

HELP = "show where the time goes, what changed and what to do next"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    text = "a run directory (DIR@LABEL: an earlier run), or .etdump files"
    shared_flags.add_runs(parser, text, "--run-dir")
    parser.add_argument(
        "--categories",
        type=Path,
        metavar="FILE",
        help="a JSON file that extends or overrides the category table; stored with the run (`builtin`: the default)",
    )
    parser.add_argument(
        "--what-if", action="append", default=[], metavar="NAME=SPEEDUP", help="predict, e.g. CONV=3; may be repeated"
    )
    parser.add_argument(
        "--json", action="store_true", help="print analysis_summary.json; with --what-if, the predictions"
    )


def run(args: argparse.Namespace) -> int:
    from model_profiling.analysis.timing.categories import load_table
    from model_profiling.base.errors import InputError
    from model_profiling.base.printing import say_json

    paths = [resolve_argument(path, writes=not args.what_if) for path in shared_flags.given_paths(args)]
    if not paths:
        raise InputError("nothing to analyse", "Give a run directory or .etdump files.")
    for path in paths:
        if not path.exists():
            raise InputError(
                f"there is no run directory or .etdump at {path}", "Check the path; `sme2-kit run` prints it."
            )
    start_numpy()
    if args.what_if:
        return _what_if(paths, args)
    if any(path.is_dir() for path in paths):
        if len(paths) > 1:
            raise InputError("more than one run directory", "Analyse one at a time, or use `sme2-kit compare A B`.")
        return _run_directory(paths[0], args)
    from model_profiling.analysis.run.dumps import analyse_dumps

    summary = analyse_dumps(paths, load_table(args.categories)).summary
    if args.json:
        say_json(summary)
    else:
        from model_profiling.report.terminal import run_text

        run_text.show_analysis(summary)
    return 0


def _run_directory(path: Path, args: argparse.Namespace) -> int:
    from model_profiling.api import Run
    from model_profiling.base.printing import tell
    from model_profiling.cli.next_step import ending, page_of
    from model_profiling.cli.notes import tell_outdated
    from model_profiling.report.terminal import run_text

    run = Run.open(path, args.categories)
    tell_outdated(run.save())
    answer(args, run.full_summary, lambda: run_text.show_run(run))
    if not args.json:
        page = page_of(run.path)
        tell(ending(page, ["graph", run.path] if page else ["report", run.path, "--html"]))
    return 0


def _what_if(paths: list[Path], args: argparse.Namespace) -> int:
    """Predict each experiment's time under the given speedups."""
    from model_profiling.analysis.run.dumps import analyse_dumps
    from model_profiling.analysis.sme2.whatif import parse_speedups, predict
    from model_profiling.analysis.timing.categories import load_table
    from model_profiling.api import Run
    from model_profiling.report.terminal import run_text

    label: Callable[[str], str] = str
    if paths[0].is_dir():
        run = Run.open(paths[0], args.categories)
        summary, label = run.summary, run.label
    else:
        summary = analyse_dumps(paths, load_table(args.categories)).summary
    speedups = parse_speedups(args.what_if)
    predictions = {name: predict(e.breakdown, speedups) for name, e in summary.experiments.items()}
    labelled = {label(name): found for name, found in predictions.items()}
    return answer(args, predictions, lambda: run_text.show_predictions(labelled))
