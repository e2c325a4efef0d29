"""The workflow that users copy, executed as GitHub would."""

import os
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from tests.conftest import QUICK, ROOT
from tests.helpers.workspace import fresh_workspace

pytestmark = pytest.mark.wide


def test_the_workflows_steps_work_on_two_checkouts(tmp_path: Path) -> None:
    """As GitHub would run them, less the checkouts and pip: a base and a change that are the same."""
    pytest.importorskip("executorch.exir")
    content = yaml.safe_load((ROOT / ".github" / "workflows" / "performance.yml").read_text())
    environment = {**os.environ, **content["env"], **QUICK, "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    for side in ("base", "change"):
        fresh_workspace(tmp_path / side)
    steps = {step["name"]: step["run"] for step in content["jobs"]["gate"]["steps"] if "run" in step}
    for name in ("Export both", "Gate", "Report on the change"):
        command = ["bash", "-eo", "pipefail", "-c", steps[name]]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        # Base and change are the same program and are measured in turns, so that they also pass on a busy machine.
        assert done.returncode == 0, done.stdout + done.stderr
    suite = ET.parse(tmp_path / "runs" / "performance.xml").getroot()
    assert len(list(suite.iter("testcase"))) == 1
    assert "fp16" in (tmp_path / "summary.md").read_text()
    assert (tmp_path / "runs" / "change" / "report.html").is_file()
