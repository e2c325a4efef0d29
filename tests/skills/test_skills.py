"""The skills: whole, one text in two forms, and each with a gate that opens and shuts."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from model_profiling.base.errors import InputError
from model_profiling.skills.catalogue import Skill, find_skill, parse_skill, skills
from model_profiling.skills.checks import SkillWorkspace, check_skill
from tests.conftest import ROOT, TORCH, needs
from tests.helpers.kit_here import kit_here

NAMES = [
    *("01_setup_workspace", "02_build_runners", "03_export_model", "04_run_profiling", "05_analyze_results"),
    *("06_validate_workflow", "07_report_generation", "08_onboard_edgetam"),
]
SECTIONS = ("## Inputs", "## Steps", "## Expected outputs", "## Verify", "## If it fails")
KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"


def test_the_eight_skills_of_the_learning_path_are_there() -> None:
    assert [skill.name for skill in skills()] == NAMES
    readme = (ROOT / "agent_skill_ml_profiling" / "readme.md").read_text()
    for name in NAMES:
        assert f"({name}.md)" in readme


@pytest.mark.parametrize("skill", skills(), ids=lambda skill: skill.name)
def test_a_skill_says_all_it_has_to(skill: Skill) -> None:
    places = [skill.body.find(section) for section in SECTIONS]
    assert -1 not in places and places == sorted(places)
    verify = skill.body[places[3] : places[4]]
    assert skill.verify in verify, "the front matter's command is not the text's"
    assert f"Exit code {skill.exit_code}" in verify
    assert "```bash" in skill.body[places[1] : places[2]]
    # Installed elsewhere, a relative link would lead nowhere.
    assert "](" not in skill.body


def test_skills_install_in_the_open_form_from_the_same_text(tmp_path: Path) -> None:
    done = kit_here("skills", "install", "--to", tmp_path / "skills")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 8
    for skill in skills():
        text = (tmp_path / "skills" / skill.folder / "SKILL.md").read_text()
        front, _, body = text.removeprefix("---\n").partition("\n---\n")
        matter = yaml.safe_load(front)
        assert matter["name"] == skill.folder and len(skill.folder) <= 64
        assert set(matter) <= {"name", "description", "license", "compatibility", "metadata"}
        assert 0 < len(matter["description"]) <= 1024
        assert all(isinstance(value, str) for value in matter["metadata"].values())
        assert body == skill.body


def test_install_finds_where_assistants_look(tmp_path: Path) -> None:
    (tmp_path / ".claude" / "skills" / "mine").mkdir(parents=True)
    assert kit_here("skills", "install", cwd=tmp_path).returncode == 0
    for place in (".agents", ".claude"):
        assert len(list((tmp_path / place / "skills").glob("sme2-*/SKILL.md"))) == 8
    assert (tmp_path / ".claude" / "skills" / "mine").is_dir()


def test_a_skill_is_found_by_any_of_its_names() -> None:
    for text in ("03_export_model", "03_export_model.md", "export_model", "export-model", "sme2-export-model", "03"):
        assert find_skill(text).name == "03_export_model"
    done = kit_here("validate-skill", "09_make_coffee")
    assert done.returncode == 2 and "01_setup_workspace" in done.stderr


def test_a_broken_skill_is_refused() -> None:
    for text in ("no front matter", "---\nname: x\n---\nbody", "---\nname: 01_other\ndescription: d\n---\n"):
        with pytest.raises(InputError):
            parse_skill("01_mine", text)


def test_the_gate_of_setting_up_has_two_doors() -> None:
    needs(TORCH, "torch")
    script = ROOT / "model_profiling" / "scripts" / "validate_setup.py"
    done = subprocess.run([sys.executable, script, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["ok"]
    assert kit_here("validate-skill", "02_build_runners").returncode == 0


@pytest.fixture
def place(tmp_path: Path) -> SkillWorkspace:
    shutil.copytree(KNOWN_GOOD, tmp_path / "out" / "runs" / "linux")
    return SkillWorkspace("toy_cnn", "fp16", tmp_path / "out", tmp_path / "out" / "runs" / "linux")


def _ok(name: str, place: SkillWorkspace) -> bool:
    return all(finding.ok for finding in check_skill(name, place))


def test_the_gate_of_exporting(exported: dict[str, object], toy: object, tmp_path: Path) -> None:
    pte = Path(toy("fp16"))  # type: ignore[operator]
    out = tmp_path / "out"
    assert not _ok("03_export_model", SkillWorkspace("toy_cnn", "fp16", out, out))
    shutil.copytree(pte.parent, out / "artifacts")
    here = SkillWorkspace("toy_cnn", "fp16", out, out)
    assert _ok("03_export_model", here)
    here.pte.with_name(f"{pte.name}.etrecord").write_bytes(b"cut off")
    assert not _ok("03_export_model", here)


def test_the_gates_of_running_and_analysing(place: SkillWorkspace) -> None:
    assert _ok("04_run_profiling", place) and _ok("05_analyze_results", place)
    summary = place.run / "analysis_summary.json"
    text = json.loads(summary.read_text())
    next(iter(text["experiments"].values()))["breakdown"]["categories"].pop(0)
    summary.write_text(json.dumps(text))
    assert not _ok("05_analyze_results", place)
    summary.unlink()
    next(place.run.glob("*/*.etdump")).unlink()
    assert not _ok("05_analyze_results", place) and not _ok("04_run_profiling", place)


def test_the_gate_of_reporting(place: SkillWorkspace) -> None:
    assert not _ok("07_report_generation", place)
    done = kit_here("report", place.run)
    assert done.returncode == 0, done.stderr
    assert _ok("07_report_generation", place), check_skill("07_report_generation", place)
    for picture in place.run.rglob("*.[ps][nv]g"):
        picture.unlink()
    assert not _ok("07_report_generation", place)


def test_the_gate_of_the_workflow_needs_all_of_it(place: SkillWorkspace) -> None:
    findings = check_skill("06_validate_workflow", place)
    assert not all(finding.ok for finding in findings), "there is no export"
    done = kit_here("validate-skill", "06", "--out", place.out, "--json")
    assert done.returncode == 1
    assert not json.loads(done.stdout)["ok"]
