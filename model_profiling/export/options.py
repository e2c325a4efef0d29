"""The table of export options: a new one is a field of `ExportOptions` and a line for type checkers below it.

Flags, API keywords, tool parameters, the cache key, the record and the printed commands derive from `OPTIONS`. Imports
nothing heavy, so that the command line can list it at once.
"""

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from model_profiling.base import dtypes
from model_profiling.base.dtypes import CALIBRATED, DEFAULT_DTYPE, dtype_of, linear_only_words, why_refused
from model_profiling.base.errors import InputError
from model_profiling.base.rewrites import NO_REWRITE, REWRITE_CHOICES, REWRITE_HELP

Verb = Literal["export", "profile", "numerics", "tune", "check"]
_EXPORTING: tuple[Verb, ...] = ("export", "profile", "numerics")
_LOWERING: tuple[Verb, ...] = (*_EXPORTING, "check")
_ALL: tuple[Verb, ...] = (*_LOWERING, "tune")
_LAYOUTS = ("contiguous", "channels_last")


@dataclass(frozen=True, eq=False)
class Option:
    """A row of the table. `name`, `kind` and `default` are those of the field that it annotates."""

    help: str
    # The commands, API functions and tools that have it.
    verbs: tuple[Verb, ...] = _EXPORTING
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    # '' for the field's name with dashes: `--keep-fp32`; of a switch that is on unless asked otherwise: `--no-verify`.
    flag: str = ""
    # Of single verbs.
    helps: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Raises InputError if the value, which is not the default, does not go with the rest.
    check: Callable[[Any], None] = lambda asked: None
    # Whether it decides what comes of an export: then it enters the cache key, the record and the printed command.
    decides: bool = True
    # Where records hold it: a field of ExportRecord ("export") or of RequestRecord, or its `options`.
    recorded: Literal["export", "request", "options"] = "options"
    # Whether the history keeps apart what was exported with other values; dtype has a column of its own.
    tells_apart: bool = True
    name: str = ""
    kind: type = str
    repeated: bool = False
    default: Any = None

    @property
    def title(self) -> str:
        """What messages call it: `memory format`."""
        return self.flag.removeprefix("--").removeprefix("no-").replace("-", " ")

    def help_of(self, verb: Verb) -> str:
        return self.helps.get(verb, self.help)

    def read(self, value: Any) -> Any:
        """Return the value as a request holds it, whoever gives it: a list, a text that is a path."""
        if self.repeated:
            return tuple(sorted(set(value)))
        return value if self.kind is not Path else Path(value) if value else None

    @property
    def plain_kind(self) -> Any:
        """The type of a value in JSON."""
        return list[str] if self.repeated else str if self.kind is Path else self.kind

    def plain(self, value: Any) -> Any:
        """Return the value as JSON holds it; `read` reads it again."""
        return list(value) if self.repeated else str(value or "") if self.kind is Path else value

    def words(self, value: Any) -> list[str]:
        """Return the words of a command that ask for `value`."""
        if self.kind is bool:
            return [self.flag] if value is not self.default else []
        return [word for each in (value if self.repeated else [value]) for word in (self.flag, str(each))]


def _not_in_fp32(asked: "ExportOptions") -> None:
    if not dtype_of(asked.dtype).converts:
        raise InputError("all layers are in fp32 already", "Give --keep-fp32 together with another --dtype.")


def _calibrated_from_a_folder(asked: "ExportOptions") -> None:
    if not dtype_of(asked.dtype).calibrated:
        hint = f"Give --calibration together with --dtype {' or '.join(CALIBRATED)}."
        raise InputError(f"{asked.dtype} is not calibrated", hint)
    if asked.calibration is not None and not asked.calibration.is_dir():
        raise InputError(f"there is no folder {asked.calibration} to calibrate with", "Give a folder of .npy files.")


@dataclass(frozen=True)
class ExportOptions:
    """Which model is exported, where to, and every option of it, in the order of printed commands."""

    model: str
    outdir: Path
    dtype: Annotated[
        str,
        Option(
            f"data type to export in; {linear_only_words()}, as language models do",
            _ALL,
            dtypes.NAMES,
            helps={"tune": "data type of the baseline; others are tried"},
            recorded="export",
            tells_apart=False,
        ),
    ] = DEFAULT_DTYPE
    # Changes to the graph that keep its meaning (see rewrites/).
    rewrites: Annotated[
        tuple[str, ...],
        Option(
            REWRITE_HELP,
            _ALL,
            REWRITE_CHOICES,
            flag="--rewrite",
            helps={"tune": "also try this one, whatever the advice says"},
            recorded="request",
        ),
    ] = ()
    keep_fp32: Annotated[
        tuple[str, ...],
        Option(
            "leave a layer out of fp16 or quantization: a module's path (features.3, blocks.*.norm) or an operator's "
            "name, as `numerics` lists them",
            metavar="LAYER",
            check=_not_in_fp32,
            recorded="export",
        ),
    ] = ()
    calibration: Annotated[
        Path | None,
        Option(
            "samples that set the ranges of int8: .npy files, or for several inputs a folder per sample with "
            "input_0.npy and so on (default: the example inputs with noise)",
            (*_EXPORTING, "tune"),
            metavar="DIR",
            check=_calibrated_from_a_folder,
            recorded="request",
        ),
    ] = None
    seed: Annotated[
        int, Option("seed of random weights and inputs", _ALL, metavar="N", recorded="export", tells_apart=False)
    ] = 0
    backend: Annotated[
        str,
        Option(
            "where operators go; portable: all to ExecuTorch's reference kernels, which are slow",
            choices=("xnnpack", "portable"),
            recorded="export",
        ),
    ] = "xnnpack"
    memory_format: Annotated[
        str, Option("layout of the 4-D inputs; the layers follow it", choices=_LAYOUTS, recorded="export")
    ] = "contiguous"
    # See io_layout.py.
    io_layout: Annotated[
        str,
        Option(
            "layout of 4-D inputs and outputs; channels_last: wherever it saves a transpose, only for callers that can "
            "feed and read it; the export tells which",
            _LOWERING,
            _LAYOUTS,
            recorded="export",
        ),
    ] = "contiguous"
    delegation: Annotated[
        str,
        Option(
            "what becomes a delegate; per-op: each operator its own, to see what fusing gains",
            choices=("whole", "per-op"),
            recorded="request",
        ),
    ] = "whole"
    # As a failed export names them (see check/diagnosis.py).
    leave_out: Annotated[
        tuple[str, ...],
        Option("keep an operator out of delegates: aten._softmax.default, or one node of it", metavar="OPERATOR"),
    ] = ()
    allow_wrong: Annotated[bool, Option("go on with a program whose outputs are wrong", decides=False)] = False
    save_graph: Annotated[bool, Option("also write graph.json, the lowered graph", ("export",), decides=False)] = False
    # See verification.py.
    verify: Annotated[
        bool, Option("execute the program once with the kit's runner before it is written", ("export",), decides=False)
    ] = True

    def __post_init__(self) -> None:
        for row in OPTIONS:
            object.__setattr__(self, row.name, row.read(getattr(self, row.name)))

    def check(self) -> None:
        """Refuse what no export can do; the command line's own choices are the same."""
        for row in OPTIONS:
            value = getattr(self, row.name)
            for each in value if row.repeated else (value,):
                if row.choices and each not in row.choices:
                    hint = f"Use one of {', '.join(row.choices)}.{why_refused(str(each))}"
                    raise InputError(f"there is no {row.title} {each!r}", hint)
            if value != row.default:
                row.check(self)

    def recorded(self, where: Literal["export", "request", "options"]) -> dict[str, Any]:
        """Return the options that a part of the record holds, as JSON holds them."""
        return {row.name: row.plain(getattr(self, row.name)) for row in DECIDING if row.recorded == where}


class ModelKeywords(TypedDict, total=False):
    """What every function takes that loads a model (see models/options.py), for type checkers."""

    input_shapes: Sequence[Sequence[int] | str]
    settings: Mapping[str, Any] | None
    checkpoint: str | Path | None


# A test holds these against the table.
class TuneKeywords(ModelKeywords, total=False):
    dtype: str
    rewrites: Sequence[str]
    calibration: str | Path | None
    seed: int


class ProfileKeywords(TuneKeywords, total=False):
    keep_fp32: Sequence[str]
    backend: str
    memory_format: str
    io_layout: str
    delegation: str
    leave_out: Sequence[str]
    allow_wrong: bool


class ExportKeywords(ProfileKeywords, total=False):
    save_graph: bool
    verify: bool


def _rows() -> Iterator[Option]:
    hints = typing.get_type_hints(ExportOptions, include_extras=True)
    for each in dataclasses.fields(ExportOptions):
        if typing.get_origin(hints[each.name]) is Annotated:
            declared, row = typing.get_args(hints[each.name])
            kind, *_ = typing.get_args(declared) or (declared,)
            repeated = typing.get_origin(declared) is tuple
            flag = f"--{'no-' if each.default is True else ''}{each.name.replace('_', '-')}"
            found = {"name": each.name, "kind": kind, "repeated": repeated, "default": each.default}
            yield dataclasses.replace(row, flag=row.flag or flag, **found)


OPTIONS = tuple(_rows())
# Those that decide what comes of an export.
DECIDING = tuple(row for row in OPTIONS if row.decides)


def options_of(verb: Verb) -> list[Option]:
    return [row for row in OPTIONS if verb in row.verbs]


def settled(verb: Verb, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of a verb: those that were given, else its defaults. None stands for the default."""
    defaults = {row.name: row.default for row in options_of(verb)}
    found = defaults | {name: value for name, value in given.items() if value is not None}
    return found | {"rewrites": tuple(name for name in found["rewrites"] if name != NO_REWRITE)}


def expanded(function: Callable[..., Any], parameters: Iterable[inspect.Parameter]) -> inspect.Signature:
    """Return the signature of a function with its `**options` spelled out, before its other keyword parameters."""
    signature = inspect.signature(function)
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    by_place = [each for each in own if each.kind is not each.KEYWORD_ONLY]
    return signature.replace(parameters=[*by_place, *parameters, *(each for each in own if each not in by_place)])
