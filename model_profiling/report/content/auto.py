"""What `--rewrite auto` brings: the run's program and the rewritten one, measured in turns by `profile`."""

from pathlib import Path

from model_profiling.analysis.compare.auto_comparison import AutoComparison
from model_profiling.base.installation import relative_to_here
from model_profiling.base.rewrites import AUTO
from model_profiling.report.blocks import Block, Bullets, Paragraph, Section
from model_profiling.report.content.runtimes import by_line
from model_profiling.report.words import factor


def sentence(found: AutoComparison) -> str:
    """Return the verdict in one line, with the program if it is faster."""
    if not found.pairs:
        return f"`--rewrite {AUTO}` {found.reason}."
    outputs = {True: ", outputs agree", False: ", but outputs differ from eager PyTorch's", None: ""}
    said = []
    for pair in found.pairs:
        (value, note), latency = factor(pair.latency), pair.latency
        bounds = f"{latency.low:.2f} to {latency.high:.2f}" if latency.verdict == "faster" and latency.high else note
        said.append(f"{value} ({bounds}{'; the machine was busy' if latency.contended else ''})")
    faster = any(pair.latency.verdict == "faster" for pair in found.pairs)
    where = f": {relative_to_here(Path(found.pte))}" if faster and found.outputs_agree is not False else ""
    return f"`--rewrite {AUTO}`: {', '.join(said)}{outputs[found.outputs_agree]}{where}"


def section(found: AutoComparison | None) -> Section | None:
    """Return what was rewritten and which lines changed; None where nothing was measured."""
    if found is None or not found.pairs:
        return None
    names = [f"{each.name}{'' if each.applied else ' left out'}: {each.reason}" for each in found.choices]
    blocks: list[Block] = [Paragraph(sentence(found)), Bullets(names)]
    for pair in found.pairs:
        if pair.changes is not None:
            blocks += by_line(pair.changes)
    return Section("auto", f"With --rewrite {AUTO}", blocks)
