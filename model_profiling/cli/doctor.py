"""`sme2-kit doctor`: what can this machine do, what is missing, and which command mends it?"""

import argparse
from typing import TYPE_CHECKING

from model_profiling.base.printing import tell
from model_profiling.cli.answer import answer

if TYPE_CHECKING:
    from model_profiling.platforms.doctor import Check

HELP = "show what this machine can do and what is missing"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--essentials", action="store_true", help="check only what exporting and running here need")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(args: argparse.Namespace) -> int:
    from model_profiling.platforms.doctor import essential_checks, further_checks

    checks = essential_checks() + ([] if args.essentials else further_checks())
    answer(args, checks, lambda: tell(_as_text(checks)))
    return 3 if any(check.essential and not check.ok for check in checks) else 0


def _as_text(checks: "list[Check]") -> str:
    from model_profiling.report.terminal.text_table import table

    rows = []
    for check in checks:
        mark = "ok" if check.ok else "MISSING" if check.essential else "-"
        rows.append((mark, check.what, check.found))
        if check.fix and not check.ok:
            rows.append(("", "", f"fix: {check.fix}"))
    return "\n".join(table(rows, words=3, header=False)) + "\n"
