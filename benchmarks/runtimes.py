"""The zoo's models in ExecuTorch and in other runtimes, measured in turns; makes the tables of docs/runtimes.md.

    python -m benchmarks.runtimes [MODEL ...] [--work DIR] [--budget S]     # measure what is missing, write the page
    python -m benchmarks.runtimes toy_cnn --runs 12 --launches 6 --print     # quick, and the page stays as it is
    python -m benchmarks.runtimes --render                                   # write the page, measure nothing

Results are kept in DIR: a second call goes on where the first ended. Run it on a quiet machine.
"""

import argparse
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

import sme2_kit
from benchmarks.validate_forecast import replace_part
from model_profiling.analysis.compare.runtime_comparison import LEAST_RATIO, LEAST_SHARE, RuntimeComparison, RuntimeRow
from model_profiling.base import files
from model_profiling.base.errors import InterruptionError, KitError
from model_profiling.base.printing import tell
from model_profiling.platforms.environment import describe_host
from model_profiling.report import numbers
from model_profiling.report.content.runtimes import findings

PAGE = Path(__file__).parents[1] / "docs" / "runtimes.md"
PART = "measured"
RUNTIMES = ("executorch", "onnxruntime", "eager", "compile")
# The small ones of the zoo; any other can be named, as can a file.py:Class.
MODELS = (
    "toy_cnn",
    "deep_autoencoder",
    "ds_cnn",
    "resnet8",
    "mobilenet_v1_025",
    "mobilenet_v3_small",
    "deit_tiny",
)

_WHICH = (
    f"At least {LEAST_RATIO} times as long, whatever noise and profilers may explain, and "
    f"{100 * LEAST_SHARE:.0f} % of the time or more:"
)


class RuntimesResult(msgspec.Struct, frozen=True):
    """One model in one dtype; `failed` says why nothing was measured."""

    model: str
    dtype: str
    # CPU and cores.
    machine: str
    found: RuntimeComparison | None = None
    failed: str = ""


def measured(model: str, dtype: str, work: Path, runtimes: list[str], counts: dict[str, Any]) -> RuntimesResult:
    """Export and measure a model; what was done already is taken from the work directory."""
    name = f"{Path(model).name.replace(':', '_')}-{dtype}"
    kept = work / f"{name}.json"
    if kept.is_file():
        return files.read_json(kept, RuntimesResult, "result")
    try:
        found = sme2_kit.compare_runtimes(model, runtimes=runtimes, dtype=dtype, out=work / name, **counts)
    except InterruptionError:
        raise
    except KitError as error:
        return RuntimesResult(model, dtype, _machine(), failed=error.message)
    # Only what the page says: paths of this machine are none of it.
    rows = [msgspec.structs.replace(row, file=Path(row.file).name) for row in found.rows]
    result = RuntimesResult(model, dtype, _machine(), msgspec.structs.replace(found, rows=rows))
    files.write_json(kept, result)
    return result


def _machine() -> str:
    facts = describe_host()
    return f"{facts.get('cpu') or platform.machine()}, {facts.get('cores')} cores, {platform.system()}"


def page(results: list[RuntimesResult]) -> str:
    """Return machine, versions, the tables and the lines where ExecuTorch is slower."""
    found = [result.found for result in results if result.found is not None]
    threads = sorted({each.threads for each in found})
    lines = [
        f"Measured on {'; '.join(sorted({result.machine for result in results}))}, "
        f"with {', '.join(map(str, threads)) or 'no'} thread{'s' if threads != [1] else ''}, in turns.",
        f"Versions: {', '.join(_versions(row for each in found for row in each.rows))}.",
        "",
        "How many times as fast as ExecuTorch each is, with the 95 % interval; below 1 ExecuTorch is faster:",
        "",
        *_latency(results),
    ]
    if reasons := [*_reasons(results)]:
        lines += ["", "Not measured, or not ranked:", "", *reasons]
    lines += ["", "### Lines where ExecuTorch takes longer", "", _WHICH, ""]
    return "\n".join([*lines, *(_slower(found) or ["None."])])


def _runtimes(found: Iterable[RuntimeComparison]) -> list[str]:
    """Return the labels of all runtimes but ExecuTorch without versions, in the order of RUNTIMES."""
    named = {row.runtime for each in found for row in each.rows} - {RUNTIMES[0]}
    return sorted(named, key=lambda name: (*RUNTIMES, name).index(name))


def _versions(rows: Iterable[RuntimeRow]) -> list[str]:
    """Return each package of the runtimes once, with its version."""
    return sorted({f"{name} {version}" for row in rows for name, version in row.versions.items()})


def _latency(results: list[RuntimesResult]) -> Iterator[str]:
    others = _runtimes(result.found for result in results if result.found is not None)
    yield f"| {' | '.join(['model', 'ExecuTorch', *others])} |"
    yield f"|---|{'---:|' * (1 + len(others))}"
    for result in results:
        rows = _by_runtime(result.found)
        base = rows.get(RUNTIMES[0])
        ours = base.latency if base is not None else None
        cells = [numbers.ms(ours.median_ms) if ours is not None else "not measured"]
        cells += [_times(rows.get(name)) for name in others]
        yield f"| {' | '.join([f'{_name(result.model)}, {result.dtype}', *cells])} |"


def _times(row: RuntimeRow | None) -> str:
    """Return `1.42x (1.40 to 1.44)`, `~` with its interval, or that there is none; without a ratio, the latency."""
    if row is None or row.latency is None:
        return "not measured"
    compared = row.comparison
    if compared is None:
        return f"{numbers.ms(row.latency.median_ms)}{'' if row.ranked else ', not ranked'}"
    if compared.high is None:
        return "too few runs"
    busy = ", busy machine" if compared.contended else ""
    told = numbers.speedup(compared.ratio, compared.low, compared.high)
    return f"{told} ({numbers.interval(compared.low, compared.high)}{busy})"


def _reasons(results: list[RuntimesResult]) -> Iterator[str]:
    for result in results:
        if result.failed:
            yield f"- {_name(result.model)}, {result.dtype}: {result.failed}"
        for row in result.found.rows if result.found is not None else ():
            differs = "" if row.ranked or row.outputs is None else f"differs by {row.outputs.error_of_reference}"
            if said := row.reason or differs:
                yield f"- {_name(result.model)}, {result.dtype}, {row.label}: {said}"


def _slower(found: list[RuntimeComparison]) -> list[str]:
    """Return the sentences of the kit's own reports."""
    return [f"- {_name(each.model)}, {each.dtype}: {said}" for each in found for said in findings(each)]


def _by_runtime(found: RuntimeComparison | None) -> dict[str, RuntimeRow]:
    return {row.name: row for row in found.rows} if found is not None else {}


def _name(model: str) -> str:
    return Path(model).name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL", help="default: the small ones")
    parser.add_argument("--work", type=Path, default=Path("out_runtimes"), metavar="DIR")
    parser.add_argument("--dtypes", default="fp32", metavar="A,B", help="fp32, fp16 or both")
    parser.add_argument("--runtimes", default=",".join(RUNTIMES), metavar="A,B")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=float, metavar="S", help="seconds for each measurement (default: 30)")
    parser.add_argument("--runs", type=int, help="executions instead of a budget")
    parser.add_argument("--launches", type=int, help="processes of each runtime")
    parser.add_argument("--print", action="store_true", help="print the tables; the page stays as it is")
    parser.add_argument("--render", action="store_true", help="take what was measured, measure nothing")
    args = parser.parse_args()
    counts: dict[str, Any] = {"threads": args.threads, "launches": args.launches}
    counts |= {"runs": args.runs} if args.runs else {"budget_s": args.budget}
    results = []
    for model in args.models:
        for dtype in args.dtypes.split(","):
            if args.render and not (args.work / f"{Path(model).name.replace(':', '_')}-{dtype}.json").is_file():
                continue
            tell(f"{model} {dtype}\n")
            results.append(measured(model, dtype, args.work, args.runtimes.split(","), counts))
    if args.print:
        tell(page(results) + "\n")
        return
    PAGE.write_text(replace_part(PAGE.read_text(), PART, page(results)))


if __name__ == "__main__":
    main()
