"""What `kernels` answers an assistant of its times: a trace is never timing, and only an emulator's is emulated."""

import json
import shutil
from pathlib import Path

import pytest

from model_profiling.mcp_server import results
from model_profiling.report.kernel_view import kernels_data
from sme2_kit import Run
from tests.conftest import ROOT


@pytest.mark.parametrize(("timing", "expected"), [("measured", "traced"), ("emulated", "emulated")])
def test_kernels_say_what_ran_them(timing: str, expected: str, tmp_path: Path) -> None:
    home = tmp_path / "run"
    shutil.copytree(ROOT / "tests" / "data" / "known_good_run", home)
    raw = json.loads((home / "manifest.json").read_text())
    raw["timing"] = timing
    (home / "manifest.json").write_text(json.dumps(raw))
    data = kernels_data(Run.open(home))
    assert data.timing == expected
    assert results.kernels("run", data).timing == expected
