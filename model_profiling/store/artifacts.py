"""The one place that names what the kit leaves on disk, the shape of what export hands to the pipeline, and what a
folder holds that was given in the place of a run, a program or a model."""

import itertools
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from model_profiling.base.errors import InputError
from model_profiling.base.units import counted
from model_profiling.formats.graph_terms import base_name

EXPORT_META = "export_meta.json"
GRAPH = "graph.json"
MANIFEST = "manifest.json"
METRICS = "metrics.json"
ANALYSIS_SUMMARY = "analysis_summary.json"
DERIVED = "derived.json"
# The user's category table, as the run was last analysed with.
CATEGORIES = "categories.json"
# The roofs of the CPU that the run was last held against.
ROOFS = "roofs.json"
# The forecast held against what a machine measured, to be shared, and its page.
FORECAST_VALIDATION = "forecast_validation.json"
VALIDATION_PAGE = "forecast_validation.html"
REPORT = "report.md"
REPORT_PAGE = "report.html"
TRACE = "trace.json"
GRAPH_PAGE = "graph.html"
# For Google's Model Explorer: where it is, and how the names of graphs and of what to lay over them end.
MODEL_EXPLORER = "model_explorer"
EXPLORER_GRAPH = "_graph.json"
OVERLAY = "_overlay.json"
# Of runs with several numbers of threads: latency, and the times of operators, by number of threads.
THREADS = "threads.csv"
OPERATOR_THREADS = "operator_threads.csv"
KERNELS = "kernels.json"
# The end of the name of the file in which a trace run leaves its kernel calls.
KERNEL_TRACE = "_kernel_trace.txt"
KERNEL_VIEW = "kernel_view.md"
# The end of the name of the file beside a .pte that tells where it loses accuracy.
NUMERICS = "_numerics.json"
# The same in the directory of a run of that .pte.
RUN_NUMERICS = "numerics.json"
# The same model in other runtimes, in the directory of a run.
RUNTIMES = "runtimes.json"
# The same model with `--rewrite auto`, measured beside the program of a run, in its directory.
AUTO_COMPARISON = "auto_comparison.json"
# Where in a run directory a failed run leaves its log, if there was a good one before.
FAILED = "failed"
# Where in a run directory earlier runs lie, each under its label; and what interrupted runs have measured.
EARLIER = "earlier"
PARTIAL = ".partial"
# Where in a run directory the programs lie that its runs measured, each once, under the start of its hash; and how
# records of two of them measured side by side are called there.
PROGRAMS = "programs"
COMPARED = "compared_"

# A signal-to-noise ratio; no two sets of numbers that a computer holds are further apart.
Decibel = Annotated[float, msgspec.Meta(ge=-3000, le=10_000)]

# How the warning of an export begins whose operators the kit's runner does not have.
CANNOT_RUN = "the kit's runner cannot run this program"

# The dimensions of an NCHW tensor from outer to inner where its channels are the innermost.
CHANNELS_LAST = (0, 2, 3, 1)


class TensorFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tensor of the model's signature and the .npy (path relative to the .pte) that holds its sample, in C order.

    `dim_order` are its dimensions from outer to inner as the program takes or gives it: [0, 2, 3, 1] for channels-last.
    """

    shape: list[int]
    dtype: str
    file: str
    dim_order: list[int]
    # Of an output in a dict or a dataclass.
    name: str = ""

    @property
    def layout(self) -> Literal["contiguous", "channels_last", "other", ""]:
        """The name of the dim order; '' if it is not one of the shape."""
        if self.dim_order == list(CHANNELS_LAST):
            return "channels_last"
        if len(self.dim_order) != len(self.shape):
            return ""
        return "contiguous" if self.dim_order == sorted(self.dim_order) else "other"


class UndelegatedOperator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operator that stayed outside every delegate, how often, why as far as we can tell, and where in the model."""

    op: str
    count: int
    reason: str
    # `path:line`, each once, in the order of the graph.
    sources: list[str] = []


class Delegation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    delegated_nodes: int
    portable_nodes: int
    delegate_calls: int
    not_delegated: list[UndelegatedOperator]

    def why_not(self, operator: str) -> str:
        """Return why an operator of this name stayed outside every delegate; empty if the export does not say.

        Where operators of one name stayed outside for several reasons, nothing tells which is which: all are given.
        """
        left = [entry.reason for entry in self.not_delegated if base_name(entry.op) == base_name(operator)]
        return "; or ".join(dict.fromkeys(left))


class DtypeCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a dtype alone costs: eager PyTorch in that dtype, quantization simulated, against eager PyTorch in fp32."""

    max_abs_error: float
    cosine: float
    # None: no error at all.
    sqnr_db: Decibel | None
    # Of each of several outputs, None where it gives NaN or infinity; the numbers above are of the worst.
    outputs: "list[DtypeCost | None]" = []


class RequestRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was asked of an export beyond what its record says, as it was asked; paths are relative to `directory`."""

    origin: Literal["registry", "file", "memory"]
    # A registered name, `path/to/file.py:Class`, or what the class of a module in memory is called.
    target: str
    directory: str
    outdir: str
    settings: dict[str, Any] = {}
    shapes: list[list[int]] = []
    checkpoint: str = ""
    rewrites: list[str] = []
    delegation: str = "whole"
    # Random inputs as `--input` takes them, instead of `shapes`: one of them is not of float32 or has a range.
    inputs: list[str] = []
    calibration: str = ""
    # Options that have no field of their own (see export/options.py), by name.
    options: dict[str, Any] = {}
    # What was typed for it in `directory`, less where its files go; '' if nobody can type it: a model in memory.
    command: str = ""


class CalibrationRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The samples that set the ranges of an int8 program; `sha256` is over all of them."""

    directory: str
    batches: int
    sha256: str


class SequenceRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens to feed to a language model, and what it answers; paths are relative to the .pte.

    `tokens` is int64 [n]. `logits` maps the index of a token, as text, to what eager PyTorch in fp32 answers there (one
    value for each entry of the vocabulary) when it is fed all tokens up to it from a fresh start.
    """

    tokens: str
    logits: dict[str, str]


class Verification(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether an exported program was executed once with the kit's runner, and its outputs compared with eager's.

    `reason` says why it was not executed or, of a verified one, why its outputs were not compared. Numbers are of the
    worst output, which `output` names of several; None: exact, or not compared.
    """

    status: Literal["verified", "not verified"]
    reason: str = ""
    # Which runner: `linux-aarch64`.
    runner: str = ""
    verdict: Literal["agrees", "differs", ""] = ""
    sqnr_db: Decibel | None = None
    max_abs_error: float | None = None
    max_abs_reference: float | None = None
    # A hash of ExecuTorch's libraries that executed it; '' where that was not recorded.
    libraries: str = ""
    output: str = ""
    # The outputs, by number, in which eager differs from itself.
    not_compared: list[int] = []
    # Whether it computes something else than the model, and not only worse.
    wrong: bool = False

    def __str__(self) -> str:
        """`yes, executed once on linux-aarch64, SQNR 52.1 dB against eager`, or `no, with the reason`."""
        if self.status == "not verified":
            return f"no ({self.reason})"
        compared = {"agrees": "agrees with", "differs": "differs from", "": ""}[self.verdict]
        if not compared:
            return f"executed once on {self.runner}; not tested: {self.reason}"
        known = self.sqnr_db is not None or self.max_abs_error
        number = "exact" if not known else f"SQNR {self.sqnr_db:.1f} dB" if self.sqnr_db is not None else ""
        if not number:
            number = f"max error {self.max_abs_error:.3g} of {self.max_abs_reference or 0.0:.3g}"
        place = f", {self.output}" if self.output and self.verdict == "differs" else ""
        return f"executed once on {self.runner}, {compared} eager ({number}{place})"


class StepChange(msgspec.Struct, frozen=True, order=True):
    """Operators of one kind and shape, of which another export of the model has `count` more (below 0: fewer).

    Tensors are written `fp32 1x3x8x8`, constants with `=` before it. `operator call` and `delegate call` are calls.
    """

    op: str
    delegated: bool = False
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    permutation: tuple[int, ...] = ()
    count: int = 0


class RewriteChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `--rewrite auto` made of one rewrite that finds something, and why.

    `change` is the predicted time of the program with it, as a share of the time without; None if nobody can say.
    """

    name: str
    applied: bool
    reason: str
    change: float | None = None


class ExportRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that is known of one exported .pte. `files` maps names beside the .pte to their SHA-256.

    `reference` says which model computed the expected outputs; `warnings` what the user should know of them.
    """

    model: str
    source: str
    dtype: str
    backend: str
    memory_format: str
    seed: int
    weights: str
    inputs: list[TensorFile]
    outputs: list[TensorFile]
    delegation: Delegation
    versions: dict[str, str]
    files: dict[str, str]
    stage_seconds: dict[str, float]
    created: str
    request: RequestRecord
    reference: str = ""
    warnings: list[str] = []
    # None for fp32, and where the model of that dtype gives no finite numbers.
    dtype_cost: DtypeCost | None = None
    # What `--rewrite` would still change in this graph: for each rewrite the lines of the model (`path:line`), one per
    # place, '' where the line is not known. None: the export did not look.
    rewrites: dict[str, list[str]] | None = None
    # What earlier versions recorded of rewrites that nobody asked for; no longer written or read.
    candidates: dict[str, list[StepChange]] = {}
    # What `--rewrite auto` chose, of the rewrites that find something; `request.rewrites` is what it became.
    auto: list[RewriteChoice] = []
    # What was asked for; the `dim_order` of each input and output says what it got.
    io_layout: str = "contiguous"
    # None: not a language model.
    sequence: SequenceRecord | None = None
    # Layers that stayed in fp32, as they were named.
    keep_fp32: list[str] = []
    # None: not int8, or calibrated on the example inputs with noise.
    calibration: CalibrationRecord | None = None
    # None: not executed after the export (--no-verify).
    verification: Verification | None = None
    # What is wrong with the program that was asked for, and the options that this one was exported with instead.
    remedy: str = ""
    # How it was lowered: `faster`, or `stock: ` and why in ExecuTorch's own way, which gives the same program; '' if an
    # earlier version of the kit exported it.
    lowering: str = ""

    @property
    def wrong(self) -> bool:
        """Whether its outputs are not those of the model: it was kept all the same (--allow-wrong)."""
        return self.verification is not None and self.verification.wrong

    @property
    def output_names(self) -> list[str]:
        return [tensor.name for tensor in self.outputs]

    @property
    def channels_last(self) -> list[str]:
        """The inputs and outputs whose channels are the innermost dimension: `input 0`, `output 1`."""
        sides = (("input", self.inputs), ("output", self.outputs))
        return [f"{side} {i}" for side, tensors in sides for i, t in enumerate(tensors) if t.layout == "channels_last"]


class ExportMeta(msgspec.Struct, forbid_unknown_fields=True, tag="export_meta", tag_field="kind"):
    """export_meta.json: one record per .pte of the directory, by its stem."""

    schema: int = 1
    exports: dict[str, ExportRecord] = {}


class ExportPaths:
    """Where one export's files lie: everything beside the .pte and named after it."""

    def __init__(self, pte: Path) -> None:
        self.pte = pte
        self.stem = pte.name.removesuffix(".pte")
        self.directory = pte.parent
        self.etrecord = pte.with_name(f"{pte.name}.etrecord")
        self.meta = pte.with_name(EXPORT_META)
        self.graph = pte.with_name(GRAPH)
        self.inputs = pte.with_name(f"{self.stem}_inputs")
        self.expected = pte.with_name(f"{self.stem}_expected")
        # A script that shows what is wrong with the program, if something is.
        self.reproduction = pte.with_name(f"{self.stem}_reproduce.py")
        self.numerics = pte.with_name(f"{self.stem}{NUMERICS}")
        self.metric = pte.with_name(f"{self.stem}_metric.json")
        # The same model for ONNX Runtime, if that was asked for; and what it was made from.
        self.onnx = pte.with_name(f"{self.stem}.onnx")
        self.onnx_stamp = pte.with_name(f".{self.stem}.onnx.json")

    @classmethod
    def for_export(cls, outdir: Path, model: str, backend: str, dtype: str) -> "ExportPaths":
        return cls(outdir / f"{model}_{backend}_{dtype}.pte")


RUN, PROGRAM, MODEL = "a run directory", "a .pte", "a model"
# How deep and how many files to look through, and how many to name.
_DEEPEST, _MOST_FILES, _MOST_NAMED = 4, 5000, 5
_SHOWN = {RUN: "sme2-kit analyze {}", PROGRAM: "sme2-kit run {}", MODEL: "sme2-kit profile {}:ClassName"}
_CALLED = {RUN: "run", PROGRAM: "exported program", MODEL: "Python file"}


def wrong_folder(path: Path, wanted: str) -> InputError:
    """Return the error of a folder that is not what is `wanted`: what it holds instead, and what to do with that."""
    if wanted == RUN and any((path / PARTIAL).glob("*/run.json")):
        return InputError(
            f"the run in {path} was interrupted before it was complete",
            "Start it again with the same command: it resumes.",
        )
    held = _held(path)
    for kind in (wanted, *(kind for kind in (RUN, PROGRAM, MODEL) if kind != wanted)):
        found = held[kind]
        if found:
            more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
            named = f"{', '.join(str(each) for each in found[:_MOST_NAMED])}{more}"
            # The commonest next step; the user's own command takes the same path if it is what was wanted.
            then = _SHOWN[kind].format(shlex.quote(str(found[0])))
            what = f"it holds {counted(len(found), _CALLED[kind])}"
            return InputError(f"{path} is a folder and not {wanted}: {what}: {named}", f"Name one, for example: {then}")
    return InputError(
        f"{path} is a folder and not {wanted}: it holds no run, no .pte and no Python file",
        "Check the path; `sme2-kit profile MODEL` prints where its run is.",
    )


def _held(path: Path) -> dict[str, list[Path]]:
    held: dict[str, list[Path]] = {RUN: [], PROGRAM: [], MODEL: []}
    for each in itertools.islice(_files(path), _MOST_FILES):
        if each.name == MANIFEST:
            held[RUN].append(each.parent)
        elif each.suffix in (".pte", ".py"):
            held[PROGRAM if each.suffix == ".pte" else MODEL].append(each)
    return {kind: sorted(found) for kind, found in held.items()}


def _files(path: Path) -> Iterator[Path]:
    """Yield the files of a folder and of those in it; not what is hidden, nor what a run keeps."""
    for place, folders, names in os.walk(path):
        here = Path(place)
        deep = len(here.relative_to(path).parts) >= _DEEPEST
        folders[:] = [] if deep else sorted(n for n in folders if n not in (EARLIER, PROGRAMS) and n[0] not in "._")
        yield from (here / name for name in names)
