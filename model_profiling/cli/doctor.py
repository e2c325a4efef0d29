"""`sme2-kit doctor`: what can this machine do, what is missing, and which command mends it?"""

import argparse
from typing import TYPE_CHECKING

from model_profiling.saying import say, say_json

if TYPE_CHECKING:
    from model_profiling.platforms.doctor import Check

HELP = "show what this machine can do and what is missing"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--essentials", action="store_true", help="check only what exporting and running here need")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(args: argparse.Namespace) -> int:

    from model_profiling.platforms.doctor import essential_checks, further_checks

    checks = essential_checks() + ([] if args.essentials else further_checks())
    if args.json:
        say_json(checks)
    else:
        say(_as_text(checks))
    return 3 if any(check.essential and not check.ok for check in checks) else 0


def _as_text(checks: "list[Check]") -> str:
    width = max(len(check.what) for check in checks)
    lines = []
    for check in checks:
        mark = "ok" if check.ok else "MISSING" if check.essential else "-"
        lines.append(f"{mark:<8}{check.what:<{width}}  {check.found}")
        if check.fix and not check.ok:
            lines.append(f"{'':<8}{'':<{width}}  fix: {check.fix}")
    return "\n".join(lines) + "\n"
