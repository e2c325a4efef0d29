"""`<model_stem>_pipeline_summary.json` and `.md`: what a run found, short enough to paste."""

from model_profiling.analysis.metrics import Metrics
from model_profiling.report.words import agreement_sentence, comparison_sentence
from model_profiling.run_directory import Manifest


def as_data(manifest: Manifest, metrics: Metrics) -> dict[str, object]:
    return {
        "model": manifest.model,
        "platform": manifest.platform,
        "environment": manifest.environment,
        "status": manifest.status,
        "updated": manifest.updated,
        "experiments": metrics.experiments,
        "comparisons": metrics.comparisons,
        "agreements": metrics.agreements,
    }


def as_markdown(manifest: Manifest, metrics: Metrics) -> str:
    """The same as a page of Markdown."""
    lines = [f"# {metrics.model} on {metrics.platform}", ""]
    lines += [f"- {comparison_sentence(comparison)}" for comparison in metrics.comparisons]
    lines += [f"- {agreement_sentence(agreement)}" for agreement in metrics.agreements]
    lines += ["", "| experiment | status | switched off | median ms | MAD ms | p95 ms | runs | latency from |"]
    lines += ["|---|---|---|---:|---:|---:|---:|---|"]
    for name, experiment in metrics.experiments.items():
        latency = experiment.latency
        numbers = [f"{v:.4f}" for v in (latency.median_ms, latency.mad_ms, latency.p95_ms)] if latency else ["", "", ""]
        cells = [name, experiment.status, ", ".join(experiment.disabled) or "nothing", *numbers]
        cells += [str(latency.runs) if latency else "", experiment.latency_source]
        lines.append("| " + " | ".join(cells) + " |")
    environment = manifest.environment
    lines += ["", f"CPU: {environment.get('cpu', environment.get('arch'))}. Model SHA-256: `{manifest.model.sha256}`."]
    return "\n".join(lines) + "\n"
