"""The table of known kernels held against kernels that were traced, operator by operator."""

from collections.abc import Iterator

from model_profiling.analysis.run.run_data import RunData
from model_profiling.analysis.run.run_forecasts import table_coverage
from model_profiling.analysis.sme2.coverage import Coverage
from model_profiling.analysis.sme2.kernel_assignment import KernelCalls
from model_profiling.analysis.sme2.kernel_table import Cpu, TableDifference
from model_profiling.store.run_directory import ExperimentRecord
from model_profiling.upstream.kernel_calls import MATRIX_KERNEL

# What the CPU without SME of the table has: another one runs other kernels.
_NEON = {"dot", "i8mm", "fp16arith"}


def traced_operators(run: RunData) -> int:
    """Return how many CONV and GEMM operators of a run have kernels that the table can be held against."""
    return sum(len(coverage.operators) for _, _, coverage in _traced(run))


def table_differences(run: RunData) -> list[TableDifference]:
    """Return the CONV and GEMM operators of a traced run of which the table says something else, or nothing.

    None: the table names the traced kernel of every operator.
    """
    found = []
    for name, cpu, traced in _traced(run):
        known = table_coverage(run, name, cpu)
        executorch = run.manifest.experiments[name].runner.executorch_name
        for ours, theirs in zip(known.operators, traced.operators, strict=True):
            says, ran = _kernels(ours.kernels), _kernels(theirs.kernels)
            if ours.level == "unknown":
                why = (ours.name, ours.instruction, ran or theirs.level, "unknown")
                found.append(TableDifference(*why, "unknown", ours.why_not))
            elif (ours.level, says) != (theirs.level, ran):
                sides = (ours.name, ours.instruction, ran or theirs.level, says or ours.level)
                found.append(TableDifference(*sides, "differs", f"{cpu} of ExecuTorch {executorch}"))
    return found


def _traced(run: RunData) -> Iterator[tuple[str, Cpu, Coverage]]:
    for name, experiment in run.summary.experiments.items():
        cpu, coverage = _cpu(run.manifest.experiments[name]), experiment.coverage
        if cpu is not None and coverage is not None and not coverage.unknown:
            yield name, cpu, coverage


def _cpu(record: ExperimentRecord) -> Cpu | None:
    active = set(record.features.active) if record.features is not None else set()
    if "sme2" in active:
        return "sme2"
    return "sme1" if "sme" in active else "neon" if active >= _NEON else None


def _kernels(calls: list[KernelCalls]) -> str:
    return " ".join(sorted(call.kernel for call in calls if call.kernel.startswith(MATRIX_KERNEL)))
