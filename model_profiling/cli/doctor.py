"""`sme2-kit doctor`: what can this machine do, what is missing, and which command mends it?"""

import argparse
from typing import TYPE_CHECKING

from model_profiling.base.printing import tell
from model_profiling.cli.answer import answer

if TYPE_CHECKING:
    from model_profiling.platforms.doctor import Check
    from model_profiling.upstream.all_reliances import RelianceState

HELP = "show what this machine can do and what is missing"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--essentials", action="store_true", help="check only what exporting and running here need")
    parser.add_argument(
        "--upstream",
        action="store_true",
        help="show what the kit relies on and nobody promised, and what of it holds here",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(args: argparse.Namespace) -> int:
    if args.upstream:
        return _upstream(args)
    from model_profiling.platforms.doctor import essential_checks, further_checks

    checks = essential_checks() + ([] if args.essentials else further_checks())
    answer(args, checks, lambda: tell(_as_text(checks)))
    return 3 if any(check.essential and not check.ok for check in checks) else 0


def _upstream(args: argparse.Namespace) -> int:
    from model_profiling.export.quiet import kept_off_terminal
    from model_profiling.upstream.all_reliances import reliance_states

    with kept_off_terminal(loud=args.debug):
        states = reliance_states()
    return answer(args, states, lambda: tell(_reliances_as_text(states)))


def _reliances_as_text(states: "list[RelianceState]") -> str:
    lines = []
    for each in states:
        mark = {"holds": "ok", "fails": "FAILS", "not checked": "-"}[each.state]
        lines.append(f"{mark:<6} {each.name}: {each.relies_on} ({each.project})")
        lines.append(f"       proven with {each.proven}; checked: {each.checked}")
        if each.reason:
            lines.append(f"       {each.state}: {each.reason}")
        lines.append(f"       {'now' if each.state == 'fails' else 'otherwise'}: {each.instead}")
    failing = sum(each.state == "fails" for each in states)
    end = f"{failing} of {len(states)} fail: the kit works without them" if failing else f"none of {len(states)} fails"
    return "\n".join([*lines, end]) + "\n"


def _as_text(checks: "list[Check]") -> str:
    from model_profiling.report.terminal.text_table import table

    rows = []
    for check in checks:
        mark = "ok" if check.ok else "MISSING" if check.essential else "-"
        rows.append((mark, check.what, check.found))
        if check.fix and not check.ok:
            rows.append(("", "", f"fix: {check.fix}"))
    return "\n".join(table(rows, words=3, header=False)) + "\n"
