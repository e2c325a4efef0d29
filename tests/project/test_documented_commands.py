"""Every command of the learning path's documents, under its documented name and flags; then all blocks of our own.

Where the documents say mac, Linux is meant here; where they leave a placeholder, toy_cnn is filled in.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from model_profiling.platforms.platform_table import local_name
from model_profiling.platforms.remote.android import MODES
from tests.helpers.doc_blocks import blocks, commands
from tests.helpers.workspace import shared_workspace, shell

pytestmark = pytest.mark.wide
ALL = bool(os.environ.get("SME2_KIT_ALL_DOCS"))
# What is written, and what has to be there or be said afterwards (an empty path: only that it succeeds).
_RUN = "model_profiling/out_toy_cnn/runs/mac"
# The first experiment that has acceleration on, whatever this CPU calls it.
_ETDUMP = f"$(ls {_RUN}/*_on/*.etdump | head -n 1)"
QUICK_TEST = "python model_profiling/scripts/run_quick_test.py"
COMMANDS: list[tuple[str, str]] = [
    # Overview and quickstart
    ("bash model_profiling/scripts/setup_repo.sh", ""),
    ("bash model_profiling/scripts/build_runners.sh", ""),
    # Model onboarding and export
    (
        "python model_profiling/export/export_model.py \\\n--model toy_cnn \\\n--dtype fp16 \\\n"
        "--outdir model_profiling/out_toy_cnn/artifacts/",
        "model_profiling/out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte.etrecord",
    ),
    # Pipeline
    ("cat model_profiling/configs/templates/mac_template.json", ""),
    ("cat model_profiling/configs/examples/mac_mobilenet_fp16.json", ""),
    (
        "python model_profiling/scripts/mac_pipeline.py --config "
        "model_profiling/configs/examples/mac_mobilenet_fp16.json",
        "model_profiling/out_mobilenet_v3_small/runs/mac/manifest.json",
    ),
    (f"python model_profiling/scripts/validate_results.py --results {_RUN}", f"{_RUN}/metrics.json"),
    (f"python model_profiling/scripts/analyze_results.py \\\n--run-dir {_RUN}", f"{_RUN}/analysis_summary.json"),
    # The repository's README
    (
        "source .venv/bin/activate\npython model_profiling/export/export_model.py \\\n  --model <model_name> \\\n"
        "  --dtype fp16 \\\n  --outdir out_<model>/artifacts/",
        "out_<model>/artifacts/<model>_xnnpack_fp16.pte",
    ),
    (
        "cp model_profiling/configs/templates/mac_template.json \\\n   model_profiling/configs/my_experiment.json\n"
        # "Edit config: set model to your .pte path, output_root to out_<model>/runs/mac"
        "sed -i.bak 's/<mod''el>/toy_cnn/g' model_profiling/configs/my_experiment.json\n"
        "python model_profiling/scripts/mac_pipeline.py \\\n  --config model_profiling/configs/my_experiment.json",
        "out_<model>/runs/mac/<model>_xnnpack_fp16_pipeline_summary.md",
    ),
    (
        "python model_profiling/scripts/analyze_results.py \\\n  --run-dir out_<model>/runs/mac",
        "out_<model>/runs/mac/analysis_summary.json",
    ),
    (
        "python model_profiling/scripts/generate_report.py \\\n  --run-dir out_<model>/runs/mac",
        "out_<model>/runs/mac/report.md",
    ),
    (
        "python model_profiling/tools/analyze_etdump_csv.py \\\n"
        "  --timeline-csv out_<model>/runs/mac/<experiment>/*_all_runs_timeline.csv \\\n"
        "  --compare out_<model>/runs/mac/<experiment_off>/*_all_runs_timeline.csv \\\n"
        '  --name1 "SME2-Off" \\\n  --name2 "SME2-On" \\\n  --output-dir out_<model>/runs/mac/ \\\n  --verbose',
        "out_<model>/runs/mac",
    ),
    # The tools the plan names, without flags
    (f"python model_profiling/tools/etdump_to_csv.py {_ETDUMP}", ""),
    (f"python model_profiling/tools/etdump_to_ops_json.py {_ETDUMP}", ""),
    (f"python model_profiling/tools/robust_latency_analysis.py {_RUN}", ""),
    (f"python model_profiling/tools/categorize_operators.py {_ETDUMP}", ""),
    (f"python model_profiling/tools/analyze_transpose_patterns.py {_ETDUMP}", ""),
    ("python model_profiling/tools/xnntrace_to_kernels.py trace.log", ""),
    ("python model_profiling/tools/generate_kernel_view.py trace.log", ""),
    # The skills' gates
    ("python model_profiling/scripts/validate_setup.py", ""),
]
POWER_SETTINGS = {
    "boost": """
        adb shell settings put global low_power 0
        adb shell settings put global stay_on_while_plugged_in 15
        adb shell settings put global window_animation_scale 0
        adb shell settings put global transition_animation_scale 0
        adb shell settings put global animator_duration_scale 0
    """,
    "app": """
        adb shell settings put global stay_on_while_plugged_in 1
        adb shell settings put global window_animation_scale 1
        adb shell settings put global transition_animation_scale 1
        adb shell settings put global animator_duration_scale 1
        adb shell settings put global low_power 0
    """,
}
ON_A_PHONE = [
    "python model_profiling/scripts/android_pipeline.py --config "
    "model_profiling/configs/examples/android_mobilenet_fp16.json",
    "adb shell svc power stayon true",
    "adb shell settings get global stay_on_while_plugged_in",
    "adb shell settings get global low_power",
    'adb shell dumpsys power | grep -i "stay.*awake\\|thermal"',
]


def here(text: str) -> str:
    """The documents' text with this platform's name and toy_cnn in its placeholders."""
    text = text.replace("<model_name>", "toy_cnn").replace("<model>", "toy_cnn")
    text = text.replace("<experiment_off>", "*_off").replace("<experiment>", "*_on")
    return re.sub(r"(?<![a-z])mac(?![a-z])", local_name(), text)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone after the quickstart's third step, which is itself a documented command."""
    home = shared_workspace(tmp_path_factory)
    done = shell(QUICK_TEST, home)
    assert done.returncode == 0, done.stderr
    # "1 command prints: export ok, pipeline ok"
    assert {"export ok", "pipeline ok"} <= set(done.stdout.splitlines())
    # The pipeline takes any .pte: toy_cnn's stands for MobileNet's, which needs torchvision and a minute.
    artifacts = home / "model_profiling" / "out_mobilenet_v3_small" / "artifacts"
    artifacts.mkdir(parents=True, exist_ok=True)
    shutil.copy(
        home / "model_profiling/out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte",
        artifacts / "mobilenet_v3_small_xnnpack_fp16.pte",
    )
    (home / "trace.log").write_text("Using GEMM microkernel 'xnn_pf32_gemm_minmax_ukernel_32x32__neonsme2'\n")
    return home


@pytest.mark.parametrize(("documented", "leaves"), COMMANDS, ids=lambda text: text.split("\\")[0].strip()[-60:])
def test_a_documented_command_works(documented: str, leaves: str, workspace: Path) -> None:
    if documented.startswith("python") and "out_<model>" in documented and "export_model" not in documented:
        _readme_run(workspace)
    done = shell(here(documented), workspace)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (workspace / here(leaves)).exists()


def _readme_run(workspace: Path) -> None:
    """out_toy_cnn at the root, which earlier commands of the README leave; made here if one is run by itself."""
    run = Path("out_toy_cnn") / "runs" / local_name()
    if not (workspace / run).is_dir():
        shutil.copytree(workspace / "model_profiling" / run, workspace / run)


@pytest.mark.parametrize("mode", POWER_SETTINGS)
def test_the_power_modes_are_the_documented_settings(mode: str) -> None:
    documented = dict(re.findall(r"settings put global (\w+) (\d+)", POWER_SETTINGS[mode]))
    assert {key: str(value) for key, value in MODES[mode].items()} == documented


@pytest.mark.parametrize("command", ON_A_PHONE)
def test_commands_for_a_phone_parse(command: str) -> None:
    subprocess.run(["bash", "-n"], input=command, text=True, check=True)


def test_the_android_pipeline_is_there_and_without_a_device_says_what_to_do(workspace: Path) -> None:
    artifacts = workspace / "model_profiling/out_mobilenet_v3_small/artifacts/mobilenet_v3_small_xnnpack_fp16.pte"
    assert artifacts.is_file()
    # No adb on the path: whatever is plugged into this machine stays out of it.
    done = shell(f"PATH=$PWD/.venv/bin:/nowhere {ON_A_PHONE[0]}", workspace)
    assert done.returncode == 3, done.stderr
    assert "adb" in done.stderr and "fix:" in done.stderr


def test_the_blocks_of_our_own_documents_run_in_order(workspace: Path) -> None:
    """`make test-wide` runs the fast blocks, each command once; `make test-docs` runs all, repetitions too."""
    seen = {QUICK_TEST, *(command for documented, _ in COMMANDS for command in commands(here(documented)))}
    # A gate judges what the commands before it in its document have left.
    gated = {block.document for block in blocks() if "skills validate" in block.script}
    for block in blocks():
        wanted = not block.word or (ALL and block.word == "slow")
        repeats = block.script in seen or (block.document not in gated and seen >= set(commands(block.script)))
        if not wanted or (repeats and not ALL):
            continue
        seen |= {block.script, *commands(block.script)}
        began = time.monotonic()
        script = block.script.replace("runs/linux", f"runs/{local_name()}")
        done = shell(script, workspace, timeout=3600 if ALL else 900)
        assert done.returncode == 0, f"{block.name}\n{block.script}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        sys.stdout.write(f"{time.monotonic() - began:6.1f} s  {block.name}\n")
