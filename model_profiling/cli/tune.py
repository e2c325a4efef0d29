"""`sme2-kit tune MODEL`: try what may make it faster, measured side by side, and keep the best program."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model_profiling.base.installation import relative_to_here
from model_profiling.base.printing import say_json, tell
from model_profiling.cli import count_flags, platform_flags, shared_flags
from model_profiling.cli.export import add_model, add_options, chosen_model, load_options, options_given
from model_profiling.cli.next_step import ending
from model_profiling.cli.progress import progress

if TYPE_CHECKING:
    from model_profiling.analysis.timing.latency import Comparison
    from model_profiling.base.on_progress import OnProgress
    from model_profiling.platforms.base import Platform
    from model_profiling.tune.tune_result import TriedVariant, TuneResult

HELP = "find the fastest program of a model: try what may help, measure in turns, keep the best .pte"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_options(parser, "tune")
    shared_flags.add_out(parser, "default: out_<model>/tune")
    count_flags.prepare_parser(parser, "of each variant")
    parser.add_argument(
        "--tokens", type=Path, metavar="FILE", help="of a language model: a .npy of int64 ids; adds their perplexity"
    )
    parser.add_argument(
        "--worst-layers",
        type=int,
        default=0,
        metavar="N",
        help="instead of all that: keep up to N of the layers that lose most accuracy in fp32",
    )
    add_min_sqnr(parser)
    parser.add_argument("--force", action="store_true", help="export and measure again what is already there")
    platform_flags.prepare_parser(parser)
    parser.add_argument(
        "--json", action="store_true", help="print tune.json: every variant, its latency and agreement, and the winner"
    )


def add_min_sqnr(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--min-sqnr",
        type=float,
        metavar="DB",
        help="try every data type, and keep none whose outputs have less signal to noise than this against eager "
        "PyTorch in fp32 (default: 30, and right for its data type)",
    )


def run(args: argparse.Namespace) -> int:
    _, name = chosen_model(args)
    count_flags.counts(args)  # says which flag is wrong
    home = args.out or Path(f"out_{name}") / "tune"
    with platform_flags.chosen_platform(args) as platform, progress() as report:
        result = tuned(args, home, platform, report, tokens=args.tokens, worst_layers=args.worst_layers)
    if args.json:
        say_json(result)
    else:
        tell(as_text(result))
        show_changes(result)
        if any(entry.pareto is not None for entry in result.tried):
            from model_profiling.tune.pareto_picture import write_picture

            tell(f"  picture:   {relative_to_here(write_picture(result, home))}\n")
        tell(ending(following=following(result)))
    return 0


def tuned(
    args: argparse.Namespace, home: Path, platform: "Platform", report: "OnProgress", **more: Any
) -> "TuneResult":
    """Tune the model that the command line names, with its options."""
    from model_profiling import api
    from model_profiling.export.options import options_of

    target, _ = chosen_model(args)
    options, given = load_options(args), options_given(args)
    threads = args.threads or 1
    return api.tune(
        target,
        threads=threads if isinstance(threads, int) else threads[0],
        runs=args.runs,
        launches=args.launches,
        budget_s=args.budget,
        out=home,
        input_shapes=[str(spec) for spec in options.inputs],
        settings=dict(options.settings),
        checkpoint=options.checkpoint,
        force=args.force,
        min_sqnr_db=args.min_sqnr,
        platform=platform,
        on_progress=report,
        **more,
        **{row.name: given[row.name] for row in options_of("tune") if row.name in given},
    )


def show_changes(result: "TuneResult") -> None:
    """Print which lines of the winner take another time than those of the baseline."""
    from model_profiling.report.terminal import changes_text

    if result.changes is not None:
        changes_text.show_changes(result.changes)


def following(result: "TuneResult") -> list[object]:
    """Return the next command: what was gained, measured once more; or where the time goes of what is there."""
    program, base = Path(result.program), Path(result.baseline_program)
    return ["compare", base, program] if result.winner else ["profile", program]


def as_text(result: "TuneResult") -> str:
    from model_profiling.report.terminal.text_table import table

    if any(entry.format is not None for entry in result.tried):
        return _formats_as_text(result)
    if any(entry.pareto is not None for entry in result.tried):
        return _worst_layers_as_text(result)
    head = ("variant", "median", "speedup (95 % interval)", "SQNR", "outputs", "why it was tried")
    made = [entry for entry in result.tried if not entry.failure and entry.median_ms is not None]
    rows = [head, *(_row(entry, result.baseline) for entry in made)]
    lines = [f"{result.model} on {result.platform}, against {result.baseline}; fastest first", ""]
    lines += table(rows, words=1, left={2, 3, 4, 5})
    lines += [f"  {entry.name}: could not be made: {entry.failure}" for entry in result.tried if entry.failure]
    lines += [f"  {entry.name}: the same program as {entry.same_as}" for entry in result.tried if entry.same_as]
    disturbed = [entry.name for entry in made if entry.comparison and entry.comparison.contended]
    if disturbed:
        lines += ["", f"  warning: the machine was busy while {', '.join(disturbed)} ran; measure again with --force"]
    winner = next((entry for entry in result.tried if entry.name == result.winner), None)
    kept = _undecided(result) if winner is None else [f"keep {winner.name}:  {winner.command}", *_gains(result, winner)]
    program = f"program:   {relative_to_here(Path(result.program))}"
    return "\n".join([*lines, "", *(f"  {sentence}" for sentence in [*kept, program]), ""])


def _gains(result: "TuneResult", winner: "TriedVariant") -> list[str]:
    """Say what the whole gained, what each change did, and what is as fast."""
    from model_profiling.report import numbers

    def gained(compared: "Comparison") -> str:
        if compared.high is None:
            return f"{numbers.ratio(compared.ratio)}, too few runs to tell"
        if compared.verdict == "no difference seen":
            return "no difference seen"
        return f"{numbers.bounded_speedup(compared.ratio, compared.low, compared.high)}"

    assert winner.comparison is not None
    said = [f"gained:    {gained(winner.comparison)} against {result.baseline}"]
    said += [f"  {number}. {step.change}: {gained(step.comparison)}" for number, step in enumerate(result.steps, 1)]
    said += [f"unsure:    {e.name} looks faster by too few runs: give a larger --budget" for e in result.unsure]
    if result.as_fast:
        said.append(f"as fast:   {', '.join(result.as_fast)} (kept is the most accurate, or what changes least)")
    return said


def _undecided(result: "TuneResult") -> list[str]:
    """Say why nothing is kept, so that no verdict contradicts the table above it."""
    from model_profiling.report import numbers
    from model_profiling.tune.tune_result import LEAST_SQNR_DB

    said = [
        f"the machine was busy: {entry.name} looks {numbers.ratio(entry.comparison.ratio)} faster, measure again with "
        "--force"
        for entry in result.busy
        if entry.comparison is not None
    ]
    said += [
        f"too few runs to tell: {entry.name} looks {numbers.ratio(entry.comparison.ratio)} faster, measure again with "
        "a larger --budget"
        for entry in result.unsure
        if entry.comparison is not None
    ]
    floor = result.min_sqnr_db
    for entry in result.wrong:
        agrees = floor is not None or (entry.agreement is not None and entry.agreement.verdict == "agrees")
        low = f"less accurate than {LEAST_SQNR_DB if floor is None else floor:g} dB (--min-sqnr)"
        said.append(f"{entry.name} is faster, but {low if agrees else 'its outputs do not agree with eager'}")
    if not said:
        return ["no variant is faster (95 % interval) with matching outputs: keep the baseline"]
    return [*said, "keep the baseline until then" if result.busy or result.unsure else "keep the baseline"]


def _formats_as_text(result: "TuneResult") -> str:
    """Return a language model's weight formats: speed by phase, accuracy, memory, and SME2 kernels."""
    from model_profiling.analysis.sme2.sme2_weights import KNOWN_FROM
    from model_profiling.report import numbers
    from model_profiling.report.terminal.text_table import table

    made = [(entry, entry.format) for entry in result.tried if entry.format is not None]
    text = ["perplexity"] if any(found.perplexity is not None for _, found in made) else []
    phases = [phase.metrics.label for phase in made[0][1].phases]
    head = (
        "format",
        *(f"{label} tokens/s" for label in phases),
        "SQNR",
        "KL",
        *text,
        "peak memory",
        "SME2 weights",
        "",
    )
    rows = [head]
    for entry, found in made:
        rates = [p.metrics.token_per_sec for p in found.phases]
        worst = max((p.kl_divergence for p in found.phases if p.kl_divergence is not None), default=None)
        agreements = [p.agreement for p in found.phases if p.agreement is not None]
        sqnr = min((a.sqnr_db for a in agreements if a.sqnr_db is not None), default=None)
        rows.append(
            (
                entry.name,
                *("-" if rate is None else numbers.rate(rate) for rate in rates),
                "-" if sqnr is None else f"{sqnr:.1f} dB",
                "-" if worst is None else f"{worst:.2g}",
                *(["-" if found.perplexity is None else f"{found.perplexity:.4g}"] if text else []),
                "-" if found.peak_bytes is None else numbers.mebibytes(found.peak_bytes),
                "-" if found.sme2_share is None else f"{found.sme2_share:.0%}",
                "baseline" if entry.name == result.baseline else "" if found.pareto else "another is better in all",
            )
        )
    lines = [f"{result.model} on {result.platform}, by weight format; fastest decode first", ""]
    lines += table(rows, words=1)
    lines += [f"  {entry.name}: could not be made: {entry.failure}" for entry in result.tried if entry.failure]
    lines += [
        "",
        "  SQNR and KL divergence (nats) are of logits against eager PyTorch in fp32, the worse of the phases.",
    ]
    lines += [f"  SME2 weights: the part of all linear weights with SME2 kernels ({KNOWN_FROM})."]
    winner = next((entry for entry in result.tried if entry.name == result.winner), None)
    kept = f"keep {winner.name}:  {winner.command}" if winner else "no format decodes faster with matching outputs"
    return "\n".join([*lines, "", f"  {kept}", ""])


def _worst_layers_as_text(result: "TuneResult") -> str:
    """Return what keeping layers in fp32 costs in time and gives in accuracy."""
    from model_profiling.report.terminal.text_table import table

    head = ("variant", "median", "speedup (95 % interval)", "SQNR", "", "what is kept")
    made = [entry for entry in result.tried if not entry.failure and entry.median_ms is not None]
    rows = [head]
    for entry in made:
        name, median, speed, sqnr, _, why = _row(entry, result.baseline)
        rows.append((name, median, speed, sqnr, "" if entry.pareto else "another is faster and better", why))
    lines = [f"{result.model} on {result.platform}, against {result.baseline}; fastest first", ""]
    lines += table(rows, words=1, left={2, 3, 4, 5})
    lines += [f"  {entry.name}: could not be made: {entry.failure}" for entry in result.tried if entry.failure]
    lines += ["", "  SQNR is that of the outputs against eager PyTorch in fp32."]
    lines += [f"  {entry.name}:  {entry.command}" for entry in made if entry.keep_fp32]
    return "\n".join([*lines, ""])


def _row(entry: "TriedVariant", baseline: str) -> tuple[str, ...]:
    from model_profiling.report import numbers

    speed = "baseline" if entry.name == baseline else "-"
    if entry.comparison is not None:
        compared = entry.comparison
        seen = compared.verdict != "no difference seen"
        few = f"{numbers.ratio(compared.ratio)}, too few runs to tell"
        bounded = numbers.bounded_speedup(compared.ratio, compared.low, compared.high) if seen else "~"
        speed = few if compared.high is None else bounded
    agreement = entry.agreement
    sqnr = f"{agreement.sqnr_db:.1f} dB" if agreement and agreement.sqnr_db is not None else "-"
    verdict = "; ".join([agreement.verdict, *agreement.remarks]) if agreement else "-"
    median = "-" if entry.median_ms is None else numbers.ms(entry.median_ms)
    return entry.name, median, speed, sqnr, verdict, entry.reason
