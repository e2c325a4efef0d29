"""List the machines with SME2 that forecasts know; with a name, every number of one and its source."""

import argparse
from typing import TYPE_CHECKING

from model_profiling.api.definition import takes
from model_profiling.base.errors import InputError
from model_profiling.base.printing import tell
from model_profiling.cli.answer import answer

if TYPE_CHECKING:
    from model_profiling.analysis.sme2.target import Target

TAKES = takes(more="name=TargetName? json")
EXAMPLE = "sme2-kit targets apple_m4"
_NOTES = (
    "  fp32: GFLOP/s of one thread, SME2 : NEON. units: of SME2, which threads share.",
    "  `sme2-kit targets NAME` shows every number with its range, kind and source.",
)


def run(args: argparse.Namespace) -> int:
    from model_profiling.analysis.sme2.target import Target, kit_targets, read_target

    if args.name is None:
        known = kit_targets()
        return answer(args, known, lambda: tell(_all(known)))
    target = read_target(args.name)
    if not isinstance(target, Target):
        raise InputError(f"{args.name} holds measured roofs", f"`sme2-kit roofs show {args.name}` shows them.")
    return answer(args, target, lambda: tell(target_text(target)))


def _all(known: "list[Target]") -> str:
    from model_profiling.report.text_table import table

    rows = [("target", "machine", "dtypes", "fp32", "units", "rates are")]
    for each in known:
        rates = " : ".join(f"{side['fp32'].value:g}" if "fp32" in side else "-" for side in (each.sme2, each.neon))
        kinds = ", ".join(sorted({figure.kind for figure in (*each.sme2.values(), *each.neon.values())}))
        rows.append((each.name, each.cpu, ", ".join(each.dtypes), rates, f"{each.units.value:g}", kinds))
    return "\n".join([*table(rows, words=3, left=(5,), optional=(5,)), "", *_NOTES, ""])


def target_text(target: "Target") -> str:
    """Return every number of a target with its range, kind and source."""
    from model_profiling.report.text_table import table

    rows = [("number", "value", "range", "unit", "kind", "source")]
    for name, figure in target.figures().items():
        known = "-" if figure.low is None or figure.high is None else f"{figure.low:g} to {figure.high:g}"
        rows.append((name, f"{figure.value:g}", known, figure.unit, figure.kind, figure.source))
    for each in target.shapes:
        shape = f"shape {each.m} x {each.k} x {each.n} {each.element}"
        rows.append((shape, f"{each.gflops_prepacked:g}", "-", "GFLOP/s, prepacked", "published", each.source))
    head = [f"{target.name}: {target.cpu}", f"  {target.about}"]
    derived = [f"  derived from {', '.join(target.derived_from)}: none of them is a test of it"]
    return "\n".join([*head, *(derived if target.derived_from else []), "", *table(rows, 1, left=(3, 4, 5)), ""])
