"""The sweep file: models, dtypes, rewrites, threads and targets, checked until every mistake has a name and a fix."""

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from model_profiling.base import dtypes, files
from model_profiling.base.errors import InputError
from model_profiling.base.rewrites import NO_REWRITE, REWRITE_CHOICES
from model_profiling.formats.pte import PteError
from model_profiling.models.lookup import file_target, model_name
from model_profiling.models.options import input_spec, name_suffix, settings_of
from model_profiling.pipeline.config import read_object, typed_object
from model_profiling.pipeline.config_types import MOST_LAUNCHES, MOST_THREADS, Count
from model_profiling.pipeline.pipeline import asked_dtype
from model_profiling.platforms import locks, platform_table
from model_profiling.platforms.platform_table import EXAMPLES, HERE, LOCAL, MACHINES, SWEPT, Choice, row_of
from model_profiling.runtimes.runtime_table import RUNTIMES
from model_profiling.store.artifacts import ExportPaths
from model_profiling.store.labels import checked_labels
from model_profiling.store.run_directory import Timing

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$(?!\n)"
_LONGEST_NAME = 200
_MOST_CELLS = 10_000
_HINT = "Correct that key; docs/sweeps.md lists them all, and `sme2-kit schema sweep-file` does."
_START = 'Start from {"models": ["toy_cnn"], "dtypes": ["fp32", "fp16"]}.'
if TYPE_CHECKING:
    PlatformName = str
else:
    PlatformName = Literal[SWEPT]
Name = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
Words = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
Threads = Annotated[int, msgspec.Meta(ge=1, le=MOST_THREADS)]


class SweepModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model as `sme2-kit export` takes it, or a .pte; `input`, `set` and `checkpoint` are export's flags."""

    model: Words
    # What cells call it; without one, the name that its files carry.
    name: Name | None = None
    input: list[Words] = []
    set: list[Words] = []
    checkpoint: Words | None = None


class SweepTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where to run; all but `platform` and `name` are flags of `sme2-kit run` for other machines."""

    platform: PlatformName
    # What cells call it, and a Ray cluster its resource; without one, its platform and device.
    name: Name | None = None
    device: Words | None = None
    remote_device: Words | None = None
    power_mode: Literal["boost", "app", "keep"] | None = None
    host: Words | None = None
    ssh_config: Words | None = None
    remote_dir: Words | None = None
    cool_down: Annotated[float, msgspec.Meta(ge=0, le=200)] | None = None

    @property
    def label(self) -> str:
        place = self.device or self.remote_device or self.host
        return self.name or re.sub(r"[^A-Za-z0-9_.-]", "_", f"{self.platform}-{place}" if place else self.platform)

    @property
    def timing(self) -> Timing:
        return "emulated" if row_of(self.platform).emulated else "measured"

    @property
    def is_host(self) -> bool:
        """Whether a measurement there takes this machine's CPUs."""
        return self.platform == LOCAL

    @property
    def lock(self) -> str:
        """The name of the lock of what is measured on, whatever cells call it."""
        place = self.device or self.remote_device or self.host or ""
        return locks.HOST if self.is_host else locks.target_lock(self.platform, place)

    @property
    def settings(self) -> dict[str, Any]:
        """How it is chosen, as the command line has it."""
        given = {name: getattr(self, name) for name in self.__struct_fields__ if name != "name"}
        given["platform"] = None if self.is_host else self.platform
        return {name: value for name, value in given.items() if value is not None}

    @property
    def flags(self) -> list[str]:
        """How `sme2-kit run` is told."""
        # With an equals sign: a value that begins with a dash is no flag.
        return [f"--{name.replace('_', '-')}={value}" for name, value in self.settings.items()]


class Exclusion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cells that are left out: those that all given keys match. `rewrite` is as the cell has it: layout+norm, none."""

    model: str | list[str] | None = None
    dtype: str | list[str] | None = None
    rewrite: str | list[str] | None = None
    threads: int | list[int] | None = None
    target: str | list[str] | None = None

    def matches(self, cell: "Cell") -> bool:
        found = {
            "model": cell.variant.model,
            "dtype": cell.variant.dtype,
            "rewrite": cell.variant.rewrite,
            "threads": cell.threads,
            "target": cell.target.label,
        }
        return all(
            value in (asked if isinstance(asked, list) else [asked])
            for key, value in found.items()
            if (asked := getattr(self, key)) is not None
        )


class SweepFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: Annotated[list[Words | SweepModel], msgspec.Meta(min_length=1)]
    # fp16, [[]] (no rewrites), 1 and this machine, unless said otherwise.
    dtypes: Annotated[list[str], msgspec.Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: [dtypes.DEFAULT_DTYPE]
    )
    # Each is one export: [] is none, ["layout", "norm"] both together; "layout" is short for ["layout"].
    rewrites: Annotated[list[str | list[str]], msgspec.Meta(min_length=1)] = msgspec.field(default_factory=lambda: [[]])
    threads: Annotated[list[Threads], msgspec.Meta(min_length=1)] = msgspec.field(default_factory=lambda: [1])
    targets: Annotated[list[str | SweepTarget], msgspec.Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: [LOCAL]
    )
    exclude: list[Exclusion] = []
    # How much to measure, as of `sme2-kit run`.
    runs: Count | None = None
    launches: Annotated[int, msgspec.Meta(ge=1, le=MOST_LAUNCHES)] | None = None
    budget_s: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    startup_launches: Annotated[int, msgspec.Meta(ge=0, le=MOST_LAUNCHES)] | None = None
    # Other runtimes that each model is measured in besides, on this machine: eager, compile, onnxruntime.
    runtimes: list[str] = []
    # What `sme2-kit export` judges each program by, beside eager PyTorch.
    metric: Words | None = None
    data: Words | None = None
    lower_is_better: bool = False
    # Of every run of the sweep, for `sme2-kit history`.
    labels: dict[str, str] = {}
    # Where all results go; without it, out_<name of this file>.
    output: Words | None = None
    # Whether every run gets its report page.
    reports: bool = True
    comment: str = ""


class SweepProgram(msgspec.Struct, frozen=True):
    """One program: a model, or a .pte as it is (then `asked` ends in .pte, and its dtype is what the file says)."""

    model: str
    asked: SweepModel
    dtype: str
    rewrites: tuple[str, ...] = ()

    @property
    def rewrite(self) -> str:
        return "+".join(self.rewrites) or NO_REWRITE

    @property
    def is_program(self) -> bool:
        return self.asked.model.endswith(".pte")

    @property
    def name(self) -> str:
        return "-".join([self.model, self.dtype, *(["+".join(self.rewrites)] if self.rewrites else [])])


class Cell(msgspec.Struct, frozen=True):
    """One program with one number of threads on one target: a run."""

    variant: SweepProgram
    threads: int
    target: SweepTarget

    @property
    def name(self) -> str:
        return f"{self.variant.name}-t{self.threads}-{self.target.label}"


def load(path: Path) -> SweepFile:
    return parse(read_object(path, "sweep file", _START), str(path))


def parse(raw: dict[str, Any], where: str) -> SweepFile:
    """Turn decoded JSON into a checked sweep; `where` names the source in messages."""
    raw = {key: value for key, value in raw.items() if key != "$schema"}
    levels = {"": SweepFile, "models": SweepModel, "targets": SweepTarget, "exclude": Exclusion}
    keys = {level: {*of.__struct_fields__} for level, of in levels.items()}
    return _checked(typed_object(raw, SweepFile, f"sweep file {where}", keys, _HINT), where)


def _wrong(where: str, sentence: str, fix: str) -> InputError:
    return InputError(f"sweep file {where}: {sentence}", fix)


def _checked(found: SweepFile, where: str) -> SweepFile:
    wrong = functools.partial(_wrong, where)
    _known("dtypes", found.dtypes, dtypes.NAMES, wrong)
    _known("rewrites", [name for each in _rewrites(found) for name in each], REWRITE_CHOICES, wrong)
    _known("runtimes", found.runtimes, [row.name for row in RUNTIMES.values() if row.made], wrong)
    for key, values in (
        ("dtypes", found.dtypes),
        ("runtimes", found.runtimes),
        ("threads", found.threads),
        ("rewrites", _rewrites(found)),
        ("models", [msgspec.json.encode(model) for model in found.models]),
    ):
        if (value := _twice(values)) is not None:
            shown = value.decode() if isinstance(value, bytes) else list(value) if key == "rewrites" else value
            raise wrong(f"`{key}` names {shown} twice, so there would be two equal cells", "Keep one of them.")
    if (found.metric is None) != (found.data is None):
        raise wrong("`metric` and `data` go together", "Give both, or none.")
    try:
        checked_labels(found.labels)
    except InputError as error:
        raise wrong(f"`labels`: {error.message}", error.hint) from None
    if (label := _twice([target.label for target in targets(found, where)])) is not None:
        raise wrong(f"two targets are called {label!r}", "Give one of them a `name`.")
    if not all(any(getattr(e, key) is not None for key in Exclusion.__struct_fields__) for e in found.exclude):
        raise wrong("an exclusion without a key would leave out all cells", 'For example {"dtype": "int8"}.')
    return found


def _known(key: str, values: Sequence[str], allowed: Sequence[str], wrong: Callable[[str, str], InputError]) -> None:
    for value in values:
        if value not in allowed:
            hint = f"Use {', '.join(allowed)}.{dtypes.why_refused(value)}"
            raise wrong(f"`{key}` names {value[:80]!r}, which does not exist", hint)


def _rewrites(found: SweepFile) -> list[tuple[str, ...]]:
    """Return each set of rewrites in the order in which an export records them."""
    several = [[each] if isinstance(each, str) else each for each in found.rewrites]
    return [tuple(sorted({name for name in names if name != NO_REWRITE})) for names in several]


def targets(found: SweepFile, where: str) -> list[SweepTarget]:
    return [_target(each, where) for each in found.targets]


def _target(given: str | SweepTarget, where: str) -> SweepTarget:
    try:
        target = _named_target(given) if isinstance(given, str) else given
        platform_table.checked(Choice(**target.settings), lambda part: f"`{part}`")
        return target
    except InputError as error:
        raise InputError(f"sweep file {where}: {error.message} (target {str(given)[:80]!r})", error.hint) from None


def _named_target(text: str) -> SweepTarget:
    choice = platform_table.named(text)
    if choice.platform not in SWEPT:
        names = [name for name in SWEPT if name in (LOCAL, *HERE)]
        known = ", ".join(f'"{name}"' for name in (*names, *EXAMPLES))
        raise InputError(f"there is no target {text[:80]!r}", f"Use {known}, or an object.")
    return SweepTarget(choice.platform, **{name: getattr(choice, name) for name in MACHINES})


def cells(found: SweepFile, where: str) -> list[Cell]:
    """Return all cells in the order of the file, without those that are excluded; refuses a model that is not there."""
    variants = _variants(found, where)
    if (count := len(variants) * len(found.targets) * len(found.threads)) > _MOST_CELLS:
        raise InputError(f"sweep file {where} has {count} cells", f"Make several of it, each of up to {_MOST_CELLS}.")
    all_cells = [
        Cell(variant, threads, target)
        for variant in variants
        for target in targets(found, where)
        # An emulated run is evidence of kernels, and one thread calls them all.
        for threads in (found.threads if target.timing == "measured" else [1])
    ]
    for exclusion in found.exclude:
        if not any(exclusion.matches(cell) for cell in all_cells):
            shown = msgspec.json.encode({k: v for k, v in msgspec.to_builtins(exclusion).items() if v is not None})
            hint = f"Cells are, for example, {all_cells[0].name}; correct it, or leave it out."
            raise _wrong(where, f"the exclusion {shown.decode()} matches no cell", hint)
    kept = [cell for cell in all_cells if not any(exclusion.matches(cell) for exclusion in found.exclude)]
    if not kept:
        raise _wrong(where, "all cells are excluded", "Leave fewer out.")
    if (name := _twice([cell.name for cell in kept])) is not None:
        hint = 'Give one of the models a name: {"model": …, "name": …}.'
        raise _wrong(where, f"two cells are called {name}", hint)
    longest = max((cell.name for cell in kept), key=len)
    if len(longest) > _LONGEST_NAME:
        hint = 'Give the model or the target a shorter name: {"model": …, "name": …}.'
        raise _wrong(where, f"{longest[:80]}… is too long for the name of a folder", hint)
    return kept


def _twice(values: Sequence[Any]) -> Any:
    seen = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


def _variants(found: SweepFile, where: str) -> list[SweepProgram]:
    variants = []
    for given in found.models:
        asked = SweepModel(given) if isinstance(given, str) else given
        try:
            if found.metric is not None and file_target(found.metric) is None:
                raise InputError(f"{found.metric} is not a name in a Python file", "Write path/to/eval.py:NAME.")
            name = asked.name or _model_name(asked)
            if asked.model.endswith(".pte"):
                variants.append(SweepProgram(name, asked, _program_dtype(asked)))
                continue
        except InputError as error:
            raise error.within(f"sweep file {where}") from None
        variants += [
            SweepProgram(name, asked, dtype, rewrites) for dtype in found.dtypes for rewrites in _rewrites(found)
        ]
    return variants


def _model_name(asked: SweepModel) -> str:
    """Return the name that the model's files carry, as a part of the names of cells."""
    if asked.model.endswith(".pte"):
        if asked.input or asked.set or asked.checkpoint:
            raise InputError(f"{asked.model} is exported already", "Leave `input`, `set` and `checkpoint` out.")
        name = Path(asked.model).name.removesuffix(".pte")
    else:
        for spec in asked.input:
            input_spec(spec)
        name = model_name(asked.model) + name_suffix(sorted(settings_of(asked.set).items()))
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def _program_dtype(asked: SweepModel) -> str:
    path = Path(asked.model)
    if not files.is_file(path):
        raise InputError(f"there is no {asked.model}", "Correct `models`, or export it first.")
    try:
        dtype = asked_dtype(ExportPaths(path.resolve()))
    except PteError:
        dtype = dtypes.UNKNOWN  # its run fails and says why, and the others run
    return re.sub(r"[^A-Za-z0-9_.-]", "_", dtype)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a sweep file, for editors."""
    schema = files.json_schema(SweepFile)
    properties = schema["$defs"]["SweepFile"]["properties"]
    properties["dtypes"]["items"] = {"enum": list(dtypes.NAMES)}
    rewrite = {"enum": [*REWRITE_CHOICES]}
    properties["rewrites"]["items"] = {"anyOf": [rewrite, {"type": "array", "items": rewrite}]}
    properties["$schema"] = {"type": "string"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "sme2-kit sweep file", **schema}
