"""Where a program loses accuracy: the error of each layer, which layer adds most of it, and which of them to fix."""

import math
from pathlib import Path
from typing import Literal

import msgspec

from model_profiling.base import files
from model_profiling.base.dtypes import dtype_of
from model_profiling.base.errors import InputError
from model_profiling.store.artifacts import Decibel

# What keeping the layer in fp32 must bring: 6 dB are half of the error.
_GAIN_DB = 6.0
# What a remedy that was tried must bring to be recommended, and what it may cost another experiment: 3 dB are a third.
_WORTH_DB = 3.0
# More of a layer's values than this may not become 0: then a few large ones set the range, and hide all others.
_ROUNDED_AWAY = 0.3
# Where eager PyTorch in the same dtype is better by so much, the dtype is not to blame.
_NOT_THE_DTYPE_DB = 20.0
# A share of values beyond what the dtype can hold that is worth a word.
_SATURATED = 0.01

Kind = Literal["not finite", "bad", "rounded away", "stands out"]


class Gap(msgspec.Struct, frozen=True):
    """Values against other values: signal to noise in decibel, cosine, largest difference.

    `max_abs_error` 0 says that they are equal; then there is no `sqnr_db`. All None: NaN or infinite values.
    """

    sqnr_db: Decibel | None = None
    cosine: float | None = None
    max_abs_error: float | None = None

    @property
    def exact(self) -> bool:
        return self.max_abs_error == 0


class LayerSide(msgspec.Struct, frozen=True):
    """A layer as one experiment computed it.

    `error` is against eager fp32 and has what the layer inherits; `added` is against the same layer in fp32 with the
    inputs that the program gave it; `backend` is against eager PyTorch in the program's dtype.
    """

    error: Gap
    added: Gap
    backend: Gap
    low: float | None
    high: float | None
    # The share of values beyond what the dtype can hold; None where it has no such ends.
    saturated: float | None = None
    # The share of values that are 0 and should not be.
    rounded_away: float | None = None
    nan: int = 0
    infinite: int = 0
    # Whether all that the layer was given was finite.
    finite_inputs: bool = True
    # What the outputs would be if this layer alone were not exact, on inputs as fp32 gives them; None where nobody
    # looked, or it is exact.
    alone: Gap | None = None
    # How many NaN and infinite values it gives on inputs as fp32 gives them, where fp32 has none.
    overflows: int = 0

    @property
    def finite(self) -> bool:
        return not (self.nan or self.infinite)


class Layer(msgspec.Struct, frozen=True):
    """One value of the program: `name` in the captured graph, the operators that make it, and where they are from."""

    index: int
    name: str
    # All nodes of the captured graph that it is computed in.
    nodes: list[str]
    operator: str
    module: str
    module_type: str
    # `path:line`; '' if unknown.
    source: str
    shape: list[int]
    # Operators that are computed together with it, such as an activation after a convolution.
    fused: list[str]
    # Of eager fp32.
    low: float | None
    high: float | None
    # Eager PyTorch in the program's dtype against eager fp32: what the dtype costs, whatever the backend.
    dtype: Gap
    # By experiment.
    sides: dict[str, LayerSide]
    quantized: bool = False
    # What to name in `--keep-fp32`: the layer, and those that read values which the dtype cannot hold. A layer that a
    # rewrite has made has no name before.
    keep: list[str] = []
    # What a user calls it: its module's path if it has one of its own, or the graph's name of the operator.
    place: str = ""
    # What the outputs are predicted to gain, in dB, if `keep` is kept: from the errors of all others together.
    gain_db: Decibel | None = None
    # The layers whose values it reads, by index; empty of records that an earlier kit wrote.
    producers: list[int] = []


class Variant(msgspec.Struct, frozen=True):
    """One experiment: which features were off, and how far its outputs are from eager fp32.

    `outputs` are those of the exported program itself, `tapped` those of the one that hands its layers out: taps keep
    operators from being fused, so these two differ a little.
    """

    name: str
    # What to call it where people read.
    title: str
    disabled_features: list[str]
    outputs: Gap
    tapped: Gap


class Trial(msgspec.Struct, frozen=True):
    """An export that keeps more layers in fp32, made and run once: its outputs against eager fp32, by experiment."""

    # All names in `--keep-fp32` beside those of the program that was looked at.
    keep: list[str]
    outputs: dict[str, Gap] = {}
    # Whether it is better than the best one before it, by more than chance: then it is recommended.
    helps: bool = False
    # Why there are no outputs: the export failed, or the program does not run.
    failure: str = ""


class Numerics(msgspec.Struct, frozen=True, tag="numerics", tag_field="kind"):
    """NAME_numerics.json, beside the .pte: its layers in the order in which they run."""

    model: str
    dtype: str
    platform: str
    timing: Literal["measured", "emulated"]
    pte_sha256: str
    variants: list[Variant]
    layers: list[Layer]
    # Values of the graph that are not looked at, and why.
    left_out: dict[str, int] = {}
    # How many layers were looked at alone, of how many that could be: not exact, and finite.
    looked_at_alone: int = 0
    to_look_at: int = 0
    # How many of them with inputs as the program gave them, because they could not be run apart from the others.
    not_apart: int = 0
    # The command that exports the program; '' for a module in memory. And the layers that it keeps in fp32.
    command: str = ""
    kept: list[str] = []
    # Remedies in the order in which they were tried, each keeping more; None: nobody tried.
    trials: list[Trial] | None = None
    created: str = ""
    schema: int = 1

    @property
    def main(self) -> str:
        """The experiment that ranks and alarms are about: with everything on."""
        return self.variants[0].name

    @property
    def worst(self) -> list[Layer]:
        """Layers that are not exact: wrong ones first, then by what each alone does to the outputs."""
        noises = _noises(self)

        def rank(layer: Layer) -> tuple[int, float, float]:
            own = side(self, layer)
            kind = _kind(self, layer, noises)
            if kind == "not finite":
                return (0, float(layer.index), 0.0)
            alone = own.alone.sqnr_db if own.alone is not None else None
            if not own.finite and alone is None:
                # It only passes on what it was given.
                return (4, float(layer.index), 0.0)
            step = 1 if kind is not None else 2 if alone is not None else 3
            return (step, _or_infinite(alone), _or_infinite(own.added.sqnr_db))

        return sorted((layer for layer in self.layers if not side(self, layer).added.exact), key=rank)

    @property
    def alarms(self) -> "list[Alarm]":
        """The layers that something is wrong with, worst first; none if a program loses what its dtype costs."""
        noises = _noises(self)
        kinds = [(layer, _kind(self, layer, noises)) for layer in self.worst]
        return [Alarm(layer, kind, _sentence(self, layer, kind)) for layer, kind in kinds if kind is not None]


class Alarm(msgspec.Struct, frozen=True):
    """A layer that something is wrong with, and what."""

    layer: Layer
    kind: Kind
    sentence: str


def read_numerics(path: Path) -> Numerics:
    """Read a record of numerics; one that contradicts itself is an error."""
    found = files.read_json(path, Numerics, "record of numerics")
    names = {variant.name for variant in found.variants}
    if not names or any(not names <= set(layer.sides) for layer in found.layers):
        raise InputError(f"{path} lacks experiments that it names", "Run sme2-kit numerics again.")
    return found


def side(numerics: Numerics, layer: Layer) -> LayerSide:
    return layer.sides[numerics.main]


def _or_infinite(value: float | None) -> float:
    return math.inf if value is None else value


def first_loss(numerics: Numerics) -> Layer | None:
    """Return the first layer in execution order that is further from eager fp32 than the dtype's floor."""
    floor = dtype_of(numerics.dtype).numerics.floor_db
    sides = ((layer, side(numerics, layer)) for layer in numerics.layers)
    return next((layer for layer, own in sides if not own.finite or _or_infinite(own.error.sqnr_db) < floor), None)


def _kind(numerics: Numerics, layer: Layer, noises: dict[int, float]) -> Kind | None:
    own = side(numerics, layer)
    if own.overflows or (not own.finite and own.finite_inputs):
        return "not finite"
    alone = own.alone.sqnr_db if own.alone is not None else None
    if alone is not None and alone < dtype_of(numerics.dtype).numerics.floor_db:
        return "bad"
    # In floating point only what is next to nothing becomes 0.
    if layer.quantized and own.rounded_away is not None and own.rounded_away > _ROUNDED_AWAY:
        return "rounded away"
    gain = _gain([layer.index], noises)
    if alone is not None and alone < dtype_of(numerics.dtype).numerics.concern_db and gain is not None:
        return "stands out" if gain >= _GAIN_DB else None
    return None


def gain_db(numerics: Numerics, layer: Layer) -> float | None:
    """Return what keeping `layer.keep` in fp32 gains: as the record predicts, or as errors of single layers add up.

    None where not enough layers were looked at alone, or the outputs are not finite.
    """
    if layer.gain_db is not None or level(numerics.variants[0].outputs) == -math.inf:
        return layer.gain_db
    noises, kept = _noises(numerics), set(layer.keep)
    gone = [each.index for each in numerics.layers if each is layer or (each.keep and kept >= set(each.keep))]
    return _gain(gone, noises)


def level(found: Gap) -> float:
    """Return an SQNR that can be ranked: infinite if outputs are exact, minus infinity for NaN."""
    return math.inf if found.exact else -math.inf if found.sqnr_db is None else found.sqnr_db


def helps(numerics: Numerics, before: dict[str, Gap], after: dict[str, Gap]) -> bool:
    """Return whether outputs are better than before by more than chance, and nowhere worse."""
    old, new = level(before[numerics.main]), level(after[numerics.main])
    nowhere_worse = all(level(after[name]) >= level(before[name]) - _WORTH_DB for name in before)
    return nowhere_worse and new > 0 and new >= old + _WORTH_DB and new > old


def is_fine(numerics: Numerics) -> bool:
    """Return whether the outputs are as good as the dtype lets one expect."""
    return level(numerics.variants[0].outputs) >= dtype_of(numerics.dtype).numerics.concern_db


def _noises(numerics: Numerics) -> dict[int, float]:
    """Return the noise that each layer alone makes, as a part of the signal, by the layer's index."""
    alone = {layer.index: side(numerics, layer).alone for layer in numerics.layers}
    known = {index: gap.sqnr_db for index, gap in alone.items() if gap is not None}
    return {index: 10 ** (-sqnr / 10) for index, sqnr in known.items() if sqnr is not None}


def _gain(gone: list[int], noises: dict[int, float]) -> float | None:
    if noises.keys().isdisjoint(gone) or len(noises) < 2:
        return None
    rest = sum(noise for index, noise in noises.items() if index not in gone)
    return 10 * math.log10(sum(noises.values()) / rest) if rest > 0 else None


def _sentence(numerics: Numerics, layer: Layer, kind: Kind) -> str:
    own = side(numerics, layer)
    alone = own.alone.sqnr_db if own.alone is not None else None
    reach = ""
    if layer.low is not None and layer.high is not None:
        reach = f"; in fp32 its values reach from {layer.low:.3g} to {layer.high:.3g}"
    if kind == "not finite":
        counts = ((own.nan, "NaN"), (own.infinite, "infinite values"))
        what = " and ".join(f"{count} {name}" for count, name in counts if count)
        if not own.finite_inputs or own.finite:
            what = f"{own.overflows} NaN or infinite values"
        largest = dtype_of(numerics.dtype).largest
        ends = f" ({numerics.dtype} ends at {largest})" if largest is not None else ""
        return f"gives {what} from finite inputs{reach}{ends}"
    outputs = f"alone takes the outputs to {alone:.1f} dB" if alone is not None else "was not looked at alone"
    if kind == "rounded away":
        return f"{own.rounded_away:.0%} of its values become 0{reach}; it {outputs}"
    ends = f", {own.saturated:.1%} of them beyond what fits" if (own.saturated or 0.0) > _SATURATED else ""
    eager, lost, whose = layer.dtype, own.added.sqnr_db, ""
    if lost is not None and (eager.exact or (eager.sqnr_db or 0.0) > lost + _NOT_THE_DTYPE_DB):
        there = "is exact" if eager.exact else f"has {eager.sqnr_db:.1f} dB"
        whose = f"; eager PyTorch in {numerics.dtype} {there} there: the backend's kernel loses it"
    return f"{outputs}{reach}{ends}{whose}"
