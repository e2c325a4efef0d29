"""What `tools/analyze_etdump_csv.py` tells of one or two timeline CSVs, and the tables it leaves behind."""

import re
from collections.abc import Callable
from pathlib import Path

from model_profiling.analysis.compare.comparison import compare_profiles
from model_profiling.analysis.run.dumps import AnalysisSummary, analysed_profile
from model_profiling.analysis.timing.breakdown import break_down
from model_profiling.analysis.timing.profile import Profile
from model_profiling.base import files
from model_profiling.report.files import tables
from model_profiling.report.terminal import run_text


def report_timelines(
    sides: list[tuple[str, Profile]], output_directory: Path | None, verbose: bool, write: Callable[[Path, str], None]
) -> None:
    """Print the analysis of the timelines, and have their operators and comparison written as CSV and JSON."""
    experiments = {name: analysed_profile(profile) for name, profile in sides}
    comparisons = []
    if len(sides) == 2:
        before, after = [(name, profile, break_down(profile)) for name, profile in sides]
        comparisons = [compare_profiles(before, after, paired=False)]
    summary = AnalysisSummary("", "", "", experiments, comparisons, None, [])
    run_text.show_analysis(summary, most_operators=1000 if verbose else run_text.MOST_OPERATORS)
    if output_directory is None:
        return
    write(output_directory / "operator_analysis.json", files.json_bytes(summary).decode())
    for name, experiment in experiments.items():
        file = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
        write(output_directory / f"{file}_ops_stats.csv", tables.operators_csv(experiment.breakdown))
    for comparison in comparisons:
        write(output_directory / "operator_comparison.csv", tables.changes_csv(comparison))
