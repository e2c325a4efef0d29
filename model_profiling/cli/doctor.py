"""Show what this machine can do and what is missing."""

import argparse

from model_profiling.api.definition import takes
from model_profiling.base.printing import tell
from model_profiling.cli.answer import answer

TAKES = takes(more="essentials upstream json")
EXAMPLE = "sme2-kit doctor"


def run(args: argparse.Namespace) -> int:
    if args.upstream:
        return _upstream(args)
    from model_profiling.platforms.doctor import essential_checks, further_checks
    from model_profiling.report.text_table import table

    checks = essential_checks() + ([] if args.essentials else further_checks())
    rows = []
    for check in checks:
        rows.append(("ok" if check.ok else "MISSING" if check.essential else "-", check.what, check.found))
        if check.fix and not check.ok:
            rows.append(("", "", f"fix: {check.fix}"))
    answer(args, checks, lambda: tell("\n".join(table(rows, words=3, header=False)) + "\n"))
    return 3 if any(check.essential and not check.ok for check in checks) else 0


def _upstream(args: argparse.Namespace) -> int:
    from model_profiling.export.quiet import kept_off_terminal
    from model_profiling.upstream.all_reliances import reliance_states

    with kept_off_terminal(loud=args.debug):
        states = reliance_states()
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
    return answer(args, states, lambda: tell("\n".join([*lines, end, ""])))
