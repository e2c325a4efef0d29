"""Make the table of known kernels: run programs that have every kind of node under an emulator, write down what ran."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from model_profiling.analysis.graph.graph import aligned_nodes
from model_profiling.analysis.sme2.kernel_assignment import ELIGIBLE
from model_profiling.analysis.sme2.kernel_table import CPUS, Cpu, KernelTable, KnownKernels, MatrixNode, node_kind
from model_profiling.api.exporting import from_target
from model_profiling.api.loaded_run import Run
from model_profiling.api.measuring import kernels_request, measure
from model_profiling.base.dtypes import EXPORTED, LINEAR_ONLY
from model_profiling.base.errors import InputError, KitError
from model_profiling.base.on_progress import OnNote, OnProgress
from model_profiling.export.request import ExportRequest
from model_profiling.platforms.base import Platform
from model_profiling.upstream.libraries import MATRIX_KERNEL

_PROGRAMS = Path(__file__).parents[1] / "models" / "kernel_space.py"
Kernels = tuple[str, ...]


class TableError(KitError):
    """What decides a kernel is not what the kit thinks: no table can be made."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "Please report it: the kit has to look at more of a node.")


class _Seen:
    """Every kind of node: which kernels each CPU ran for it, in which dtypes it was, and how often."""

    def __init__(self) -> None:
        self.kernels: dict[MatrixNode, dict[Cpu, Kernels]] = {}
        self.dtypes: dict[MatrixNode, list[str]] = {}
        self.nodes: dict[MatrixNode, int] = {}

    def add(self, dtype: str, cpu: Cpu, found: Sequence[tuple[MatrixNode, Kernels]]) -> None:
        for kind, kernels in found:
            earlier = self.kernels.setdefault(kind, {}).setdefault(cpu, kernels)
            if earlier != kernels:
                raise TableError(
                    f"a {kind.words()} ran {kernels or 'no kernel'} on {cpu}, another one {earlier}: {kind}"
                )
            dtypes = self.dtypes.setdefault(kind, [])
            dtypes += [] if dtype in dtypes else [dtype]
            self.nodes[kind] = self.nodes.get(kind, 0) + (cpu == "sme2")

    def rows(self) -> list[KnownKernels]:
        found = ((kind, {cpu: list(ran[cpu]) for cpu in CPUS}) for kind, ran in sorted(self.kernels.items()))
        return [KnownKernels(kind, **ran, dtypes=self.dtypes[kind], nodes=self.nodes[kind]) for kind, ran in found]


def make_table(
    work: Path, platform: Platform, executorch: Sequence[str], on_progress: OnProgress, on_note: OnNote
) -> KernelTable:
    """Export the programs, run them on each emulated CPU, and return what ran, whatever they compute; `executorch` may
    name another."""
    seen, version = _Seen(), ""
    for dtype, program in _programs():
        target = f"{_PROGRAMS}:{program}"
        request = ExportRequest(program.lower(), work / "artifacts", dtype, target=target, verify=False)
        pte = from_target(on_progress, force=False)(request, f"export {program.lower()} in {dtype}").paths.pte
        asked = kernels_request(pte, platform, None, work / f"{program.lower()}-{dtype}")
        run = measure(dataclasses.replace(asked, executorch=executorch), platform, on_progress, on_note).run
        for cpu, name in zip(reversed(CPUS), run.manifest.experiments, strict=True):
            seen.add(dtype, cpu, list(_ran(run, name, pte)))
            version = run.manifest.experiments[name].runner.executorch_name
    return KernelTable(version, str(run.manifest.environment.get("cpu", "")), seen.rows())


def _programs() -> Iterator[tuple[str, str]]:
    for dtype in EXPORTED:
        for program in ("Everything",) if dtype in LINEAR_ONLY else ("Convolutions", "Products"):
            yield dtype.name, program


def _ran(run: Run, experiment: str, pte: Path) -> Iterator[tuple[MatrixNode, Kernels]]:
    """Yield every matrix node of a program with the kernels that were traced for it."""
    analysed = run.summary.experiments[experiment]
    covered = analysed.coverage
    if covered is None or covered.unknown:
        raise InputError(
            f"the kernels of {experiment} were not traced: {covered.unknown if covered else 'no trace'}",
            "See sme2-kit doctor.",
        )
    nodes = aligned_nodes(analysed.breakdown.instances, pte)
    eligible = [row for row, entry in enumerate(analysed.breakdown.instances) if entry.category in ELIGIBLE]
    for row, operator in zip(eligible, covered.operators, strict=True):
        kind = node_kind(nodes[row]) if row in nodes else None
        if kind is not None:
            yield kind, tuple(sorted(x.kernel for x in operator.kernels if x.kernel.startswith(MATRIX_KERNEL)))
