"""`sme2-kit tune MODEL`: try what the advice recommends, measured side by side, and say which to keep."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.cli import counts as count_flags
from model_profiling.cli.export import add_model, chosen_model, load_options
from model_profiling.cli.progress import progress
from model_profiling.export.choices import DTYPES
from model_profiling.saying import say, say_json

if TYPE_CHECKING:
    from model_profiling.tune.tuning import Tried, TuneResult

HELP = "measure the variants of a model that the advice recommends, interleaved, and rank them"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--dtype", choices=DTYPES, default="fp32", help="of the baseline (default: %(default)s)")
    parser.add_argument("--outdir", type=Path, metavar="DIR", help="default: out_<model>/tune")
    count_flags.prepare_parser(parser, "of each variant")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="for random weights and inputs (default: 0)")
    parser.add_argument("--force", action="store_true", help="export and measure again what is already there")
    parser.add_argument(
        "--json", action="store_true", help="print tune.json: every variant, its latency and agreement, and the winner"
    )


def run(args: argparse.Namespace) -> int:
    import sme2_kit

    target, name = chosen_model(args)
    options = load_options(args)
    count_flags.counts(args)  # says which flag is wrong
    with progress() as report:
        result = sme2_kit.tune(
            target,
            dtype=args.dtype,
            threads=args.threads or 1,
            runs=args.runs,
            launches=args.launches,
            budget_s=args.budget,
            out=args.outdir or Path(f"out_{name}") / "tune",
            input_shapes=[str(spec) for spec in options.inputs],
            settings=dict(options.settings),
            checkpoint=options.checkpoint,
            seed=args.seed,
            force=args.force,
            on_progress=report,
        )
    if args.json:
        say_json(result)
    else:
        say(_as_text(result))
    return 0


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
                f"  no variant is faster (95 % interval) with matching outputs: keep the baseline{_busy(result)}",
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
