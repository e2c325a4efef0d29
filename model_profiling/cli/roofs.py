"""`sme2-kit roofs`: measure how fast this CPU can be; `roofs show`: see it again."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.base.dtypes import ARITHMETICS
from model_profiling.base.printing import tell
from model_profiling.cli import platform_flags, shared_flags
from model_profiling.cli.answer import answer
from model_profiling.cli.next_step import ending
from model_profiling.cli.notes import note
from model_profiling.cli.progress import progress

if TYPE_CHECKING:
    from model_profiling.analysis.roofs.roof_rates import Roofs

HELP = "measure peak rates of this CPU; reports compare operators with them; `show` shows them again"
_WIDTH = 760
_MEASURING = ("dtype", "threads", "runs", "launches", "out", "platform")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("measure", "show"), default="measure", help="default: measure")
    parser.add_argument(
        "which", nargs="?", metavar="CPU|FILE", help="with show: a CPU's name, or a file (default: this machine's CPU)"
    )
    parser.add_argument("--dtype", action="append", choices=ARITHMETICS, help="may be repeated (default: all)")
    parser.add_argument("--threads", action="append", type=int, metavar="N", help="may be repeated (default: 1)")
    parser.add_argument("--runs", type=int, metavar="N", help="timed runs of each, over all launches (default: 30)")
    parser.add_argument("--launches", type=int, metavar="N", help="processes started for each (default: 3)")
    shared_flags.add_out(parser, "default: the kit's cache, by the CPU's name", "FILE")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="also draw the rates by shape: .png or .svg")
    parser.add_argument("--json", action="store_true", help="print roofs.json: every probe and its best time")
    platform_flags.prepare_parser(parser)


def run(args: argparse.Namespace) -> int:
    from model_profiling.analysis.roofs.roof_rates import roofs_path
    from model_profiling.base.errors import InputError

    if args.picture is not None and args.picture.suffix not in (".png", ".svg"):
        raise InputError(f"--picture {args.picture} is neither .png nor .svg", "Name the file FILE.png or FILE.svg.")
    if args.action == "show":
        roofs, path = _known(args)
    else:
        if args.which is not None:
            raise InputError(f"{args.which} can be given only with show", "For example: sme2-kit roofs show FILE")
        roofs = _measured(args)
        path = args.out or roofs_path(roofs.cpu)
    if args.picture is not None:
        _draw(roofs, args.picture)
    return answer(args, roofs, lambda: tell(_as_text(roofs, path) + ending(following=_next())))


def _next() -> list[object]:
    """Return the report that has these roofs from now on, if there is a run where commands put them."""
    from model_profiling.store.runs import find_runs_below

    runs = find_runs_below(Path())
    return ["report", runs[0], "--html"] if runs else []


def _measured(args: argparse.Namespace) -> "Roofs":
    from model_profiling.api.roof_measuring import COUNTS, Probing, measure_roofs
    from model_profiling.pipeline.counts import checked_counts
    from model_profiling.pipeline.schedule import Counts

    threads = tuple(dict.fromkeys(args.threads or (1,)))
    for number in threads:
        checked_counts(args.runs, args.launches, None, number, lambda name: f"--{name}")
    counts = Counts(args.runs or COUNTS.runs, args.launches or COUNTS.launches)
    asked = Probing(tuple(dict.fromkeys(args.dtype or ARITHMETICS)), threads, counts, args.out)
    with platform_flags.chosen_platform(args) as platform, progress() as report:
        return measure_roofs(asked, platform, report, note)


def _known(args: argparse.Namespace) -> "tuple[Roofs, Path]":
    """Return the roofs in a file, of a CPU by its name, or of this machine's."""
    from model_profiling.analysis.roofs.roof_rates import read_roofs, roofs_path
    from model_profiling.base.errors import InputError
    from model_profiling.platforms.environment import describe_host

    given = [name for name in _MEASURING if getattr(args, name)]
    if given:
        raise InputError(f"--{given[0]} is for measuring", "Leave it out, or leave out show.")
    named = args.which or str(describe_host().get("cpu") or "")
    path = Path(named)
    if args.which is None or not path.is_file():
        path = roofs_path(named)
    if not path.is_file():
        whose = named if args.which else f"this machine's CPU ({named or 'unknown'})"
        raise InputError(f"no roofs are known of {whose}", "Measure them there with `sme2-kit roofs`, or name a file.")
    return read_roofs(path), path


def _draw(roofs: "Roofs", output: Path) -> None:
    from model_profiling.base import files
    from model_profiling.report.charts.roofs import roofs as chart
    from model_profiling.report.drawing.drawing_pool import DrawingPool
    from model_profiling.report.drawing.theme import LIGHT
    from model_profiling.report.drawing.vega import PAPER_SCALE, compress_png

    with DrawingPool() as artist:
        spec = chart(roofs.measurements, _WIDTH, LIGHT, f"{roofs.cpu}: best rates")
        drawing = artist.draw(spec, PAPER_SCALE).result()
    files.write_bytes(output, drawing.svg.encode() if output.suffix == ".svg" else compress_png(drawing.png))


def _as_text(roofs: "Roofs", path: Path) -> str:
    from model_profiling.report.terminal.roofs_text import table_lines

    lines = [
        "",
        f"{roofs.cpu} on {roofs.platform}, measured {roofs.created[:10]} with ExecuTorch {roofs.executorch}",
        "",
    ]
    return "\n".join([*lines, *table_lines(roofs), "", f"  file  {path}", ""])
