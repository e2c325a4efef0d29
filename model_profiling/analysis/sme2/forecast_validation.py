"""A forecast compared with measurements of one machine: the record that is shared, and how errors are counted.

A measured time has its interval. A prediction inside of it cannot be told from the measurement; one outside of it is
off by the distance to the nearer end. Nothing in the record says who measured, or where.
"""

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from model_profiling.analysis.roofs.roof_rates import Roofs, check_roofs, sealed
from model_profiling.analysis.sme2.kernel_table import TableDifference
from model_profiling.analysis.timing.profile import Part
from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.store.made_by import installed_gib

KIND = "forecast_validation"
SCHEMA = 1
# A prediction that is off by more is called wrong.
TOLERANCE = 0.10
# An operator shorter than this is not judged: XNNPACK's clock reads whole microseconds.
SHORTEST_MS = 0.005

Outcome = Literal["right", "wrong", "too noisy to tell"]
Verdict = Literal["holds", "holds in part", "does not hold", "unknown"]


class ValidatedTime(msgspec.Struct, frozen=True):
    """A predicted time against the measured one, from the time with the feature off.

    `error` is predicted over measured, less 1. `low_ms` and `high_ms` are the interval of the measurement, and
    `outside` is how far the prediction is outside of it: 0 within; all None where launches are too few to tell.
    """

    off_ms: float
    predicted_ms: float
    on_ms: float
    error: float
    low_ms: float | None = None
    high_ms: float | None = None
    outside: float | None = None

    @property
    def off_by(self) -> float:
        """What counts as its error: that outside of the interval, the whole of it where there is no interval."""
        return abs(self.error if self.outside is None else self.outside)

    @property
    def outcome(self) -> Outcome:
        if abs(self.error) <= TOLERANCE:
            return "right"
        return "wrong" if self.off_by > TOLERANCE else "too noisy to tell"


class ValidatedOperator(msgspec.Struct, frozen=True):
    """A CONV or GEMM operator; `size` is that of its product, and `why` is why so much was predicted."""

    name: str
    category: Part
    kind: str
    size: str
    why: str
    time: ValidatedTime


class ValidatedGain(msgspec.Struct, frozen=True):
    """What a target says that SME2 gains on the whole model, with its range, and what was measured, with its interval.

    `outside` is how far the expected gain is outside of the measured interval; None where that is not known.
    """

    target: str
    predicted: float
    predicted_low: float
    predicted_high: float
    measured: float
    measured_low: float | None
    measured_high: float | None
    outside: float | None


class ValidatedModel(msgspec.Struct, frozen=True):
    """One model in one dtype, whose time with features on was predicted from the time without, and then measured.

    `not_timed` are its CONV and GEMM operators that are too short to be judged. `not_traced` and `no_gain` are why
    kernels were not traced, and why no target was held against the measurement; '' where they were.
    """

    model: str
    dtype: str
    switched: list[str]
    threads: int
    time: ValidatedTime
    operators: list[ValidatedOperator]
    not_timed: int
    not_traced: str = ""
    traced: int = 0
    differences: list[TableDifference] = []
    gain: ValidatedGain | None = None
    no_gain: str = ""
    warnings: list[str] = []


class FailedModel(msgspec.Struct, frozen=True):
    model: str
    dtype: str
    why: str


class SharedEnvironment(msgspec.Struct, frozen=True):
    """What of a machine explains its numbers, and nothing that tells whose it is; None and '' are not known."""

    cpu: str
    arch: str
    platform: str
    system: str
    features: list[str]
    sme2: bool
    cores: int | None = None
    memory_gib: float | None = None
    vector_bits: int | None = None
    # How many cores share each SME unit.
    sme_units: list[int] = []
    governors: list[str] = []
    virtualised: bool = False


class ForecastValidation(msgspec.Struct, frozen=True, tag=KIND, tag_field="kind"):
    """forecast_validation.json: the forecast held against one machine. Its roofs make it a target if that has SME2."""

    created: str
    kit_version: str
    executorch: str
    environment: SharedEnvironment
    roofs: Roofs
    models: list[ValidatedModel] = []
    failed: list[FailedModel] = []
    # What makes the roofs hard to believe, in words.
    warnings: list[str] = []
    schema: int = SCHEMA

    @property
    def switched(self) -> list[str]:
        """What was switched in any of the models."""
        return sorted({feature for model in self.models for feature in model.switched})

    def count(self, outcome: Outcome) -> int:
        """Return of how many models the prediction was so."""
        return sum(model.time.outcome == outcome for model in self.models)

    @property
    def verdict(self) -> Verdict:
        """Whether predictions are right; unknown where most measurements are too noisy to tell."""
        right, wrong, half = self.count("right"), self.count("wrong"), len(self.models) / 2
        if not wrong:
            return "holds" if right and right >= half else "unknown"
        return "does not hold" if wrong > half else "holds in part"

    @property
    def operators(self) -> list[tuple[ValidatedModel, ValidatedOperator]]:
        """All operators that were judged, the worst first."""
        every = [(model, operator) for model in self.models for operator in model.operators]
        return sorted(every, key=lambda found: -found[1].time.off_by)


class Errors(msgspec.Struct, frozen=True):
    """Absolute errors of several predictions, as parts of what was measured."""

    count: int
    median: float
    nine_in_ten: float
    worst: float


def errors_of(times: Iterable[ValidatedTime]) -> Errors | None:
    """Return how far predictions were from measurements, noise and all; None without any."""
    errors = sorted(abs(time.error) for time in times)
    if not errors:
        return None
    deciles = statistics.quantiles(errors, n=10, method="inclusive") if len(errors) > 1 else errors
    return Errors(len(errors), statistics.median(errors), deciles[-1], errors[-1])


def check_prediction(
    off_ms: float, predicted_ms: float, on_ms: float, low: float | None, high: float | None
) -> ValidatedTime:
    """Compare a prediction with a measurement; `low` and `high` bound how many times faster on is than off."""
    error = predicted_ms / on_ms - 1
    if low is None or high is None or not 0 < low <= high < math.inf:
        return ValidatedTime(off_ms, predicted_ms, on_ms, error)
    # An interval of the ratio may leave out the quotient of two means.
    ends = min(off_ms / high, on_ms), max(off_ms / low, on_ms)
    return ValidatedTime(off_ms, predicted_ms, on_ms, error, *ends, distance(predicted_ms, *ends))


def distance(value: float, low: float, high: float) -> float:
    """Return how far a value is outside of an interval, as a part of the nearer end: below is negative, inside 0."""
    return value / high - 1 if value > high else value / low - 1 if value < low else 0.0


_SYSTEM = re.compile(r"[A-Za-z]+( [0-9.]+[0-9])?")


def shared_environment(platform: str, features: Sequence[str], environment: Mapping[str, object]) -> SharedEnvironment:
    """Return what of an environment may be shared: these facts alone, whatever else a platform found out."""

    def number(name: str) -> int | None:
        value = environment.get(name)
        text = value if isinstance(value, (int, str)) else ""
        return int(text) if str(text).isdecimal() and int(text) > 0 else None

    # The rest of a kernel's release is what its builder called it.
    system = _SYSTEM.match(str(environment.get("system") or ""))
    memory, vector, units = number("memory_bytes"), number("sme_vector_bytes"), environment.get("sme_units")
    sharing = units.get("shared_by") if isinstance(units, Mapping) else None
    governors = environment.get("governors")
    return SharedEnvironment(
        cpu=str(environment.get("cpu") or ""),
        arch=str(environment.get("arch") or ""),
        platform=platform,
        system=system[0] if system else "",
        features=sorted(features),
        sme2="sme2" in features,
        cores=number("cores"),
        memory_gib=installed_gib(memory) if memory else None,
        vector_bits=8 * vector if vector else None,
        sme_units=[int(cores) for cores in sharing] if isinstance(sharing, list) else [],
        governors=[str(name) for name in governors] if isinstance(governors, list) else [],
        virtualised=environment.get("virtualised") is True,
    )


def shared_roofs(roofs: Roofs) -> Roofs:
    """Return roofs without what else their environment says than what tells one machine model from another.

    Those with SME, but without SME2, are left out: a target is what SME2 gains against NEON.
    """
    told = {name: roofs.environment[name] for name in ("cpu", "cores", "memory_bytes") if name in roofs.environment}
    kept = [entry for entry in roofs.measurements if "sme" not in entry.active or "sme2" in entry.active]
    return sealed(msgspec.structs.replace(roofs, environment=told, measurements=kept))


# Stands for the name of a machine or a person.
_NAMELESS = "(name left out)"
# A path from the root of the file system, as it stands in a sentence.
_PATH = re.compile(r"(?<![\w.~/])~?(?:/[^\s/'\"`,;:()]+)+/?")


def shareable(text: str, folders: Iterable[str] = (), names: Iterable[str] = ()) -> str:
    """Return a sentence in which files are called by their names alone, and machines and people by none.

    `folders` may have spaces in them, and `names` are words of their own.
    """
    for folder in sorted(filter(None, folders), key=len, reverse=True):
        text = text.replace(f"{folder.rstrip('/')}/", "")
    text = _PATH.sub(lambda found: found[0].rstrip("/").rpartition("/")[2], text)
    for name in sorted(filter(None, names), key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", _NAMELESS, text)
    return text


def read_validation(path: Path) -> ForecastValidation:
    """Read what `sme2-kit validate-forecast` wrote, on any machine."""
    found = files.read_json(path, ForecastValidation, "forecast validation")
    raw = files.read_json(path, dict[str, Any], "forecast validation")
    check_roofs(found.roofs, msgspec.json.encode(raw["roofs"]), path)
    return found


def target_roofs(path: Path) -> Roofs:
    """Return the roofs in such a file, which are a target if its machine has SME2."""
    found = read_validation(path)
    if not found.environment.sme2:
        switched = ", ".join(found.switched) or "nothing"
        raise InputError(
            f"{path} is no target: {found.environment.cpu}, which it is of, has no SME2 (switched: {switched})",
            "Use a file of a machine with SME2, or a target that comes with the kit (leave --target out).",
        )
    return found.roofs
