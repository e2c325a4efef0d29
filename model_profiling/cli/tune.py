"""`sme2-kit tune MODEL`: try what the advice recommends, measured side by side, and say which to keep."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.cli import counts as count_flags
from model_profiling.cli.export import add_model, chosen_model, export_with_progress, load_options
from model_profiling.cli.progress import progress
from model_profiling.export.choices import DTYPES
from model_profiling.saying import say, say_json

if TYPE_CHECKING:
    from model_profiling.export.request import ExportRequest, ExportResult
    from model_profiling.tune.tuning import Tried, TuneResult

HELP = "try variants of a model that the advice recommends, side by side, and rank them"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--dtype", choices=DTYPES, default="fp32", help="of the baseline (default: %(default)s)")
    parser.add_argument("--outdir", type=Path, metavar="DIR", help="default: out_<model>/tune")
    count_flags.prepare_parser(parser, "of each variant")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="for random weights and inputs (default: 0)")
    parser.add_argument("--force", action="store_true", help="export and measure again what is already there")
    parser.add_argument("--json", action="store_true", help="print tune.json: all that was tried, and the winner")


def run(args: argparse.Namespace) -> int:
    from model_profiling.export.request import ExportRequest
    from model_profiling.platforms.local import LocalPlatform
    from model_profiling.tune.tuning import Tuner, TuneRequest

    target, name = chosen_model(args)
    counts = count_flags.counts(args)
    outdir = args.outdir or Path(f"out_{name}") / "tune"
    base = ExportRequest(name, outdir, args.dtype, seed=args.seed, target=target, options=load_options(args))
    request = TuneRequest(base, args.threads or 1, counts, args.force)
    with progress() as report:
        result = Tuner(request, LocalPlatform(), _exporting(args.force), report).run()
    if args.json:
        say_json(result)
    else:
        say(_as_text(result))
    return 0


def _exporting(force: bool) -> "Callable[[ExportRequest], ExportResult]":
    """Export unless exactly that is on disk already."""

    def export(request: "ExportRequest") -> "ExportResult":
        from model_profiling.export.cache import cached

        earlier = None if force else cached(request)
        return earlier or export_with_progress(request, f"export {request.outdir.name}")

    return export


def _as_text(result: "TuneResult") -> str:
    width = max(len(entry.name) for entry in result.tried)
    lines = [f"{result.model} on {result.platform}, against {result.baseline}; fastest first", ""]
    lines.append(f"  {'variant':<{width}}    median  speedup (95 % interval)  SQNR      outputs  why it was tried")
    lines += [_row(entry, width, result.baseline) for entry in result.tried]
    winner = next((entry for entry in result.tried if entry.name == result.winner), None)
    if winner is None:
        return "\n".join(
            [
                *lines,
                "",
                f"  nothing that was tried is surely faster and still right: keep the baseline{_busy(result)}",
                "",
            ]
        )
    return "\n".join([*lines, "", f"  keep {winner.name}:  {winner.command}", ""])


def _busy(result: "TuneResult") -> str:
    if any(entry.comparison and entry.comparison.contended for entry in result.tried):
        return ",\n  or stop other work and measure again with --force (rows marked busy were disturbed)"
    return ""


def _row(entry: "Tried", width: int, baseline: str) -> str:
    from model_profiling.report import numbers

    if entry.failure or entry.median_ms is None:
        return f"  {entry.name:<{width}}  could not be made: {entry.failure}"
    speed = "baseline" if entry.name == baseline else "-"
    if entry.comparison is not None:
        compared = entry.comparison
        seen = compared.verdict != "no difference seen"
        speed = numbers.bounded_speedup(compared.ratio, compared.low, compared.high) if seen else "~"
        speed += " busy" if compared.contended else ""
    agreement = entry.agreement
    sqnr = f"{agreement.sqnr_db:.1f} dB" if agreement and agreement.sqnr_db is not None else "-"
    verdict = "; ".join([agreement.verdict, *agreement.remarks]) if agreement else "-"
    return f"  {entry.name:<{width}}  {entry.median_ms:>8.3f}  {speed:<23}  {sqnr:<8}  {verdict:<7}  {entry.reason}"
