"""Runs of networks on an Arm core, as small data: benchmarks/neoverse_n1.json; prices are fitted to some of them.

    python -m benchmarks.core_runs RUN [--data FILE] [--role fitted|held]   # add a run that an Arm machine measured
    python -m benchmarks.core_runs --program MODEL.pte NAME DTYPE MS        # add a latency and the program's operators

A run that is `fitted` gives each operator its time. Of one that is `held` out the whole is known, and its operators are
those of the .pte: nothing else is taken from it.
"""

import argparse
from collections.abc import Iterable, Sequence
from math import prod
from pathlib import Path
from typing import Literal

import msgspec

import sme2_kit
from model_profiling.analysis.graph import graph as model_graph
from model_profiling.analysis.graph import operator_work
from model_profiling.analysis.timing.breakdown import Breakdown, CategoryTime, InstanceTime, Spread
from model_profiling.analysis.timing.categories import CATEGORIES, CategoryTable
from model_profiling.analysis.timing.profile import RUNTIME, Part, Where
from model_profiling.analysis.timing.work import Work
from model_profiling.base import files
from model_profiling.formats import pte
from model_profiling.formats.graph_terms import base_name
from model_profiling.formats.pte.dataflow import DataFlow, FlowStep, data_flow

DATA = Path(__file__).with_name("neoverse_n1.json")
_NAMES = {
    **{node: name for name, nodes in model_graph._NAMES.items() for node in nodes},
    **{"StaticTranspose": "Transpose", "StaticReshape": "Static Reshape", "StaticMean": "Mean", "StaticSum": "Sum"},
    **{"BatchMatrixMultiply": "Batch Matrix Multiply", "ConvTranspose2d": "Deconvolution"},
}
# XNNPACK has no depthwise kernel for larger windows.
_LARGEST_WINDOW = 25


class CoreOperator(msgspec.Struct, frozen=True, array_like=True):
    """`count` operators that are alike: their time together in microseconds where it was measured."""

    where: Where
    operator: str
    kind: str
    category: Part
    count: int
    us: float | None = None
    work: Work | None = None


class CoreRun(msgspec.Struct, frozen=True):
    """One program on the core with these features. `shares` are those of its categories, `products` that of CONV and
    GEMM together, both in percent, as far as they are known."""

    network: str
    dtype: str
    features: list[str]
    role: Literal["fitted", "held"]
    ms: float
    source: str
    operators: list[CoreOperator]
    shares: dict[str, float] = {}
    products: float | None = None


class CoreRuns(msgspec.Struct, frozen=True):
    cpu: str
    executorch: str
    runs: list[CoreRun]


def read_runs(path: Path = DATA) -> CoreRuns:
    return files.read_json(path, CoreRuns, "runs of a core")


def write_runs(runs: CoreRuns, path: Path = DATA) -> None:
    """Write runs with a line for each of their operators' kinds: a change of one is one line of a difference."""
    head, last = msgspec.json.encode(msgspec.structs.replace(runs, runs=[])).decode(), len(runs.runs) - 1
    lines = [head.removesuffix("[]}") + "["]
    for place, run in enumerate(sorted(runs.runs, key=lambda run: (run.role, run.network, run.dtype, run.features))):
        start = msgspec.json.encode(msgspec.structs.replace(run, operators=[])).decode()
        before, _, after = start.partition('"operators":[]')
        operators = ",\n  ".join(msgspec.json.encode(operator).decode() for operator in run.operators)
        lines.append(f' {before}"operators":[\n  {operators}]{after}{"," if place < last else ""}')
    files.write_text(path, "\n".join([*lines, "]}", ""]))


def breakdown_of(run: CoreRun) -> Breakdown:
    """Return a program's operators as the analyses have them, each as often as it is there, with measured times."""
    rows = [entry for operator in run.operators for entry in [entry_of(operator)] * operator.count]
    categories = [CategoryTime(name, 0.0, 0.0, 0) for name in (*CATEGORIES, RUNTIME)]
    return Breakdown(1, 0.0, categories, {}, [], rows)


def entry_of(operator: CoreOperator, instruction: int = 0) -> InstanceTime:
    """Return an operator as the analyses have it."""
    ms, name = (operator.us or 0.0) / 1e3 / operator.count, operator.operator.partition(" of ")[0]
    named = (name, name, operator.category, operator.kind, operator.where)
    return InstanceTime(*named, "", "", 0, instruction, ms, 0.0, Spread(ms, 0.0, ms), work=operator.work)


def inside_of(operator: CoreOperator) -> int:
    """Return how many operators a delegate call has inside; 0 for all else."""
    return int(operator.operator.rpartition(" ")[2]) if operator.operator.startswith("delegate call of ") else 0


def program_operators(model: Path, method: str = "forward") -> list[CoreOperator]:
    """Return what a program consists of, from the .pte alone: its operators, and ExecuTorch's calls of them."""
    program = pte.read(model)
    chosen = program.method(method)
    flow = data_flow(program, chosen) if chosen is not None else None
    assert flow is not None, f"{model}: the data flow is not known"
    table = CategoryTable()
    found = [_operator(step, flow, table) for step in flow.steps if not _is_part_of_another(step, flow)]
    inside: dict[int, int] = {}
    for step in flow.steps:
        if step.node is not None and not _is_part_of_another(step, flow):
            inside[step.instruction] = inside.get(step.instruction, 0) + 1
    calls = [CoreOperator("runtime", f"delegate call of {count}", "", RUNTIME, 1) for count in inside.values()]
    calls += [CoreOperator("runtime", "operator call", "", RUNTIME, 1) for step in flow.steps if step.node is None]
    return grouped([*found, *calls, CoreOperator("runtime", "method", "", RUNTIME, 1)])


def grouped(operators: Iterable[CoreOperator]) -> list[CoreOperator]:
    """Return operators with those that are alike as one."""
    found: dict[CoreOperator, tuple[int, float | None]] = {}
    for operator in operators:
        key = msgspec.structs.replace(operator, count=1, us=None)
        count, us = found.get(key, (0, None))
        found[key] = count + operator.count, us if operator.us is None else (us or 0.0) + operator.us
    return [msgspec.structs.replace(key, count=count, us=us) for key, (count, us) in found.items()]


def _operator(step: FlowStep, flow: DataFlow, table: CategoryTable) -> CoreOperator:
    node, work = step.node, operator_work._work(step, False)
    if node is None:
        operator = base_name(step.op)
        known = table.classify_operator(operator, False)
        return CoreOperator("portable", operator, known.kind, known.category, 1, None, work)
    name, algorithm = _NAMES.get(node.op, node.op), ""
    if node.op == "FullyConnected" or node.pointwise:
        name, algorithm = "Fully Connected", " (NC) GEMM"
    elif node.op in ("Conv2d", "DepthwiseConv2d"):
        own = node.op == "Conv2d" or node.inputs[0].shape[-1] == 1 or prod(node.kernel) > _LARGEST_WINDOW
        name, algorithm = "Convolution", f" (NHWC) {'IGEMM' if own else 'DWConv'}"
    known = table.classify_operator(name + algorithm, True)
    return CoreOperator("delegated", name, known.kind, known.category, 1, None, work)


def _is_part_of_another(step: FlowStep, flow: DataFlow) -> bool:
    """Return whether XNNPACK makes a node a part of the one before: the clamp of a value that nothing else reads."""
    if step.node is None or step.node.op != "Clamp" or not step.inputs or step.inputs[0].source < 0:
        return False
    before = flow.steps[step.inputs[0].source]
    fuses = before.node is not None and before.node.op in (*model_graph._MATRIX_NODES, "Add", "Multiply", "Subtract")
    return fuses and before.instruction == step.instruction and len(flow.readers(step.inputs[0].source)) == 1


def measured_operators(instances: Sequence[InstanceTime]) -> list[CoreOperator]:
    """Return the operators of a run with their times."""
    inside: dict[int, int] = {}
    for entry in instances:
        if entry.where == "delegated":
            inside[entry.instruction] = inside.get(entry.instruction, 0) + 1
    found = []
    for entry in instances:
        name = entry.operator.partition(" (")[0] if entry.where == "delegated" else base_name(entry.operator)
        if entry.where == "runtime":
            name = entry.operator + (f" of {inside.get(entry.instruction, 0)}" if "delegate" in entry.operator else "")
        found.append(CoreOperator(entry.where, name, entry.kind, entry.category, 1, entry.ms * 1e3, entry.work))
    return grouped(found)


def add(runs: CoreRuns, new: Sequence[CoreRun]) -> CoreRuns:
    keys = {(run.network, run.dtype, tuple(run.features)) for run in new}
    kept = [run for run in runs.runs if (run.network, run.dtype, tuple(run.features)) not in keys]
    return msgspec.structs.replace(runs, runs=[*kept, *new])


def of_run(path: Path, role: Literal["fitted", "held"]) -> list[CoreRun]:
    """Return the experiments of a run directory of an Arm machine."""
    run, found = sme2_kit.open_run(path), []
    for name, analysis in run.summary.experiments.items():
        record, latency = run.manifest.experiments[name], run.metrics.experiments[name].latency
        if latency is None or record.features is None or record.features.arch != "aarch64":
            continue
        parts = analysis.breakdown.categories
        network = (run.manifest.model.stem.partition("_xnnpack_")[0], run.manifest.model.dtype)
        operators = measured_operators(analysis.breakdown.instances)
        shares: dict[str, float] = {entry.category: round(100 * entry.share, 1) for entry in parts}
        features = sorted(record.features.active)
        found.append(CoreRun(*network, features, role, latency.median_ms, str(path), operators, shares))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="*", type=Path, help="run directories of an Arm machine")
    parser.add_argument("--program", nargs=4, metavar=("MODEL.pte", "NAME", "DTYPE", "MS"))
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--role", choices=("fitted", "held"), default="held")
    args = parser.parse_args()
    new = [found for path in args.run for found in of_run(path, args.role)]
    if args.program:
        model, name, dtype, ms = args.program
        operators = program_operators(Path(model))
        new.append(CoreRun(name, dtype, ["dot", "fp16arith"], args.role, float(ms), "given by hand", operators))
    write_runs(add(read_runs(args.data), new), args.data)


if __name__ == "__main__":
    main()
