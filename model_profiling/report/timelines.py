"""What `tools/analyze_etdump_csv.py` tells of one or two timeline CSVs, and the tables it leaves behind."""

import re
from pathlib import Path

from model_profiling import files
from model_profiling.analysis.breakdown import break_down
from model_profiling.analysis.comparison import compare_profiles
from model_profiling.analysis.dumps import AnalysisSummary, analysed_profile
from model_profiling.analysis.profile import Profile
from model_profiling.report import tables, terminal


def report_timelines(sides: list[tuple[str, Profile]], output_directory: Path | None, verbose: bool) -> list[Path]:
    """Print the analysis of the timelines, write their operators and comparison as CSV and JSON, and say where."""
    experiments = {name: analysed_profile(profile) for name, profile in sides}
    comparisons = []
    if len(sides) == 2:
        before, after = [(name, profile, break_down(profile)) for name, profile in sides]
        comparisons = [compare_profiles(before, after, paired=False)]
    summary = AnalysisSummary("", "", "", experiments, comparisons, None, [])
    terminal.show_analysis(summary, most_operators=1000 if verbose else terminal.MOST_OPERATORS)
    if output_directory is None:
        return []
    written = [output_directory / "operator_analysis.json"]
    files.write_json(written[0], summary)
    for name, experiment in experiments.items():
        file = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
        written.append(output_directory / f"{file}_ops_stats.csv")
        files.write_text(written[-1], tables.operators_csv(experiment.breakdown))
    for comparison in comparisons:
        written.append(output_directory / "operator_comparison.csv")
        files.write_text(written[-1], tables.changes_csv(comparison))
    return written
