"""Hold the forecast against this CPU: a few models on and off; writes a page and a JSON file to share."""

import argparse
from pathlib import Path

from model_profiling.api.definition import takes
from model_profiling.api.verbs import validate_forecast
from model_profiling.base.installation import relative_to_here
from model_profiling.cli.answer import answer, note, show_result
from model_profiling.cli.progress import call
from model_profiling.store.artifacts import FORECAST_VALIDATION, VALIDATION_PAGE

TAKES = takes(validate_forecast, "json")
EXAMPLE = "sme2-kit validate-forecast --budget 10"


def run(args: argparse.Namespace) -> int:
    home = args.out or Path("out_forecast_validation")
    found = call(args, validate_forecast)
    from model_profiling.report.content.validation import page_report

    note(f"to share: {relative_to_here(home / FORECAST_VALIDATION)} (docs/platforms.md says how to send it in)")
    return answer(args, found, lambda: show_result(page_report(found), home / VALIDATION_PAGE))
