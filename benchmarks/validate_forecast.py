"""Hold the forecast against what is published and against what this machine can switch; writes docs/forecast.md.

    python -m benchmarks.validate_forecast [--work DIR] [--only published|switched]
    python -m benchmarks.validate_forecast --models NAME path/net.py:Net     # these alone, printed and not written

The second is `sme2-kit validate-forecast` with all models. Nothing is fitted: roofs are measured by the probe program,
targets are published numbers, shapes are the model's own.
What was exported or measured already, in DIR, is not measured again.
"""

import argparse
from pathlib import Path
from typing import Any

import sme2_kit
from benchmarks.published import TABLES, refuse_test
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.sme2.forecast_validation import ForecastValidation
from model_profiling.analysis.sme2.target import DEFAULT, Target, read_target
from model_profiling.analysis.sme2.whatif import Prediction
from model_profiling.base.printing import tell
from model_profiling.base.units import counted
from model_profiling.models import registered_models
from model_profiling.report import markdown
from model_profiling.report.blocks import Report, Section
from model_profiling.report.content.validation import models_section

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "forecast.md"
# Milliseconds by category on one core, SME2 off and on: read off a published picture, +-2 ms (Arm, SqueezeSAM).
PUBLISHED = {
    "fp16": {"CONV": (880, 98), "GEMM": (32, 8), "Data Movement": (139, 119), "Other": (109, 72)},
    "int8": {"CONV": (310, 69), "GEMM": (28, 9), "Data Movement": (123, 126), "Other": (93, 98)},
}


def switched_table(found: ForecastValidation) -> str:
    """Return the table by model of what `sme2-kit validate-forecast` found, as Markdown."""
    section = models_section(found)
    text = markdown.render(Report("", "", [], [Section(section.key, "", section.blocks)]))
    return f"Measured on {found.environment.cpu}. " + text.partition("\n")[2].strip()


def published_table(work: Path) -> str:
    """Return SqueezeSAM's forecast beside the published numbers, which the target must not be derived from."""
    lines = []
    target = read_target(DEFAULT)
    assert isinstance(target, Target)
    refuse_test(target, "squeeze_sam")
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


# What ONNX Runtime gained from KleidiAI's SME kernels on an M4 (microsoft/onnxruntime#24346). Neither the number of
# threads is published nor Geekbench's files: these are networks of the same names.
ONNXRUNTIME = {
    ("MobileNetV1", "fp32"): 1.28,
    ("MobileNetV1", "fp16"): 1.23,
    ("DeepLabV3 MobileNetV2", "fp32"): 1.43,
    ("DeepLabV3 MobileNetV2", "fp16"): 1.79,
    ("BERT-tiny", "fp16"): 1.47,
}
_NETWORKS: dict[str, dict[str, Any]] = {
    "MobileNetV1": {"model": "hf:MobileNetV1ForImageClassification"},
    "DeepLabV3 MobileNetV2": {"model": "hf:MobileNetV2ForSemanticSegmentation", "input_shapes": ["1,3,512,512"]},
    "BERT-tiny": {
        "model": "hf:BertModel",
        "settings": {"hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 512},
    },
}
_THREADS = (1, 4)


def onnxruntime_table(work: Path) -> str:
    """Return what another library gained on whole networks, beside what XNNPACK is predicted to gain of such."""
    target = read_target(DEFAULT)
    assert isinstance(target, Target)
    refuse_test(target, "onnxruntime_m4")
    heads = [f"predicted, {counted(threads, 'thread')}" for threads in _THREADS]
    rows = [f"| network | dtype | published | {' | '.join(heads)} |", "|---|---|---:|---:|---:|"]
    for (network, dtype), gain in ONNXRUNTIME.items():
        asked: dict[str, Any] = {
            "dtype": dtype,
            "rewrites": ["none"],
            "out": work / f"{network.replace(' ', '-')}-{dtype}",
        }
        run = sme2_kit.profile(**_NETWORKS[network], **asked, threads=_THREADS, budget_s=2)
        found = {run.manifest.experiments[each.experiment].threads: each for each in sme2_kit.forecast(run)}
        said = [f"{each.ratio:.1f}x ({each.ratio_low:.1f} to {each.ratio_high:.1f})" for each in found.values()]
        rows.append(f"| {network} | {dtype} | {gain:.2f}x | {' | '.join(said)} |")
    return "\n".join(rows)


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
        models = args.models or sorted(registered_models())
        table = switched_table(sme2_kit.validate_forecast(models, out=args.work, budget_s=25))
        text = replace_part(text, "switched", table)
        if args.models:
            tell(table + "\n")
            return
    if args.only != "switched":
        text = replace_part(text, "squeeze_sam", published_table(args.work))
        text = replace_part(text, "onnxruntime", onnxruntime_table(args.work))
        for name, table_of in TABLES.items():
            text = replace_part(text, name, table_of())
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
