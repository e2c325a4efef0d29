"""What operators take for each byte or multiply-accumulate: the numbers of analysis/movement/typical_prices.py.

    python -m benchmarks.operator_prices [--work DIR] [--dtypes fp32,fp16] [--budget S]

The networks of benchmarks/advice_networks.py are exported and run, and their traces give one line for each kind of
operator: medians, the least and the most. Run it on a quiet machine.
"""

import argparse
from collections import defaultdict
from pathlib import Path
from statistics import median

import sme2_kit
from benchmarks.advice_networks import NETWORKS
from model_profiling.analysis.movement.candidates import SMALL_BYTES, Prices, bytes_of, size_of
from model_profiling.analysis.run.summary import model_graph
from model_profiling.base.errors import KitError
from model_profiling.base.printing import tell

Rates = dict[tuple[str, str, str], list[float]]


def add_rates(run: sme2_kit.Run, found: Rates) -> None:
    """Add what each kind of operator of a run took, in nanoseconds by its size; calls, and what is small, as it is."""
    name = run.of_interest[0]
    graph = model_graph(run.manifest, name, run.profiles[name], run.manifest.model.file())
    if graph is None or not graph.flow.fixed:
        return
    prices = Prices(run.summary.experiments[name].breakdown, graph)
    for kind, ms in prices.known.items():
        where = "XNNPACK" if kind.delegated else "portable"
        dtype = next((text.split(" ")[0] for text in kind.inputs if not text.startswith("=")), "")
        if bytes_of(kind) > 2 * SMALL_BYTES and ms:
            found[where, kind.op, dtype].append(ms * 1e6 / size_of(kind))
        elif not kind.outputs:
            found["call", kind.op, ""].append(ms * 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("out_prices"))
    parser.add_argument("--dtypes", default="fp32,fp16")
    parser.add_argument("--budget", type=float, default=5.0)
    args = parser.parse_args()
    networks = Path(__file__).with_name("advice_networks.py")
    found: Rates = defaultdict(list)
    for name in NETWORKS:
        for dtype in args.dtypes.split(","):
            home = args.work / f"{name}-{dtype}"
            try:
                made = sme2_kit.export(f"{networks}:{name}", dtype=dtype, out=home)
                add_rates(sme2_kit.run(made, out=home / "run", budget_s=args.budget), found)
            except KitError as error:
                tell(f"{name} {dtype}: {error.message}\n")
    for (where, op, dtype), rates in sorted(found.items()):
        spread = f"{median(rates):10.3f}  ({min(rates):.3f} to {max(rates):.3f}, {len(rates)})"
        tell(f"{where:<9} {op:<44} {dtype:<6} {spread}\n")


if __name__ == "__main__":
    main()
