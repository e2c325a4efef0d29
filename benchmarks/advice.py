"""What `profile` says of `--rewrite auto`, and what `compare` says by hand; makes docs/advice.md and .json.

    python -m benchmarks.advice [--work DIR] [--budget S] [--networks Swin,Mobile]   # measure what is missing
    python -m benchmarks.advice --render                                          # write the page from docs/advice.json

Each network is profiled. The two programs that this leaves, as the model is and with `--rewrite auto`, are then
compared in a measurement of its own. Results are kept in DIR: a second call goes on where the first ended.
"""

import argparse
import platform
import shutil
import statistics
from pathlib import Path

import msgspec

import sme2_kit
from benchmarks.advice_networks import NETWORKS
from benchmarks.validate_forecast import replace_part
from model_profiling.analysis.compare.comparison import PairComparison
from model_profiling.base import files
from model_profiling.base.errors import KitError
from model_profiling.base.printing import tell
from model_profiling.platforms.environment import describe_host

ROOT = Path(__file__).parents[1]
PAGE, RECORD = ROOT / "docs" / "advice.md", ROOT / "docs" / "advice.json"
PART = "record"
_MOST_CAUSES, _BOUNDED = 3, 1000.0


class Gain(msgspec.Struct, frozen=True):
    """How many times faster one program is, with its interval; `busy` if other processes took most of the CPU."""

    ratio: float
    low: float = 0.0
    high: float | None = None
    busy: bool = False

    def __str__(self) -> str:
        if self.high is None:
            return f"{self.ratio:.2f}x (too few runs)"
        # An interval of a difference that reaches the whole time bounds no ratio.
        high = f"{self.high:.2f}" if self.high < _BOUNDED else "?"
        return f"{self.ratio:.2f}x ({self.low:.2f} to {high})"


class Measured(msgspec.Struct, frozen=True):
    """Two programs in turns: latency, and the sum of their operators, which leaves out what other processes took."""

    latency: Gain
    operators: Gain | None

    @property
    def best(self) -> Gain:
        """What can be relied on: latency, or on a busy machine operators."""
        return self.operators if self.latency.busy and self.operators is not None else self.latency


class Profiled(msgspec.Struct, frozen=True):
    """One network: what `profile` said, and what a comparison by hand says. `reason` says why nothing was measured."""

    network: str
    dtype: str
    causes: list[str] = []
    rewrites: list[str] = []
    reason: str = ""
    outputs_agree: bool | None = None
    claimed: Measured | None = None
    by_hand: Measured | None = None
    failed: str = ""

    @property
    def confirmed(self) -> bool | None:
        """Whether the two intervals have a ratio in common; None if one of them has no interval."""
        if self.claimed is None or self.by_hand is None:
            return None
        one, other = self.claimed.best, self.by_hand.best
        if one.high is None or other.high is None:
            return None
        return one.low <= other.high and other.low <= one.high


class OtherDtype(msgspec.Struct, frozen=True):
    """A network in another dtype against fp32, measured in turns."""

    network: str
    dtype: str
    gain: Gain


class OtherDtypes(msgspec.Struct, frozen=True):
    """What following the advice to try another dtype gave, on one machine."""

    cpu: str
    measured: list[OtherDtype]


class AdviceRecord(msgspec.Struct, frozen=True):
    """All that was profiled on one machine, and dtypes as they were measured on another."""

    cpu: str
    networks: list[Profiled]
    dtypes: OtherDtypes


def profiled(name: str, dtype: str, work: Path, budget_s: float) -> Profiled:
    """Profile one network and compare its programs; what was done already is taken from the work directory."""
    kept = work / f"{name}-{dtype}.json"
    if kept.is_file():
        return files.read_json(kept, Profiled, "result")
    target, home = f"{Path(__file__).with_name('advice_networks.py')}:{name}", work / f"{name}-{dtype}"
    try:
        found = _profiled(target, name, dtype, home, budget_s)
    except KitError as error:
        found = Profiled(name, dtype, failed=error.message)
    files.write_json(kept, found)
    shutil.rmtree(home, ignore_errors=True)
    return found


def _profiled(target: str, name: str, dtype: str, home: Path, budget_s: float) -> Profiled:
    run = sme2_kit.profile(target, dtype=dtype, out=home, budget_s=budget_s, force=True)
    causes = [finding.title for finding in run.summary.experiments[run.of_interest[0]].advice[:_MOST_CAUSES]]
    auto = run.auto
    assert auto is not None
    rewrites = [choice.name for choice in auto.choices if choice.applied]
    known = Profiled(name, dtype, causes, rewrites, auto.reason, auto.outputs_agree)
    if not auto.pairs:
        return known
    pte = run.path / run.manifest.model.path
    (pair,) = sme2_kit.compare(pte, auto.pte, budget_s=budget_s / 2)
    return msgspec.structs.replace(known, claimed=measured(auto.pairs[0]), by_hand=measured(pair))


def measured(pair: PairComparison) -> Measured:
    latency, changes = pair.latency, pair.changes
    gain = Gain(latency.ratio, latency.low, latency.high, latency.contended)
    if changes is None or not changes.after_ms:
        return Measured(gain, None)
    before = changes.before_ms
    if changes.low_ms is None or changes.high_ms is None:
        return Measured(gain, Gain(before / changes.after_ms))
    low, high = (before / max(before + ms, 1e-9) for ms in (changes.high_ms, changes.low_ms))
    return Measured(gain, Gain(before / changes.after_ms, low, high))


def page(record: AdviceRecord) -> str:
    """Return what was found and a row for each network that changed, the largest gain first; advice.json has more."""
    gains = [one.by_hand.best for one in record.networks if one.by_hand is not None]
    faster, slower = sum(each.low > 1 for each in gains), sum(each.high is not None and each.high < 1 for each in gains)
    told = [one.confirmed for one in record.networks if one.confirmed is not None]
    both = [(one, one.claimed.best, one.by_hand.best) for one in record.networks if one.claimed and one.by_hand]
    looks = [one.network for one, said, seen in both if said.ratio < 1 and seen.ratio < 1]
    wrong = sum(one.outputs_agree is False for one in record.networks)
    dtypes = ", ".join(sorted({one.dtype for one in record.networks}))
    lines = [
        f"{len(record.networks)} networks in {dtypes}, on {record.cpu}, one thread.",
        f"`--rewrite auto` changes {len(gains)}; by hand {faster} are faster by their whole interval, {slower} slower;",
        f"outputs differ in {wrong}." + (f" {_listed(looks)} look slower, within their intervals." if looks else ""),
        f"The intervals of `profile` and of the comparison by hand overlap for {sum(told)} of {len(told)}.",
        "A `*` marks a busy machine: the ratio is that of the traced operators, which leaves out other processes.",
        "",
        "| network | `--rewrite auto` applied | `profile` | by hand |",
        "|---|---|---:|---:|",
    ]
    for one, *_ in sorted(both, key=lambda each: -each[2].ratio):
        cells = [f"{side.best}{'*' if side.latency.busy else ''}" for side in (one.claimed, one.by_hand) if side]
        lines.append(f"| {' | '.join([one.network, ', '.join(one.rewrites), *cells])} |")
    whys: dict[str, list[str]] = {}
    for one in record.networks:
        if one.by_hand is None:
            whys.setdefault(one.failed or one.reason, []).append(one.network)
    lines += ["", f"Not changed: {'; '.join(_listed(names) + f' ({why})' for why, names in whys.items())}."]
    return "\n".join([*lines, "", *_other_dtypes(record.dtypes)])


def _listed(names: list[str]) -> str:
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])


def _other_dtypes(found: OtherDtypes) -> list[str]:
    rows = ["| dtype | networks | faster | slower | median | worst | best |", "|---|---:|---:|---:|---:|---|---|"]
    for dtype in sorted({one.dtype for one in found.measured}):
        each = sorted((one for one in found.measured if one.dtype == dtype), key=lambda one: one.gain.ratio)
        faster, slower = sum(one.gain.low > 1 for one in each), sum((one.gain.high or 1) < 1 for one in each)
        median = statistics.median(one.gain.ratio for one in each)
        ends = " | ".join(f"{one.gain}, {one.network}" for one in (each[0], each[-1]))
        rows.append(f"| {dtype} | {len(each)} | {faster} | {slower} | {median:.2f}x | {ends} |")
    title = f"Another dtype against fp32, of an earlier version, on {found.cpu}, one thread, in turns (95 % interval):"
    return [title, "", *rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--work", type=Path, default=Path("out_advice"), metavar="DIR")
    parser.add_argument("--networks", default="", metavar="A,B", help="only these, printed; the page stays as it is")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--budget", type=float, default=12.0, metavar="S", help="seconds for each profile")
    parser.add_argument("--render", action="store_true", help="write the page from docs/advice.json, measure nothing")
    args = parser.parse_args()
    record = files.read_json(RECORD, AdviceRecord, "record")
    if not args.render:
        results = []
        for name in args.networks.split(",") if args.networks else NETWORKS:
            results.append(profiled(name, args.dtype, args.work, args.budget))
            last = results[-1]
            said = [str(each.best) for each in (last.claimed, last.by_hand) if each is not None]
            tell(f"{name}: {' and by hand '.join(said) or last.reason or last.failed}\n")
        record = AdviceRecord(str(describe_host().get("cpu") or platform.machine()), results, record.dtypes)
    if args.networks:
        tell(page(record) + "\n")
        return
    if not args.render:
        files.write_json(RECORD, record)
    PAGE.write_text(replace_part(PAGE.read_text(), PART, page(record)))


if __name__ == "__main__":
    main()
