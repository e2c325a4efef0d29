"""`sme2-kit targets`: the machines with SME2 that forecasts know; `targets NAME`: every number and where it is from."""

import argparse
from typing import TYPE_CHECKING

from model_profiling.base.printing import tell
from model_profiling.cli.answer import answer

if TYPE_CHECKING:
    from model_profiling.analysis.sme2.target import Figure, Target

HELP = "list the machines with SME2 that forecasts know; with a name, every number of one and its source"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME|FILE", help="one of them, or a file like theirs")
    parser.add_argument("--json", action="store_true", help="print one target, or the list of all, as JSON")


def run(args: argparse.Namespace) -> int:
    from model_profiling.analysis.sme2.target import kit_targets

    if args.name is not None:
        target = _described(args.name)
        return answer(args, target, lambda: tell(_one(target)))
    known = kit_targets()
    return answer(args, known, lambda: tell(_all(known)))


def _described(name: str) -> "Target":
    from model_profiling.analysis.sme2.target import Target, read_target
    from model_profiling.base.errors import InputError

    target = read_target(name)
    if not isinstance(target, Target):
        raise InputError(f"{name} holds measured roofs", f"`sme2-kit roofs show {name}` shows them.")
    return target


def _all(known: "list[Target]") -> str:
    from model_profiling.report.terminal.text_table import table

    rows = [("target", "machine", "dtypes", "fp32", "units", "rates are")]
    for target in known:
        rates = [f"{side['fp32'].value:g}" if "fp32" in side else "-" for side in (target.sme2, target.neon)]
        kinds = ", ".join(sorted({figure.kind for figure in (*target.sme2.values(), *target.neon.values())}))
        rows.append(
            (target.name, target.cpu, ", ".join(target.dtypes), " : ".join(rates), f"{target.units.value:g}", kinds)
        )
    notes = [
        "  fp32: GFLOP/s of one thread, SME2 : NEON. units: of SME2, which threads share.",
        "  `sme2-kit targets NAME` shows every number with its range, kind and source.",
    ]
    return "\n".join([*table(rows, words=3, left=(5,), optional=(5,)), "", *notes, ""])


def _one(target: "Target") -> str:
    from model_profiling.report.terminal.text_table import table

    rows = [("number", "value", "range", "unit", "kind", "source")]
    rows += [
        (name, f"{figure.value:g}", _range(figure), figure.unit, figure.kind, figure.source)
        for name, figure in target.figures().items()
    ]
    for each in target.shapes:
        shape = f"shape {each.m} x {each.k} x {each.n} {each.element}"
        rows.append((shape, f"{each.gflops_prepacked:g}", "-", "GFLOP/s, prepacked", "published", each.source))
    head = [f"{target.name}: {target.cpu}", f"  {target.about}"]
    derived = [f"  derived from {', '.join(target.derived_from)}: none of them is a test of it"]
    return "\n".join([*head, *(derived if target.derived_from else []), "", *table(rows, 1, left=(3, 4, 5)), ""])


def _range(figure: "Figure") -> str:
    return "-" if figure.low is None or figure.high is None else f"{figure.low:g} to {figure.high:g}"
