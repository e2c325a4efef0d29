"""How the advice does: followed on networks of many kinds and measured in turns; makes docs/advice.md and .json.

    python -m benchmarks.advice [--work DIR] [--budget S] [--networks Swin,Mobile]   # measure what is missing
    python -m benchmarks.advice --render                                          # write the page, measure nothing

Each network is exported and run. Each piece of advice that a flag of `export` carries out is then followed alone: the
program with the flag takes turns with the one without. Results are kept in DIR: a second call goes on where the first
ended. Run it on a quiet machine.
"""

import argparse
import platform
import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec

import sme2_kit
from benchmarks.advice_networks import NETWORKS
from benchmarks.validate_forecast import replace_part
from model_profiling.analysis.advice.finding import Finding, export_options
from model_profiling.base import files
from model_profiling.base.errors import KitError
from model_profiling.base.printing import tell
from model_profiling.platforms.environment import describe_host

ROOT = Path(__file__).parents[1]
PAGE, RECORD = ROOT / "docs" / "advice.md", ROOT / "docs" / "advice.json"
PART = "record"


class Followed(msgspec.Struct, frozen=True):
    """One piece of advice and what following it gave: `ratio` with its interval. `failed` says why there is none."""

    network: str
    dtype: str
    rule: str
    option: str
    title: str
    before_ms: float = 0.0
    ratio: float = 0.0
    low: float = 0.0
    high: float | None = None
    contended: bool = False
    failed: str = ""

    @property
    def kind(self) -> str:
        return f"{self.rule}: {self.option}"


class AdviceRecord(msgspec.Struct, frozen=True):
    """All that was followed on one machine."""

    cpu: str
    followed: list[Followed]


def followed(name: str, dtype: str, work: Path, budget_s: float) -> list[Followed]:
    """Take the advice of one network and follow it; what was done already is taken from the work directory."""
    kept = work / f"{name}-{dtype}.json"
    if kept.is_file():
        return files.read_json(kept, list[Followed], "result")
    target, home = f"{Path(__file__).with_name('advice_networks.py')}:{name}", work / f"{name}-{dtype}"
    base = sme2_kit.export(target, dtype=dtype, out=home / "base")
    run = sme2_kit.run(base, out=home / "run", budget_s=budget_s, force=True)
    advice = run.summary.experiments[run.of_interest[0]].advice
    found, done = [], set()
    for finding in advice:
        for option, asked in export_options(finding).items():
            if option not in done:
                done.add(option)
                found.append(_follow(target, name, dtype, base, finding, option, asked, home, budget_s))
                tell(f"{name} {dtype} {_said(found[-1])}\n")
    files.write_json(kept, found)
    shutil.rmtree(home, ignore_errors=True)
    return found


def _follow(
    target: str,
    name: str,
    dtype: str,
    base: sme2_kit.ExportResult,
    finding: Finding,
    option: str,
    asked: dict[str, object],
    home: Path,
    budget_s: float,
) -> Followed:
    """Export with the flags that the finding names, and measure that beside what it is about."""
    known = (name, dtype, finding.rule.value, option, finding.title)
    try:
        out = home / option.replace(" ", "_")
        other = sme2_kit.export(target, **{"dtype": dtype, **asked}, out=out)  # type: ignore[arg-type]
        (pair,) = sme2_kit.compare(base, other, budget_s=budget_s)
    except KitError as error:
        return Followed(*known, failed=error.message)
    latency = pair.latency
    return Followed(*known, latency.before_ms, latency.ratio, latency.low, latency.high, latency.contended)


def _said(one: Followed) -> str:
    if one.failed:
        return f"{one.option}: {one.failed}"
    high = one.high if one.high is not None else one.ratio
    return f"{one.option}: {one.ratio:.2f}x ({one.low:.2f} to {high:.2f})"


def by_kind(results: Iterable[Followed]) -> dict[str, list[Followed]]:
    found: dict[str, list[Followed]] = {}
    for one in sorted(results, key=lambda one: one.kind):
        found.setdefault(one.kind, []).append(one)
    return found


def page(record: AdviceRecord) -> str:
    """Return the tables: how each kind did, then every piece."""
    networks, failed = len({one.network for one in record.followed}), sum(bool(one.failed) for one in record.followed)
    lines = [
        f"{len(record.followed)} pieces of advice on {networks} networks, measured on {record.cpu}, one thread, "
        f"in turns. Programs that do not run: {failed}.",
        "",
        "| kind | followed | faster | measured, all |",
        "|---|---:|---:|---:|",
    ]
    for kind, members in by_kind(record.followed).items():
        ratios = [one.ratio for one in members if not one.failed]
        cells = [
            kind,
            str(len(members)),
            str(sum(ratio > 1 for ratio in ratios)),
            f"{min(ratios):.2f}x to {max(ratios):.2f}x" if ratios else "does not run",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| network | advice | measured (95 % interval) |", "|---|---|---:|"]
    for one in sorted(record.followed, key=lambda one: (one.network, one.dtype, one.option)):
        high = f"{one.high:.2f}" if one.high is not None else "?"
        busy = ", busy machine" if one.contended else ""
        measured = one.failed or f"{one.ratio:.2f}x ({one.low:.2f} to {high}{busy})"
        lines.append(f"| {one.network}, {one.dtype} | {one.option} | {measured} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--work", type=Path, default=Path("out_advice"), metavar="DIR")
    parser.add_argument("--networks", default="", metavar="A,B", help="only these, printed; the page stays as it is")
    parser.add_argument("--budget", type=float, default=4.0, metavar="S", help="seconds for each measurement")
    parser.add_argument("--render", action="store_true", help="write the page from what was measured, measure nothing")
    args = parser.parse_args()
    names = args.networks.split(",") if args.networks else list(NETWORKS)
    results = []
    for name in names:
        for dtype in NETWORKS[name]:
            if not args.render or (args.work / f"{name}-{dtype}.json").is_file():
                results += followed(name, dtype, args.work, args.budget)
    cpu = str(describe_host().get("cpu") or platform.machine())
    record = AdviceRecord(cpu, results)
    if args.networks:
        tell(page(record) + "\n")
        return
    files.write_json(RECORD, record)
    PAGE.write_text(replace_part(PAGE.read_text(), PART, page(record)))


if __name__ == "__main__":
    main()
