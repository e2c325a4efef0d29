"""One small language model exported and measured in every phase and format: writes the numbers of docs/llm.md.

    python -m benchmarks.llm_page [--work DIR]     # export, measure, write the page; half an hour, most of it exports
    python -m benchmarks.llm_page --print          # the tables alone, printed

What was exported or measured already, in DIR, is taken from there. Run it on a quiet machine.
"""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

import sme2_kit
from benchmarks.validate_forecast import replace_part
from model_profiling.base.errors import KitError
from model_profiling.base.printing import tell
from model_profiling.platforms.environment import describe_host
from model_profiling.report import numbers
from model_profiling.tune.formats import FORMATS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "llm.md"
MODEL = "smollm2_135m"
# The format that most language models are shipped in.
USUAL = "int4"
DEPTHS = (0, 128, 512, 1024)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def phases(work: Path, layers: int, budget_s: float) -> str:
    """Return the usual format: prefill, and decode at several depths, with its accelerator on and off."""
    made = sme2_kit.export(MODEL, dtype=USUAL, settings={"layers": layers}, out=work / "tune" / USUAL)
    run = sme2_kit.run(made, depths=DEPTHS, out=work / "run", budget_s=budget_s)
    metrics = run.metrics
    rows = []
    for pair in metrics.comparisons:
        before, after = metrics.experiments[pair.before].phase, metrics.experiments[pair.after].phase
        assert before is not None and after is not None
        known = pair.high is not None
        bounds = f" ({pair.low:.2f} to {pair.high:.2f})" if known else " (too few launches for an interval)"
        busy = ", on a busy machine" if pair.contended else ""
        time = after.ttft_ms or after.tpot_ms
        rates = [numbers.rate(phase.token_per_sec) if phase.token_per_sec else "-" for phase in (before, after)]
        rows.append([after.label, *rates, numbers.ms(time) if time else "-", f"**{pair.ratio:.2f}x**{bounds}{busy}"])
    off, on = run.sides(metrics.comparisons[0].before, metrics.comparisons[0].after)
    names = [side.replace(f" ({rows[0][0]})", "") for side in (off, on)]
    head = ["phase", *(f"tokens/s, {name}" for name in names), "to the first token, or a token", "faster"]
    return "\n\n".join([table(head, rows), _layers(run)])


def _layers(run: sme2_kit.Run) -> str:
    names = [name for name in run.of_interest if run.summary.experiments[name].layer_kinds]
    found = [run.summary.experiments[name].layer_kinds for name in names]
    kinds = dict.fromkeys(kind for each in found for kind in each)
    rows = [[kind, *(f"{each.get(kind, 0.0) / sum(each.values()):.1%}" for each in found)] for kind in kinds]
    return table(["share of the time", *(run.phase(name) for name in names)], rows)


def formats(work: Path, layers: int, budget_s: float) -> str:
    """Return every weight format, measured side by side."""
    result = sme2_kit.tune(MODEL, dtype="fp32", settings={"layers": layers}, out=work / "tune", budget_s=budget_s)
    made = [(entry.name, entry.format) for entry in result.tried if entry.format is not None]
    head = ["format", *(f"{p.metrics.label} tokens/s" for p in made[0][1].phases), "KL", "SQNR", ".pte", "peak memory"]
    rows = []
    for name, found in made:
        rates = [numbers.rate(phase.metrics.token_per_sec or 0.0) for phase in found.phases]
        worst = max((p.kl_divergence for p in found.phases if p.kl_divergence is not None), default=None)
        sqnr = [p.agreement.sqnr_db for p in found.phases if p.agreement and p.agreement.sqnr_db is not None]
        accuracy = ["-" if worst is None else f"{worst:.2g}", f"{min(sqnr):.1f} dB" if sqnr else "-"]
        sizes = [f"{found.file_bytes / 2**20:.0f} MiB", f"{(found.peak_bytes or 0) / 2**20:.0f} MiB"]
        rows.append([f"`{name}`", *rates, *accuracy, *sizes])
    failed = [f"`{entry.name}` could not be made: {entry.failure}" for entry in result.tried if entry.failure]
    return "\n\n".join([table(head, rows), *failed])


def kernels(work: Path) -> str:
    """Return which kernels each format runs on in both phases: the same in every layer, so that one is enough."""
    rows = []
    for dtype in FORMATS:
        made = sme2_kit.export(MODEL, dtype=dtype, settings={"layers": 1}, out=work / "one_layer" / dtype)
        try:
            run = sme2_kit.kernels(made, levels=["sme2"], out=work / "kernels" / dtype)
        except KitError as error:
            rows.append([f"`{dtype}`", f"not known: {error.message}", "", ""])
            continue
        for name, experiment in run.summary.experiments.items():
            found = experiment.coverage
            assert found is not None
            for entry in found.formats:
                names = (kernel.removeprefix("kai_run_matmul_clamp_") for kernel in entry.kernels)
                shown = ", ".join(f"`{name}`" for name in names) or "none of KleidiAI"
                on = "not known" if entry.on_sme2 is None else f"{entry.on_sme2} of {entry.operators}"
                rows.append([f"`{dtype}`: {entry.weights}", run.phase(name), on, shown])
    return table(["format", "phase", "on SME2", "kernels"], rows)


def _model(layers: int) -> str:
    return f"{MODEL} with {'all 30' if layers == 30 else f'{layers} of 30'} layers"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--work", type=Path, default=Path("out_llm"), metavar="DIR")
    parser.add_argument("--layers", type=int, default=30, metavar="N", help="of the usual format (default: all 30)")
    parser.add_argument("--format-layers", type=int, default=8, metavar="N", help="of all formats (default: 8)")
    parser.add_argument("--budget", type=float, default=60.0, metavar="S", help="seconds for each measurement")
    parser.add_argument("--print", action="store_true", help="print the tables, leave the page as it is")
    args = parser.parse_args()
    cpu = describe_host().get("cpu") or "unknown CPU"
    said = f"on {cpu}, one thread, measured in turns."
    parts = {
        "which weights get SME2": kernels(args.work),
        "formats": f"{_model(args.format_layers)} {said}\n\n{formats(args.work, args.format_layers, args.budget)}",
        "phases": f"{_model(args.layers)} {said} Ratios with their 95 % interval.\n\n"
        + phases(args.work, args.layers, args.budget),
    }
    if args.print:
        tell("\n\n".join(parts.values()) + "\n")
        return
    text = PAGE.read_text()
    for name, part in parts.items():
        text = replace_part(text, name, part)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
