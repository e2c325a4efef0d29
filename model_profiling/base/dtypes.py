"""The table of dtypes: everything that depends on which one it is. All lists of them derive from it.

XNNPACK's types (`qdint8`), torch's (`float16`) and the types that operators compute in are other vocabularies; how they
map to the kit's dtypes stands here. Rows are named tuples because an analysis imports them: dataclasses load slowly.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

UNKNOWN = "unknown"


class Limit(NamedTuple):
    """The largest error, as a part of the largest reference value, and the least signal to noise in decibel."""

    error: float
    sqnr_db: float


class Tolerance(NamedTuple):
    """How much more a right program may be off than eager PyTorch of its dtype: times the error, decibel of noise."""

    error: float
    noise_db: float


class DtypeNumerics(NamedTuple):
    """What outputs may lose before it is worth a word; the defaults are for a dtype of which nothing is known."""

    # Below this the dtype does something to the outputs that a user of an export should hear of; None: it converts
    # nothing.
    least_sqnr_db: float | None = None
    # One layer alone may not take the outputs below the floor: then something is wrong with it, whatever the others
    # do. Below the concern it is worth naming a layer that causes most of what is lost.
    floor_db: float = 8.0
    concern_db: float = 12.0
    # What summing in another order or rounding after each layer does, whatever the model; None: only the cost that an
    # export measured says what the dtype does.
    rounding: Limit | None = None
    room: Tolerance = Tolerance(3.0, 6.0)


# Per architecture, the features whose absence shows best what acceleration does; the first that the CPU has is its
# default. Where nothing else is known, those that touch most kernels.
Accelerators = Mapping[str, tuple[str, ...]]
_MOST_KERNELS: Accelerators = {"aarch64": ("sme2", "sme", "i8mm", "dot"), "x86_64": ("avx512f", "avx2")}


class Dtype(NamedTuple):
    """One dtype that programs are in.

    `quantized` is how: "graph" a captured graph, "weights" the model's own layers. `calibrated` are those whose ranges
    samples set; the others measure activations while the model runs, and quantize linear layers only.
    """

    name: str
    weight_bits: int = 0
    # Of one value that weights are multiplied with.
    element_bytes: int = 0
    # The dtype whose rates and roofs count for it.
    computes_as: str = ""
    # One word more than the name, for help texts.
    about: str = ""
    exportable: bool = True
    # Why the kit exports no program in it, for those who ask for it.
    refused: str = ""
    quantized: Literal["", "graph", "weights"] = ""
    calibrated: bool = False
    # torch's type of its floating-point tensors, and how it calls the values in integers.
    floats: str = "float32"
    integers: tuple[str, ...] = ()
    # The largest value that its floating-point tensors hold; None: no model reaches it.
    largest: int | None = None
    # XNNPACK's types of activations, and of weights where those tell more.
    activations: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    accelerators: Accelerators = _MOST_KERNELS
    numerics: DtypeNumerics = DtypeNumerics()
    # When `tune` tries it on a model in fp32: where convolutions and products take long, or where products of linear
    # layers take longest; and the CPU features of which it wants one.
    tuned: Literal["", "products", "linear"] = ""
    wants: frozenset[str] = frozenset()

    @property
    def converts(self) -> bool:
        """Whether a program in it has other numbers than the model in fp32."""
        return self.name != FP32

    @property
    def halves(self) -> bool:
        """Whether all floating-point tensors of a program become smaller ones."""
        return self.floats != _TABLE[FP32].floats


FP32 = "fp32"
# What programs are exported in unless somebody says otherwise, whoever asks: commands, functions, tools and sweeps.
DEFAULT_DTYPE = "fp16"
_ROWS = (
    Dtype(
        FP32, 32, 4, "fp32", activations=("fp32", "pfp32"),
        accelerators={"aarch64": ("sme2", "sme"), "x86_64": ("avx512f", "fma3", "avx")},
        numerics=DtypeNumerics(floor_db=60.0, concern_db=90.0, rounding=Limit(1e-3, 60.0)),
    ),
    Dtype(
        "fp16", 16, 2, "fp16", floats="float16", largest=65504, activations=("fp16",),
        accelerators={"aarch64": ("sme2", "sme", "fp16arith"), "x86_64": ("avx512fp16", "avx512f", "avx2")},
        # It has more room: eager PyTorch adds up in fp32, CPUs with fp16 arithmetic in fp16 (MobileNetV3-Small keeps
        # 40.6 dB in one and 27.0 in the other).
        numerics=DtypeNumerics(
            30.0, floor_db=20.0, concern_db=30.0, rounding=Limit(5e-2, 30.0), room=Tolerance(8.0, 15.0)
        ),
        tuned="products", wants=frozenset({"fp16arith", "avx512fp16", "f16c"}),
    ),
    Dtype(
        "int8", 8, 1, "int8", quantized="graph", calibrated=True,
        integers=("int8", "uint8"), activations=("qint8", "quint8"),
        accelerators={**_MOST_KERNELS, "x86_64": ("avx512vnni", "avxvnni", "avx512f", "avx2")},
        numerics=DtypeNumerics(15.0, floor_db=15.0, concern_db=25.0), tuned="products",
    ),
    Dtype(
        "int8-dynamic", 8, 1, "int8", quantized="graph", activations=("qdint8", "qpint8"),
        numerics=DtypeNumerics(15.0), tuned="linear",
    ),
    Dtype(
        "int4", 4, 1, "int8", "a scale for each group of weights", quantized="weights", weights=("qbint4",),
        numerics=DtypeNumerics(10.0), tuned="linear",
    ),
    Dtype(
        "int4-channel", 4, 1, "int8", "one for each output channel", quantized="graph", weights=("qcint4",),
        numerics=DtypeNumerics(10.0),
    ),
    # Programs of others may be in these.
    Dtype(
        "bf16", 16, 2, exportable=False, floats="bfloat16", activations=("bf16",),
        # What ExecuTorch 1.5.1 does with enable_bf16, the opt-in of XNNPACK's partitioner: tests/export/test_bf16.py.
        refused="XNNPACK loads no program with convolutions, batch matrix products, softmax or pooling in bf16, "
        "and multiplies linear layers in fp32, without SME2; fp16 has SME2 kernels",
    ),
    Dtype("fp64", 64, 8, exportable=False, floats="float64"),
)  # fmt: skip
_TABLE = {row.name: row for row in _ROWS}
_OTHER = Dtype(UNKNOWN, exportable=False)

EXPORTED = tuple(row for row in _ROWS if row.exportable)
NAMES = tuple(row.name for row in EXPORTED)
# The floating-point ones; and those that are an arithmetic of their own, with rates and roofs.
FLOATS = tuple(row.name for row in EXPORTED if not row.quantized)
ARITHMETICS = tuple(row.name for row in EXPORTED if row.computes_as == row.name)
PRODUCT_DTYPES = tuple(row.name for row in EXPORTED if row.tuned == "products")
CALIBRATED = tuple(row.name for row in EXPORTED if row.calibrated)
LINEAR_ONLY = tuple(row for row in EXPORTED if row.quantized and not row.calibrated)
# What another vocabulary calls a dtype: XNNPACK's activations and weights, torch's floating-point and other tensors.
OF_ACTIVATIONS = {name: row for row in _ROWS for name in row.activations}
OF_WEIGHTS = {name: row for row in _ROWS for name in row.weights}
OF_TENSORS = {row.floats: row for row in _ROWS if not row.quantized}
OF_INTEGERS = {name: row for row in _ROWS for name in row.integers}


def dtype_of(name: str) -> Dtype:
    """Return the row of a dtype; of one that the table does not have, a row that says nothing of it."""
    return _TABLE.get(name, _OTHER)


# What PyTorch calls them.
_OTHER_NAMES = {"float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16", "qint8": "int8"}


def why_refused(name: str) -> str:
    """Return ` bf16 is not offered: ...` for a dtype that the kit knows and does not export, '' for all others."""
    meant = _OTHER_NAMES.get(name.removeprefix("torch."))
    if meant is not None:
        return f" It is called {meant} here: --dtype {meant}."
    reason = dtype_of(name).refused
    return f" {name} is not offered: {reason}." if reason else ""


def linear_only_words() -> str:
    """Return the sentence which dtypes quantize linear layers only, for help texts."""
    names = [f"{row.name} ({row.about})" if row.about else row.name for row in LINEAR_ONLY]
    return f"{', '.join(names[:-1])} and {names[-1]} quantize linear layers only"
