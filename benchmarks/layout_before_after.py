"""What `--rewrite layout` changes: models measured without and with it, in turns; makes the table of docs/layout.md.

    python -m benchmarks.layout_before_after [--work DIR] [--models squeeze_sam,deit_tiny]   # measure what is missing
    python -m benchmarks.layout_before_after --models toy_cnn --print                          # any model, printed only
    python -m benchmarks.layout_before_after --render                                         # write the page, no more

Exports, runs and results are kept in DIR: a second call goes on where the first ended. Run it on a quiet machine.
"""

import argparse
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

import sme2_kit
from benchmarks.validate_forecast import replace_part
from model_profiling.analysis.movement.layout_reasons import transposes
from model_profiling.base import files
from model_profiling.base.errors import KitError
from model_profiling.base.printing import tell
from model_profiling.formats import pte
from model_profiling.formats.pte.dataflow import data_flow
from model_profiling.models.options import settings_of
from model_profiling.platforms.environment import describe_host

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "layout.md"
PART = "before and after"


@dataclass(frozen=True)
class Case:
    """One model and how it is exported; with `border`, its inputs and outputs are channels-last after the rewrite, and
    `also` are rewrites beside `layout`."""

    model: str
    dtype: str = "fp32"
    settings: dict[str, object] = field(default_factory=dict)
    border: bool = False
    also: tuple[str, ...] = ()
    # How the model is exported for the emulator, if not as it is measured: the same operators on fewer values.
    emulated: dict[str, object] = field(default_factory=dict)

    def name(self, border: bool) -> str:
        said = "".join(f"-{key}_{value}" for key, value in sorted(self.settings.items()))
        return f"{Path(self.model).name.replace(':', '_')}-{self.dtype}{said}{'-io' if border else ''}"

    @property
    def kept(self) -> str:
        """The name of its result."""
        return "".join([self.name(self.border), *(f"-{name}" for name in self.also)])


CASES = (
    Case("squeeze_sam", "fp16", {"resolution": 512}, emulated={"resolution": 256}),
    Case("edgetam_image_encoder", "fp32", {"resolution": 1024}),
    Case("edgetam_image_encoder", "fp32", {"resolution": 1024}, border=True),
    Case("mobile_sam", "fp32", {"resolution": 1024}),
    Case("efficient_sam", "fp32", emulated={"resolution": 256}),
    Case("efficient_sam", "fp32", also=("upsample",), emulated={"resolution": 256}),
    Case("deit_tiny", "fp32"),
    Case("mobilenet_v3_small", "fp32"),
)


class LayoutSide(msgspec.Struct, frozen=True):
    """`moving_ms` is the time of data movement; `sme2_ms` and `sme2_moving` what is predicted with SME2, if known."""

    transposes: int | None
    total_ms: float
    moving_ms: float
    sme2_ms: float | None = None
    sme2_moving: float | None = None


class LayoutResult(msgspec.Struct, frozen=True):
    model: str
    dtype: str
    settings: dict[str, object]
    border: bool
    before: LayoutSide
    after: LayoutSide
    ratio: float
    low: float
    high: float | None
    contended: bool
    cpu: str
    target: str = ""
    note: str = ""
    also: list[str] = []


def measure_case(case: Case, work: Path, budget_s: float, launches: int | None) -> LayoutResult:
    """Export and measure a case; what was done already is taken from the work directory."""
    kept = work / f"{case.kept}.json"
    if kept.is_file():
        return files.read_json(kept, LayoutResult, "result")
    exports = _exports(case, work)
    counts: dict[str, Any] = {"launches": launches, "runs": launches} if launches else {"budget_s": budget_s}
    (pair,) = sme2_kit.compare(exports[0], exports[1], **counts)
    moving = next(entry for entry in pair.profile.categories if entry.name == "Data Movement")
    latency = pair.latency
    sides = [
        LayoutSide(_transposes(exports[0].paths.pte), latency.before_ms, moving.before_ms),
        LayoutSide(_transposes(exports[1].paths.pte), latency.after_ms, moving.after_ms),
    ]
    bounds = (latency.ratio, latency.low, latency.high, latency.contended)
    result = LayoutResult(
        case.model, case.dtype, case.settings, case.border, sides[0], sides[1], *bounds, _cpu(), also=list(case.also)
    )
    files.write_json(kept, result)
    return result


def predicted(case: Case, result: LayoutResult, work: Path, budget_s: float) -> LayoutResult:
    """Return the result with what the forecast says of both sides, or why it says nothing."""
    if result.target or result.note:
        return result
    try:
        found, target = [], ""
        for after, side in enumerate((result.before, result.after)):
            # The program that was measured, also if the kit would export another one by now.
            home = _home(case, work, bool(after))
            (program,) = (home / "artifacts").glob("*.pte")
            run = sme2_kit.run(program, out=home / "run", budget_s=budget_s)
            seen = _export(case, bool(after), home / "emulated", case.emulated).paths.pte if case.emulated else program
            forecast = sme2_kit.forecast(run, _kernels(seen, home / "kernels"))[-1]
            last, target = forecast.predictions[-1], forecast.target
            moving = last.shares["Data Movement"]
            found.append(msgspec.structs.replace(side, sme2_ms=last.predicted_ms, sme2_moving=moving))
        result = msgspec.structs.replace(result, before=found[0], after=found[1], target=target)
    except KitError as error:
        result = msgspec.structs.replace(result, note=f"with SME2 not predicted: {error.message}")
    files.write_json(work / f"{case.kept}.json", result)
    return result


def _kernels(program: Path, out: Path) -> sme2_kit.Run:
    """Return the kernels of an emulated run. They are what they are, too, where a program's outputs are wrong, as those
    of ExecuTorch's own fp16 layer norm are."""
    try:
        return sme2_kit.kernels(program, levels=["sme2"], out=out)
    except sme2_kit.RunError:
        return sme2_kit.open_run(out)


def _home(case: Case, work: Path, after: bool) -> Path:
    return work / (f"{case.kept}-after" if after else f"{case.name(False)}-before")


def _exports(case: Case, work: Path) -> list[sme2_kit.ExportResult]:
    """Return the model without and with the rewrite."""
    return [_export(case, after, _home(case, work, after) / "artifacts", case.settings) for after in (False, True)]


def _export(case: Case, after: bool, out: Path, settings: dict[str, object]) -> sme2_kit.ExportResult:
    return sme2_kit.export(
        case.model,
        dtype=case.dtype,
        settings=settings,
        rewrites=("layout", *case.also) if after else (),
        io_layout="channels_last" if after and case.border else "contiguous",
        out=out,
    )


def _transposes(path: Path) -> int | None:
    program = pte.read(path)
    flow = data_flow(program, program.methods[0])
    return len(transposes(flow)) if flow is not None else None


def _cpu() -> str:
    return str(describe_host().get("cpu") or platform.machine())


def table(results: list[LayoutResult]) -> str:
    """Return the page's table; a row for each model, before and after in each cell."""
    cpus, targets = ({getattr(result, name) for result in results} - {""} for name in ("cpu", "target"))
    lines = [
        f"Measured on {', '.join(sorted(cpus))}, one thread, in turns; ratios with their 95 % interval. With SME2: "
        f"predicted, in this machine's milliseconds ({', '.join(sorted(targets)) or 'not done'}).",
        "",
        "| model | transposes | data movement | total | faster | with SME2, predicted | of it data movement |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for result in results:
        before, after = result.before, result.after
        known = result.high is not None
        interval = f"{result.low:.2f} to {result.high:.2f}" if known else "too few runs for an interval"
        busy = ", on a busy machine" if result.contended else ""
        cells = [
            _title(result),
            f"{_count(before.transposes)} → {_count(after.transposes)}",
            f"{before.moving_ms:.1f} → {after.moving_ms:.1f} ms ({after.moving_ms / before.moving_ms - 1:+.0%})"
            if before.moving_ms
            else "none",
            f"{before.total_ms:.1f} → {after.total_ms:.1f} ms",
            f"**{result.ratio:.2f}x** ({interval}{busy})",
            _both(before.sme2_ms, after.sme2_ms, "{:.1f}", " ms"),
            _both(before.sme2_moving, after.sme2_moving, "{:.0%}", ""),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    notes = [f"{result.model}: {result.note}" for result in results if result.note]
    return "\n".join([*lines, *(["", *notes] if notes else [])])


def _title(result: LayoutResult) -> str:
    size = ", ".join(f"{value}" for value in result.settings.values())
    said = [size, result.dtype, "io-layout" if result.border else "", *result.also]
    return f"{result.model} ({', '.join(filter(None, said))})"


def _both(before: float | None, after: float | None, shape: str, unit: str) -> str:
    if before is None or after is None:
        return "not known"
    return f"{shape.format(before)} → {shape.format(after)}{unit}"


def _count(number: int | None) -> str:
    return "?" if number is None else str(number)


def select_cases(names: str, dtype: str, settings: dict[str, object]) -> list[Case]:
    """Return the cases of these models; one that is none of the page's is measured as it is asked for."""
    if not names:
        return list(CASES)
    found = []
    for name in names.split(","):
        known = [case for case in CASES if case.model == name and not settings]
        found += known or [Case(name, dtype, settings)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--work", type=Path, default=Path("out_layout"), metavar="DIR")
    parser.add_argument("--models", default="", metavar="A,B", help="only these (default: those of the page)")
    parser.add_argument("--dtype", default="fp32", help="of models that the page does not have (default: fp32)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="settings of such models")
    parser.add_argument("--budget", type=float, default=60.0, metavar="S", help="seconds for each measurement")
    parser.add_argument("--launches", type=int, metavar="N", help="of one execution each, instead: for slow models")
    parser.add_argument("--no-forecast", action="store_true", help="predict nothing: no emulator is needed")
    parser.add_argument("--render", action="store_true", help="write the page from what was measured, measure nothing")
    parser.add_argument("--print", action="store_true", help="print the table, leave the page as it is")
    args = parser.parse_args()
    cases = select_cases(args.models, args.dtype, settings_of(args.set))
    results = []
    for case in cases:
        if args.render and not (args.work / f"{case.kept}.json").is_file():
            tell(f"{case.kept}: not measured yet\n")
            continue
        result = measure_case(case, args.work, args.budget, args.launches)
        if not (args.no_forecast or args.render):
            result = predicted(case, result, args.work, args.budget)
        results.append(result)
        tell(f"{case.kept}: {result.ratio:.2f}x\n")
    if args.print or not args.render:
        tell(table(results) + "\n")
    elif results:
        PAGE.write_text(replace_part(PAGE.read_text(), PART, table(results)))


if __name__ == "__main__":
    main()
