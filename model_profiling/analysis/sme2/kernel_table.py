"""The table of known kernels: from what a node in the .pte is to the kernels that Arm CPUs run for it.

XNNPACK chooses by the kind of node, its types, its weights, whether it looks at each position alone, and whether there
is one row or several; so `sme2-kit kernels --make-table` runs programs that have every such node under an emulator and
writes down what ran, for one version of ExecuTorch. A node that no program had is unknown, never without a kernel.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from model_profiling.analysis.graph.operator_work import matrix_product
from model_profiling.base import files
from model_profiling.base.directories import cache_directory
from model_profiling.base.dtypes import NAMES, OF_ACTIVATIONS
from model_profiling.base.errors import InputError

if TYPE_CHECKING:
    from model_profiling.formats.pte.xnnpack_graph import XnnpackNode

SCHEMA = 1
_SHIPPED = Path(__file__).parents[2] / "kernel_tables"
MAKE = "sme2-kit kernels --make-table"
# The CPUs of the table, as `sme2-kit kernels --level` calls them.
Cpu = Literal["sme2", "sme1", "neon"]
CPUS: tuple[Cpu, ...] = ("sme2", "sme1", "neon")
_WORDS = {
    "Conv2d": "convolution",
    "DepthwiseConv2d": "depthwise convolution",
    "ConvTranspose2d": "transposed convolution",
    "FullyConnected": "fully connected layer",
    "BatchMatrixMultiply": "batch matrix multiplication",
}


class MatrixNode(msgspec.Struct, frozen=True, order=True):
    """All of a node that XNNPACK chooses a kernel by. `weights` are what its second side is stored as."""

    op: str
    activations: str
    weights: str
    result: str
    form: Literal["", "pointwise", "window", "grouped"]
    rows: Literal["one", "several"]

    def words(self, one_channel: bool = False) -> str:
        """Return `1x1 convolution in fp16`. A convolution of one channel is handed to XNNPACK as a depthwise one."""
        if one_channel and self.op == "DepthwiseConv2d":
            return msgspec.structs.replace(self, op="Conv2d").words() + " of one input channel"
        dtype = OF_ACTIVATIONS.get(self.activations)
        form = {"pointwise": "1x1 ", "grouped": "grouped "}.get(self.form, "")
        how = " with activations quantized as it runs" if self.activations in ("qdint8", "qpint8") else ""
        return f"{form}{_WORDS[self.op]} in {dtype.computes_as or dtype.name if dtype else self.activations}{how}"


class KnownKernels(msgspec.Struct, frozen=True):
    """KleidiAI's matrix kernels that each CPU calls for one kind of node; none: XNNPACK's own, which use no SME.

    `dtypes` are the exports in which it was seen, `nodes` is how many were seen, all alike.
    """

    node: MatrixNode
    sme2: list[str]
    sme1: list[str]
    neon: list[str]
    dtypes: list[str]
    nodes: int

    @property
    def on_sme2(self) -> bool:
        return any("_sme2_" in kernel for kernel in self.sme2)

    def kernels(self, cpu: Cpu) -> list[str]:
        found: list[str] = getattr(self, cpu)
        return found


class Unused(msgspec.Struct, frozen=True):
    """Why XNNPACK of an ExecuTorch uses no SME2 kernel for some kinds of node: all that have these; '' is any."""

    why: str
    op: str = ""
    activations: str = ""
    weights: str = ""
    form: str = ""

    def fits(self, kind: MatrixNode) -> bool:
        """Return whether a kind of node is one of them."""
        facts = ("op", "activations", "weights", "form")
        return all(getattr(self, fact) in ("", getattr(kind, fact)) for fact in facts)


class KernelTable(msgspec.Struct, frozen=True, dict=True, tag="kernel_table", tag_field="kind"):
    """What is known of one version of ExecuTorch, whose name is `executorch`; `emulator` is what it was seen in."""

    executorch: str
    emulator: str
    rows: list[KnownKernels]
    schema: int = SCHEMA
    unused: list[Unused] = []

    @functools.cached_property
    def _by_node(self) -> dict[MatrixNode, KnownKernels]:
        return {row.node: row for row in self.rows}

    def why_unused(self, kind: MatrixNode) -> str:
        """Return what is known of why XNNPACK uses no SME2 kernel for a kind of node; '' if nothing is."""
        return next((entry.why for entry in self.unused if entry.fits(kind)), "")

    def find(self, kind: MatrixNode) -> KnownKernels | None:
        """Return what is known of a kind of node; None if no program of the table had one."""
        return self._by_node.get(kind)

    def dtypes_with_sme2(self, kind: MatrixNode) -> list[str]:
        """Return the dtypes of an export in which the same layer has an SME2 kernel."""
        alike = [row for row in self.rows if (row.node.op, row.node.form) == (kind.op, kind.form)]
        found = {dtype for row in alike if row.on_sme2 for dtype in row.dtypes}
        # A dtype may leave some such layers as they are.
        return [name for name in NAMES if name in found and name not in self._by_node[kind].dtypes]


class TableDifference(msgspec.Struct, frozen=True):
    """An operator of which the table does not say what was traced: it names another kernel (`differs`), and is then
    wrong; or it has no such node, or no answer for this ExecuTorch (`unknown`, and `why`)."""

    operator: str
    instruction: int
    traced: str
    table: str
    state: Literal["differs", "unknown"]
    why: str


def node_kind(node: "XnnpackNode") -> MatrixNode | None:
    """Return what of a node decides its kernel; None if it multiplies no matrices."""
    product = matrix_product(node)
    if node.op not in _WORDS or product is None:
        return None
    form: Literal["", "pointwise", "window", "grouped"] = ""
    if node.op in ("Conv2d", "ConvTranspose2d"):
        form = "pointwise" if node.pointwise else "grouped" if node.groups > 1 else "window"
    source, other = node.inputs[:2]
    weights = other.dtype if other.constant else f"computed {other.dtype}"
    rows: Literal["one", "several"] = "one" if product.m == 1 else "several"
    return MatrixNode(node.op, source.dtype, weights, node.outputs[0].dtype, form, rows)


def table_path(executorch: str) -> Path:
    """Return where a table that a user made is kept."""
    return cache_directory() / "kernel_tables" / f"{executorch}.json"


def known_table(executorch: str) -> KernelTable | None:
    """Return the table of an ExecuTorch: the user's own, else the one of the kit; None if there is none."""
    own = user_table_identity(executorch)
    path = table_path(executorch) if own else _SHIPPED / f"{executorch}.json"
    return _read_table(path, executorch, own) if _is_name(executorch) and files.is_file(path) else None


def user_table_identity(executorch: str) -> str:
    """Return another text for each table that the user made of an ExecuTorch; '' if there is none."""
    return files.identity(table_path(executorch)) if _is_name(executorch) else ""


def _is_name(executorch: str) -> bool:
    return bool(executorch) and executorch == Path(executorch).name


@functools.lru_cache(maxsize=8)
def _read_table(path: Path, executorch: str, identity: str) -> KernelTable:
    table = files.read_json(path, KernelTable, "kernel table")
    if table.executorch != executorch:
        raise InputError(f"{path} is of ExecuTorch {table.executorch}", f"Make it again: {MAKE}")
    return table


def shipped_tables() -> Sequence[str]:
    """Return the versions of ExecuTorch whose tables come with the kit."""
    return sorted(path.stem for path in _SHIPPED.glob("*.json"))


def why_no_table(executorch: str) -> str:
    """Return why nothing is known of an ExecuTorch, and what makes it known."""
    if not executorch:
        return "the run does not say which ExecuTorch it used (a runner of your own)"
    shipped = " and ".join(shipped_tables())
    return f"no table of kernels is known of ExecuTorch {executorch} (there is one of {shipped}); {MAKE} makes it"
