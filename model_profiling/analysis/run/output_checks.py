"""The feature ladder: outputs must be the same under all feature sets, up to the dtype, and kernels must be known."""

from model_profiling.analysis.run.dumps import AnalysisSummary
from model_profiling.analysis.sme2.coverage import CoveredOperator
from model_profiling.base.errors import RunError


def verify_outputs(summary: AnalysisSummary) -> None:
    """Raise if two rungs, or a rung and eager PyTorch, part by more than the dtype explains."""
    if summary.metrics is None:
        return
    for agreement in summary.metrics.agreements:
        if agreement.verdict == "differs":
            raise RunError(
                f"outputs of {agreement.left} and {agreement.right} differ by "
                f"{agreement.error_of_reference}, more than {summary.dtype} explains",
                f"Results diverge at or after {_suspect(summary, agreement.left, agreement.right)}.",
            )


def verify_kernels(summary: AnalysisSummary) -> None:
    """Raise if kernels were traced and it is unknown which operators called them."""
    for name, experiment in summary.experiments.items():
        if experiment.kernels is None:
            continue
        reason = experiment.kernels.unknown or (experiment.coverage.unknown if experiment.coverage else "")
        if reason:
            raise RunError(
                f"which operators of {name} called which kernels is unknown: {reason}",
                "Run it again, into another directory (--out); kernels.json has the kernels by name. "
                "If it happens again, please report it with the .pte.",
            )


def _suspect(summary: AnalysisSummary, left: str, right: str) -> str:
    """Return the first operator that runs another kernel on the two sides: as much as outputs and kernels can tell."""
    sides = [summary.experiments[name].coverage for name in (left, right) if name in summary.experiments]
    if len(sides) == 2 and sides[0] is not None and sides[1] is not None:
        for ours, theirs in zip(sides[0].operators, sides[1].operators, strict=False):
            if _kernels(ours) != _kernels(theirs) or ours.dtype != theirs.dtype:
                return f"{theirs.name} (instruction {theirs.instruction}), the first operator with another kernel"
    return "an operator that kernel names do not identify; compare intermediate outputs"


def _kernels(operator: CoveredOperator) -> list[str]:
    return [call.kernel for call in operator.kernels]
