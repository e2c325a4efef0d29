"""The files that the learning path's plan names beside the commands: what they say is so."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from model_profiling.cli.main import make_parser
from model_profiling.models import registered_models
from model_profiling.pipeline.config import MODES, parse_config
from tests.conftest import ROOT, kit

EXPORT = ROOT / "model_profiling" / "export"
TEMPLATES = ROOT / "model_profiling" / "configs" / "templates"
KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"


def documented_commands() -> list[str]:
    """Every `sme2-kit` command of EXPORT_COMMANDS.md, from its blocks and its tables."""
    text = (EXPORT / "EXPORT_COMMANDS.md").read_text()
    lines = [line for block in re.findall(r"```bash.*?\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    quoted = re.findall(r"`(sme2-kit [^`]+)`", text)
    return [line for line in [*lines, *quoted] if line.startswith("sme2-kit ")]


@pytest.mark.parametrize("command", sorted(set(documented_commands())))
def test_a_documented_export_command_parses(command: str) -> None:
    words = shlex.split(command, comments=True)[1:]
    _, unknown = make_parser(words[:1]).parse_known_args(words)
    assert not unknown


def test_the_table_of_exports_is_that_of_the_registry() -> None:
    text = (EXPORT / "EXPORT_COMMANDS.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| `sme2-kit export (\w+) --dtype ([\w-]+)` \|$", text, re.MULTILINE)
    assert {name: dtypes.split(", ") for name, dtypes, _, _ in rows} == {
        name: list(model.dtypes) for name, model in registered_models().items()
    }
    assert all(name == exported and dtype in dtypes.split(", ") for name, dtypes, exported, dtype in rows)
    options = re.findall(r"--[a-z][a-z-]*", text.split("## Options")[1].split("## What")[0])
    flags = {flag for action in _export_actions() for flag in action.option_strings}
    assert set(options) <= flags


def _export_actions() -> list[Any]:
    (commands,) = [action for action in make_parser(["export"])._actions if action.dest == "command"]
    assert isinstance(commands.choices, dict)
    actions: list[Any] = commands.choices["export"]._actions
    return actions


def fake_kit(home: Path, models: list[dict[str, Any]]) -> dict[str, str]:
    """A PATH on which `sme2-kit` lists these models, and writes down what it is asked to export; `broken` fails."""
    (home / "models.json").write_text(json.dumps(models))
    program = home / "sme2-kit"
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = models ]; then cat "{home}/models.json"; exit 0; fi\n'
        f'echo "$*" >> "{home}/asked"\ncase "$2" in broken*) exit 1;; esac\n'
    )
    program.chmod(0o755)
    # The only Python is called python3, as on Debian.
    for name, found in {"python3": sys.executable, "cat": shutil.which("cat")}.items():
        (home / name).symlink_to(str(found))
    return {"PATH": str(home)}


def export_all(home: Path, env: dict[str, str], *names: str) -> tuple[int, list[str], str]:
    (home / "asked").write_text("")
    command = [shutil.which("bash") or "bash", str(EXPORT / "export_all_models.sh"), *names]
    done = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, check=False)
    return done.returncode, (home / "asked").read_text().splitlines(), done.stderr


def test_all_models_are_exported_in_their_dtypes_and_a_failure_does_not_end_it(tmp_path: Path) -> None:
    """The script with a kit that writes down what it is asked; the exports themselves are tested elsewhere."""
    models = [
        {"name": "a", "source": "kit", "missing": [], "dtypes": ["fp32", "fp16"]},
        {"name": "broken", "source": "kit", "missing": [], "dtypes": ["fp32"]},
        {"name": "c", "source": "kit", "missing": ["timm"], "dtypes": ["fp32"]},
        {"name": "d", "source": "kit", "missing": [], "dtypes": ["int8"]},
        {"name": "defect", "source": "kit", "missing": [], "description": "broken: no such module"},
        {"name": "theirs", "source": "executorch", "missing": []},
    ]
    env = fake_kit(tmp_path, models)
    code, asked, said = export_all(tmp_path, env)
    wanted = [("a", "fp32"), ("a", "fp16"), ("broken", "fp32"), ("d", "int8")]
    assert asked == [f"export {name} --dtype {dtype}" for name, dtype in wanted]
    assert code == 1 and "failed: broken fp32" in said and "skipped c: needs timm" in said
    code, asked, _ = export_all(tmp_path, {**env, "DTYPES": "fp16 int4"})
    assert (code, asked) == (0, ["export a --dtype fp16"])
    code, asked, _ = export_all(tmp_path, {**env, "DTYPES": "fp16"}, "theirs", "dir/net.py:Net")
    assert (code, asked) == (0, ["export theirs --dtype fp16", "export dir/net.py:Net --dtype fp16"])
    code, asked, said = export_all(tmp_path, {**env, "DTYPES": "fp64"})
    assert (code, asked) == (2, []) and "nothing to export in fp64" in said
    code, asked, said = export_all(tmp_path, {**env, "PYTHON": "no-such-python"})
    assert (code, asked) == (3, []) and "error: no-such-python" in said and "fix: " in said
    (tmp_path / "sme2-kit").unlink()
    code, _, said = export_all(tmp_path, env)
    assert code == 3 and "fix: " in said


def test_the_trace_template_has_no_timing_experiment(tmp_path: Path) -> None:
    raw = json.loads((TEMPLATES / "trace_template.json").read_text())
    raw["model"] = str(tmp_path / "net.pte")
    (tmp_path / "net.pte").touch()
    config = parse_config(raw, "trace_template.json")
    assert {MODES[experiment.mode] for experiment in config.experiments} == {"trace"}
    assert config.analysis.compare_pairs == [("trace_sme2_off", "trace_sme2_on")]


def test_every_number_of_the_report_template_is_where_it_says(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(KNOWN_GOOD, run)
    assert kit("report", run).returncode == 0 and kit("analyze", run).returncode == 0
    text = (TEMPLATES / "report_template.md").read_text()
    named = re.findall(r"<([a-z_]+\.json): ([\w.]+)>", text)
    assert len(named) > 30 and {file for file, _ in named} == {"metrics.json", "analysis_summary.json", "manifest.json"}
    names = {"ON": "linux_fp16arith_on", "OFF": "linux_fp16arith_off"}
    for file, path in named:
        value = json.loads((run / file).read_text())
        for part in path.split("."):
            value = value[int(part)] if part.isdecimal() else value[names.get(part, part)]
    for picture in re.findall(r"\]\(([\w/]+\.png)\)", text):
        assert (run / picture).is_file(), picture
    report = (run / "report.md").read_text()
    assert "How to reproduce: `" in report
