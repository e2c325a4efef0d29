"""Rows of the Python API have what the analysis found, by the same names."""

from pathlib import Path

from model_profiling.analysis.timing.breakdown import CategoryTime
from model_profiling.api.records import Records
from model_profiling.api.rows import CategoryRow


def test_rows_leave_times_open_where_none_were_measured_and_become_tables(tmp_path: Path) -> None:
    found = CategoryTime("CONV", 1.5, 0.5, 3)
    row = CategoryRow.of(found, experiment="on")
    assert (row.experiment, row.category, row.ms, row.share, row.instances) == ("on", "CONV", 1.5, 0.5, 3)
    untimed = CategoryRow.of(None, found, experiment="on", category="GEMM", timed=False)
    assert untimed.ms is untimed.share is None and untimed.instances == 3
    rows = Records([row, untimed])
    assert list(rows.filter(category="GEMM")) == [untimed] and not rows.filter(category="GEMM", experiment="off")
    written = rows.to_csv(tmp_path / "rows.csv").read_text(encoding="utf-8").splitlines()
    assert written == ["experiment,category,ms,share,instances", "on,CONV,1.5,0.5,3", "on,GEMM,,,3"]
