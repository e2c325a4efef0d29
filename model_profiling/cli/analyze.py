"""Show where the time goes, what changed and what to do next."""

import argparse
from collections.abc import Callable

from model_profiling import api
from model_profiling.api.definition import takes
from model_profiling.base.errors import InputError
from model_profiling.base.printing import say_json
from model_profiling.cli.answer import answer, page_of, show_result, tell_outdated
from model_profiling.cli.run_argument import resolve_argument, start_numpy

TAKES = takes(more="paths=RunsOrDumps? categories what_if verbose json")
EXAMPLE = "sme2-kit analyze out_toy_cnn/runs/linux"


def run(args: argparse.Namespace) -> int:
    paths = [resolve_argument(path, writes=not args.what_if) for path in args.paths]
    if not paths:
        raise InputError("nothing to analyse", "Give a run directory or .etdump files.")
    for path in paths:
        if not path.exists():
            raise InputError(
                f"there is no run directory or .etdump at {path}", "Check the path; `sme2-kit run` prints it."
            )
    start_numpy()
    if not args.what_if and any(path.is_dir() for path in paths):
        if len(paths) > 1:
            raise InputError("more than one run directory", "Analyse one at a time, or use `sme2-kit compare A B`.")
        run = api.Run.open(paths[0], args.categories)
        tell_outdated(run.save())
        page, said = page_of(run.path), run.document if args.verbose else run.first_screen
        following = ["graph", run.path] if page else ["report", run.path, "--html"]
        return answer(args, run.full_summary, lambda: show_result(said, page, following, args.verbose))
    from model_profiling.analysis.run.dumps import analyse_dumps
    from model_profiling.analysis.timing.categories import load_table

    label: Callable[[str], str] = str
    if paths[0].is_dir():
        opened = api.Run.open(paths[0], args.categories)
        summary, label = opened.summary, opened.label
    else:
        summary = analyse_dumps(paths, load_table(args.categories)).summary
    if args.json and not args.what_if:
        say_json(summary)
        return 0
    from model_profiling.report.content import dumps
    from model_profiling.report.terminal import show

    if not args.what_if:
        show(dumps.report(summary), "whole" if args.verbose else "short")
        return 0
    from model_profiling.analysis.sme2.whatif import parse_speedups, predict

    speedups = parse_speedups(args.what_if)
    predictions = {name: predict(e.breakdown, speedups) for name, e in summary.experiments.items()}
    labelled = {label(name): found for name, found in predictions.items()}
    return answer(args, predictions, lambda: show(dumps.predictions(labelled), "whole"))
