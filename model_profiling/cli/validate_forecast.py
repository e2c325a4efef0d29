"""`sme2-kit validate-forecast`: is the forecast right on this CPU? Writes one page and one JSON file to share."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.base.dtypes import ARITHMETICS
from model_profiling.base.installation import relative_to_here
from model_profiling.base.printing import tell
from model_profiling.cli import platform_flags, shared_flags
from model_profiling.cli.answer import answer
from model_profiling.cli.next_step import ending
from model_profiling.cli.notes import note
from model_profiling.cli.progress import progress

if TYPE_CHECKING:
    from model_profiling.analysis.sme2.forecast_validation import ForecastValidation

HELP = "hold the forecast against this CPU: a few models on and off; writes a page and a JSON file to share"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--models",
        nargs="+",
        metavar="MODEL",
        help="names, path/to/file.py:ClassName, or .pte (default: four small ones)",
    )
    parser.add_argument("--dtypes", nargs="+", choices=ARITHMETICS, metavar="DTYPE", help="default: all")
    parser.add_argument(
        "--budget", type=float, metavar="SECONDS", help="time for the runs of each model in each dtype (default: 20)"
    )
    shared_flags.add_out(parser, "default: out_forecast_validation")
    parser.add_argument("--force", action="store_true", help="measure again what is already there, roofs too")
    parser.add_argument("--json", action="store_true", help="print forecast_validation.json")
    platform_flags.prepare_parser(parser)


def run(args: argparse.Namespace) -> int:
    from model_profiling.api.forecast_validating import BUDGET_S, MODELS, ValidationRequest, validate_forecast
    from model_profiling.pipeline.counts import checked_counts

    checked_counts(None, None, args.budget, None, lambda name: f"--{name}")
    home = args.out or Path("out_forecast_validation")
    models, dtypes = (tuple(dict.fromkeys(given)) for given in (args.models or MODELS, args.dtypes or ARITHMETICS))
    asked = ValidationRequest(home, models, dtypes, args.budget or BUDGET_S, force=args.force)
    asked.check()
    with platform_flags.chosen_platform(args) as platform, progress() as report:
        found = validate_forecast(asked, platform, report, note)
    return answer(args, found, lambda: tell(_as_text(found, home)))


def _as_text(found: "ForecastValidation", home: Path) -> str:
    from model_profiling.report.blocks import Link, Name, Number
    from model_profiling.report.terminal.text_table import table
    from model_profiling.report.validation_page import MODEL_COLUMNS, alerts, model_row, page_report
    from model_profiling.store.artifacts import FORECAST_VALIDATION, VALIDATION_PAGE

    def shown(cell: object) -> str:
        return cell.shown if isinstance(cell, Number) else cell.text if isinstance(cell, Name | Link) else str(cell)

    page = page_report(found)
    lines = ["", page.title, "", *(f"  warning  {words}" for words in alerts(found)), ""]
    lines += [f"  {figure.label}: {figure.value} ({figure.note})" for figure in page.figures]
    if found.models:
        rows = [MODEL_COLUMNS, *(tuple(map(shown, model_row(model))) for model in found.models)]
        lines += ["", *table(rows, words=3, left={6, 9}, optional={6, 9})]
    share = f"  to share   {relative_to_here(home / FORECAST_VALIDATION)} (docs/platforms.md says how to send it in)"
    return "\n".join([*lines, "", share, ""]) + ending(home / VALIDATION_PAGE)
