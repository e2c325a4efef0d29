"""Hold the forecast against what is published and against what this machine can switch; writes docs/forecast.md.

    python -m benchmarks.validate_forecast [--work DIR] [--only published|switched]
    python -m benchmarks.validate_forecast --models NAME path/net.py:Net     # these alone, printed and not written

Nothing is fitted: roofs are measured by the probe program, targets are published numbers, shapes are the model's own.
What was exported or measured already, in DIR, is not measured again.
"""

import argparse
import dataclasses
import statistics
from pathlib import Path

import sme2_kit
from benchmarks.published import TABLES
from model_profiling.analysis.roofs.roof_rates import Roofs, known_roofs
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.sme2.gains import Switch, predicted_ms
from model_profiling.analysis.sme2.target import DEFAULT, Target, read_target
from model_profiling.analysis.sme2.whatif import Prediction
from model_profiling.base.errors import KitError
from model_profiling.base.printing import tell
from model_profiling.models import registered_models
from model_profiling.models.lookup import model_name
from model_profiling.pipeline.accelerator import accelerator
from model_profiling.platforms.local import LocalPlatform

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "forecast.md"
DTYPES = ("fp32", "fp16", "int8")
# Milliseconds by category on one core, SME2 off and on: read off a published picture, +-2 ms (Arm, SqueezeSAM).
PUBLISHED = {
    "fp16": {"CONV": (880, 98), "GEMM": (32, 8), "Data Movement": (139, 119), "Other": (109, 72)},
    "int8": {"CONV": (310, 69), "GEMM": (28, 9), "Data Movement": (123, 126), "Other": (93, 98)},
}
# An operator shorter than this is not judged: XNNPACK's clock reads whole microseconds.
SHORTEST_MS = 0.005


@dataclasses.dataclass(frozen=True)
class Switched:
    """One model whose "on" was predicted from "off" and then measured."""

    model: str
    dtype: str
    feature: str
    off_ms: float
    predicted: float
    on_ms: float
    # Of each CONV and GEMM operator: predicted against measured.
    operators: list[float]

    @property
    def error(self) -> float:
        return self.predicted / self.on_ms - 1


def switched(roofs: Roofs, work: Path, models: list[str]) -> list[Switched]:
    """Predict "on" from "off" for every model and dtype in which this machine can switch something."""
    found = []
    dtypes = [dtype for dtype in DTYPES if accelerator(LocalPlatform(), dtype) is not None]
    for model in models:
        known, name = registered_models().get(model), model_name(model)
        for dtype in (dtype for dtype in dtypes if known is None or dtype in known.dtypes):
            try:
                run = sme2_kit.profile(model, dtype=dtype, out=work / f"{name}-{dtype}", budget_s=25)
            except KitError as error:
                tell(f"{model} {dtype}: {error}\n")
                continue
            row = judge_prediction(run, roofs, name)
            if row is not None:
                found.append(row)
                tell(f"{model} {dtype}: {row.error:+.1%}\n")
    return found


def judge_prediction(run: RunView, roofs: Roofs, model: str) -> Switched | None:
    """Return what was predicted of a run against what it measured; None if nothing was switched in it."""
    if not run.summary.comparisons:
        return None
    pair = run.summary.comparisons[0]
    records = [run.manifest.experiments[name] for name in (pair.before, pair.after)]
    measured = [
        roofs.measurement(run.summary.dtype, r.features.active if r.features else [], r.threads) for r in records
    ]
    if measured[0] is None or measured[1] is None:
        return None
    switch = Switch(measured[0], measured[1])
    off, on = (run.summary.experiments[name].breakdown for name in (pair.before, pair.after))
    gains = switch.gains(off)
    matrix = [(x, gain) for x, gain in zip(off.instances, gains, strict=True) if x.category in ("CONV", "GEMM")]
    after = [entry for entry in on.instances if entry.category in ("CONV", "GEMM")]
    errors = [
        entry.ms / gain.times / there.ms - 1
        for (entry, gain), there in zip(matrix, after, strict=len(matrix) == len(after))
        if there.ms >= SHORTEST_MS
    ]
    feature = ", ".join(switch.switched)
    return Switched(model, run.summary.dtype, feature, off.execute_ms, predicted_ms(off, gains), on.execute_ms, errors)


def switched_table(rows: list[Switched], roofs: Roofs) -> str:
    wholes = [abs(row.error) for row in rows]
    operators = [abs(error) for row in rows for error in row.operators]
    lines = [
        f"Measured on {roofs.cpu}, roofs of {roofs.created[:10]}. Predicted is the whole of `Method::execute` with the "
        "feature on, from its time with the feature off; operators are CONV and GEMM of "
        f"{SHORTEST_MS * 1000:.0f} us or more.",
        "",
        "| model | dtype | switched | off | on, predicted | on, measured | error | operators' median error |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        own = f"{statistics.median(map(abs, row.operators)):.0%} of {len(row.operators)}" if row.operators else "none"
        lines.append(
            f"| {row.model} | {row.dtype} | {row.feature} | {row.off_ms:.3f} ms | {row.predicted:.3f} ms | "
            f"{row.on_ms:.3f} ms | {row.error:+.1%} | {own} |"
        )
    lines += ["", _distribution("Whole models", wholes), _distribution("CONV and GEMM operators", operators)]
    return "\n".join(lines)


def _distribution(what: str, errors: list[float]) -> str:
    if len(errors) < 2:
        return f"{what}: too few to tell."
    deciles = statistics.quantiles(errors, n=10, method="inclusive")
    return (
        f"{what} ({len(errors)}): median absolute error **{statistics.median(errors):.1%}**, nine in ten below "
        f"{deciles[-1]:.0%}, worst {max(errors):.0%}.\n"
    )


def published_table(work: Path) -> str:
    """Return SqueezeSAM's forecast beside the published numbers, which the target must not be derived from."""
    lines = []
    target = read_target(DEFAULT)
    assert isinstance(target, Target)
    target.refuse_test("squeeze_sam")
    for dtype, published in PUBLISHED.items():
        run = sme2_kit.profile("squeeze_sam", dtype=dtype, out=work / f"squeeze_sam-{dtype}", budget_s=40)
        forecast = sme2_kit.forecast(run, _kernels("squeeze_sam", dtype, work, {"resolution": 256}))[-1]
        before, after = forecast.without or forecast.now, forecast.predictions[-1]
        totals = [sum(pair[side] for pair in published.values()) for side in (0, 1)]
        bounds, moving = forecast.speedup_range or (0.0, 0.0), after.shares["Data Movement"]
        lines += [
            f"### {dtype}",
            "",
            "| | published off | predicted off | published on | predicted on | published gain | predicted gain |",
            "|---|---:|---:|---:|---:|---:|---:|",
        ]
        ours = [published_categories(stage, conversions(run, forecast.experiment)) for stage in (before, after)]
        for name, (off, on) in published.items():
            lines.append(
                f"| {name} | {off / totals[0]:.0%} | {ours[0][name] / before.predicted_ms:.0%} | "
                f"{on / totals[1]:.0%} | {ours[1][name] / after.predicted_ms:.0%} | "
                f"{off / on:.1f}x | {ours[0][name] / ours[1][name]:.1f}x |"
            )
        lines += [
            f"| whole | {totals[0]} ms | | {totals[1]} ms | | {totals[0] / totals[1]:.2f}x | "
            f"**{forecast.speedups[-1]:.2f}x** ({bounds[0]:.2f} to {bounds[1]:.2f}) |",
            "",
            f"With conversions between dtypes, Data Movement is {moving:.0%} of the predicted time on.",
            "",
        ]
    return "\n".join(lines)


def published_categories(stage: Prediction, converting_ms: float) -> dict[str, float]:
    """Return milliseconds by the categories of the published picture: what is none of the first three is Other."""
    ms = {name: share * stage.predicted_ms for name, share in stage.shares.items()}
    found = {name: ms.pop(name) for name in ("CONV", "GEMM", "Data Movement")}
    found["Data Movement"] -= converting_ms
    return {**found, "Other": sum(ms.values()) + converting_ms}


def conversions(run: RunView, experiment: str) -> float:
    """Return conversions between dtypes (quantizing and back), which the kit counts as data movement.

    The kit of the published picture lists transposes, reshapes, layout conversions and copies as that.
    """
    instances = run.summary.experiments[experiment].breakdown.instances
    return sum(entry.ms for entry in instances if entry.kind == "convert")


def _kernels(model: str, dtype: str, work: Path, settings: dict[str, int] | None) -> sme2_kit.Run:
    """Return which operators SME2 runs, seen under emulation, of a smaller image where that has the same operators."""
    stem = model.rpartition(":")[2].lower()
    out = work / f"{stem}-{dtype}-small"
    if (out / "kernels" / "manifest.json").is_file():
        return sme2_kit.open_run(out / "kernels")
    small = sme2_kit.export(model, dtype=dtype, out=out / "artifacts", settings=settings)
    return sme2_kit.kernels(small, levels=["sme2"], out=out / "kernels")


def replace_part(text: str, name: str, content: str) -> str:
    """Put content between the page's markers of that name."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = text.partition(start)
    return f"{before}{start}\n\n{content}\n\n{end}{rest.partition(end)[2]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--work", type=Path, default=Path("out_forecast"), metavar="DIR")
    parser.add_argument("--only", choices=("published", "switched"))
    parser.add_argument("--models", nargs="*", help="predict these from what this machine can switch, and print it")
    args = parser.parse_args()
    text = PAGE.read_text()
    if args.only != "published":
        first = sme2_kit.profile("toy_cnn", dtype="fp16", out=args.work / "toy_cnn-fp16", budget_s=25)
        roofs = known_roofs(str(first.manifest.environment.get("cpu"))) or sme2_kit.roofs()
        table = switched_table(switched(roofs, args.work, args.models or sorted(registered_models())), roofs)
        text = replace_part(text, "switched", table)
        if args.models:
            tell(table + "\n")
            return
    if args.only != "switched":
        text = replace_part(text, "squeeze_sam", published_table(args.work))
        for name, table_of in TABLES.items():
            text = replace_part(text, name, table_of())
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
