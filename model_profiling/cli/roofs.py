"""Measure peak rates of this CPU; reports compare operators with them; `show` shows them again."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.api.definition import takes
from model_profiling.api.verbs import roofs as measure_roofs
from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.cli.answer import answer, note, show_result
from model_profiling.cli.arguments import said
from model_profiling.cli.progress import call
from model_profiling.store.runs import find_runs_below

if TYPE_CHECKING:
    from model_profiling.analysis.roofs.roof_rates import Roofs

TAKES = takes(measure_roofs, "action=RoofsAction? which=RoofsFile? picture verbose json")
COMMON = "dtypes threads out platform runs picture json"
EXAMPLE = "sme2-kit roofs --dtype fp32 --threads 1"
_WIDTH = 760
_MEASURING = ("dtypes", "threads", "runs", "launches", "out", "platform")


def run(args: argparse.Namespace) -> int:
    from model_profiling.analysis.roofs.roof_rates import roofs_path

    if args.picture is not None and args.picture.suffix not in (".png", ".svg"):
        raise InputError(f"--picture {args.picture} is neither .png nor .svg", "Name the file FILE.png or FILE.svg.")
    args.action = args.action or "measure"
    if args.action == "show":
        roofs, path = _known(args)
    else:
        if args.which is not None:
            raise InputError(f"{args.which} can be given only with show", "For example: sme2-kit roofs show FILE")
        roofs = call(args, measure_roofs)
        path = args.out or roofs_path(roofs.cpu)
    if args.picture is not None:
        _draw(roofs, args.picture)
    from model_profiling.report.content.roofline import report

    note(f"roofs: {path}")
    return answer(args, roofs, lambda: show_result(report(roofs), None, _next(), args.verbose))


def _next() -> list[object]:
    """Return the report that has these roofs from now on, if there is a run where commands put them."""
    runs = find_runs_below(Path())
    return ["report", runs[0], "--html"] if runs else []


def _known(args: argparse.Namespace) -> "tuple[Roofs, Path]":
    """Return the roofs in a file, of a CPU by its name, or of this machine's."""
    from model_profiling.analysis.roofs.roof_rates import read_roofs, roofs_path
    from model_profiling.platforms.environment import describe_host

    given = said(args, _MEASURING)
    if given:
        raise InputError(
            f"--{'dtype' if given[0] == 'dtypes' else given[0]} is for measuring", "Leave it out, or leave out show."
        )
    named = str(args.which or describe_host().get("cpu") or "")
    path = Path(named)
    if args.which is None or not path.is_file():
        path = roofs_path(named)
    if not path.is_file():
        whose = named if args.which else f"this machine's CPU ({named or 'unknown'})"
        raise InputError(f"no roofs are known of {whose}", "Measure them there with `sme2-kit roofs`, or name a file.")
    return read_roofs(path), path


def _draw(roofs: "Roofs", output: Path) -> None:
    from model_profiling.report.charts.roofs import roofs as chart
    from model_profiling.report.drawing.drawing_process import DrawingPool
    from model_profiling.report.drawing.theme import LIGHT
    from model_profiling.report.drawing.vega import PAPER_SCALE, compress_png

    with DrawingPool() as artist:
        spec = chart(roofs.measurements, _WIDTH, LIGHT, f"{roofs.cpu}: best rates")
        drawing = artist.draw(spec, PAPER_SCALE).result()
    files.write_bytes(output, drawing.svg.encode() if output.suffix == ".svg" else compress_png(drawing.png))
