"""The findings that are not on the first screen."""

from model_profiling.analysis.run.run_view import RunView
from model_profiling.report.blocks import Block, Paragraph, Section
from model_profiling.report.content.first_screen import MOST_ACTIONS, advice_block


def section(run: RunView) -> Section | None:
    if not run.measured:
        return None
    blocks: list[Block] = []
    for number, name in enumerate(run.of_interest):
        findings = run.summary.experiments[name].advice[MOST_ACTIONS if number == 0 else 0 :]
        if findings and len(run.of_interest) > 1:
            blocks.append(Paragraph(f"For {run.label(name)}:"))
        blocks += [advice_block(run, name, finding) for finding in findings]
    return Section("findings", "More to do", blocks) if blocks else None
