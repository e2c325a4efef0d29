"""Find the fastest program of a model: try what may help, measure in turns, keep the best .pte."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.api.definition import takes
from model_profiling.api.verbs import tune
from model_profiling.cli.answer import answer, show_result
from model_profiling.cli.export import export_request
from model_profiling.cli.progress import call

if TYPE_CHECKING:
    from model_profiling.tune.tune_result import TuneResult

TAKES = takes(tune, "json")
COMMON = "model dtype input_shapes out runs budget_s threads min_sqnr_db metric data max_drop json"
EXAMPLE = "sme2-kit tune toy_cnn --dtype fp16"


def run(args: argparse.Namespace) -> int:
    home = args.out or export_request(args, "tune").outdir.parent / "tune"
    result = tuned(args, home)
    return answer(args, result, lambda: show_tuned(result, home))


def tuned(args: argparse.Namespace, home: Path) -> "TuneResult":
    """Tune the model that the command line names, with its options."""
    # `profile` takes several.
    threads = {"threads": args.threads[0]} if isinstance(args.threads, list) else {}
    return call(args, tune, **threads, out=home)


def show_tuned(result: "TuneResult", home: Path | None = None, page: Path | None = None) -> None:
    """Show what was tried, with a picture in `home` of what has an accuracy to weigh."""
    from model_profiling.tune.tune_report import document, write_picture

    weighed = home is not None and any(entry.pareto is not None for entry in result.tried)
    picture = write_picture(result, home) if home is not None and weighed else None
    show_result(document(result, picture), page, following(result))


def following(result: "TuneResult") -> list[object]:
    """Return the next command: what was gained, measured once more; or where the time goes of what is there."""
    program, base = Path(result.program), Path(result.baseline_program)
    return ["compare", base, program] if result.winner else ["profile", program]
