"""`make gallery`: measures models on this machine and puts what the kit made of them into this folder.

Nothing here is edited by hand. The screenshots need a Chromium. EdgeTAM in fp32 alone takes the emulator 13 minutes;
without an emulator there are no forecasts and no emulated reports.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from model_profiling.platforms.emulator import find_qemu  # noqa: E402
from model_profiling.platforms.local import local_name  # noqa: E402
from model_profiling.report.drawing import squeezed  # noqa: E402

# Name of the folder, model, dtype, timed runs, and how it is exported for the emulator if not as it is measured: QEMU
# computes fp16 number by number, which EdgeTAM at 1024 is too large for.
MODELS: tuple[tuple[str, str, str, int, tuple[str, ...]], ...] = (
    ("toy_cnn", "toy_cnn", "fp16", 100, ()),
    ("mobilenet_v3_small", "mobilenet_v3_small", "fp16", 100, ()),
    ("edgetam_fp16", "edgetam_image_encoder", "fp16", 24, ("--set", "resolution=128")),
    ("edgetam_fp32", "edgetam_image_encoder", "fp32", 24, ()),
)
# The folders whose emulated run is shown, too.
EMULATED = ("toy_cnn", "edgetam_fp32")
# Name, width, height and colours of each screenshot.
SCREENS = (("page_light.png", 1100, 2350, "light"), ("page_dark_phone.png", 500, 2350, "dark"))
# A gallery shows what a quiet machine measures: a run that varies more than this is measured again.
_STEADY_PERCENT, _ATTEMPTS, _PAUSE_S = 10.0, 100, 1.0
_BROWSER = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
)  # fmt: skip


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        work, made = Path(scratch), Path(scratch) / "gallery"
        runs = [_measure(work, *model[:4]) for model in MODELS]
        emulated = find_qemu() is not None
        for (name, model, dtype, _, export), run in zip(MODELS, runs, strict=True):
            forecast = ["--forecast", _emulate(work, name, model, dtype, export)] if emulated else []
            _kit(work, "report", run, "--html", *forecast)
            _publish(work / run, made / name)
            _screenshots(work / run / "report.html", made / name)
        for name in EMULATED if emulated else ():
            _kit(work, "report", f"out_{name}/runs/emulator")
            _publish(work / f"out_{name}/runs/emulator", made / f"{name}_emulated")
        _kit(work, "report", *runs, "--output", "combined/report.md")
        _publish(work / "combined", made / "combined")
        (made / "tune_toy_cnn.txt").write_text(_kit(work, "tune", "toy_cnn").stdout)
        (made / "README.md").write_text(_index(EMULATED if emulated else ()))
        # Only now that all of it is there does the old one go.
        for old in HERE.iterdir():
            if old.is_dir():
                shutil.rmtree(old)
        shutil.copytree(made, HERE, dirs_exist_ok=True)


def _kit(work: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the kit in `work`, with paths relative to it, so that no report tells where this was."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "model_profiling", *arguments]
    return subprocess.run(command, cwd=work, env=environment, check=True, text=True, capture_output=True)


def _measure(work: Path, name: str, model: str, dtype: str, runs: int) -> str:
    _kit(work, "export", "--model", model, "--dtype", dtype)
    run = f"out_{name}/runs/{local_name()}"
    for attempt in range(_ATTEMPTS):
        _kit(work, "run", _pte(model, dtype), "--runs", str(runs), "--output-root", run, "--quiet")
        if _steady(work / run):
            break
        sys.stderr.write(f"{name}: the machine is busy; measuring again ({attempt + 1} of {_ATTEMPTS})\n")
        shutil.rmtree(work / run)
        time.sleep(_PAUSE_S)
    else:
        raise SystemExit("error: the machine is too busy for a gallery\n  fix: close other programs and try again")
    return run


def _pte(model: str, dtype: str) -> str:
    return f"out_{model}/artifacts/{model}_xnnpack_{dtype}.pte"


def _steady(run: Path) -> bool:
    """Whether executions varied little; it is the noise that decides, not what was found."""
    experiments = json.loads((run / "metrics.json").read_text())["experiments"].values()
    return all(experiment["latency"]["cv_percent"] < _STEADY_PERCENT for experiment in experiments)


def _emulate(work: Path, name: str, model: str, dtype: str, export: tuple[str, ...]) -> str:
    pte, run = _pte(model, dtype), f"out_{name}/runs/emulator"
    if export:
        home = f"out_{name}/emulated"
        _kit(work, "export", "--model", model, "--dtype", dtype, *export, "--outdir", home)
        (made,) = (work / home).glob("*.pte")
        pte = str(made.relative_to(work))
    _kit(work, "kernels", pte, "--output-root", run)
    return run


def _publish(run: Path, home: Path) -> None:
    """Copy a report and its pictures; paths of this checkout become relative to it."""
    home.mkdir(parents=True, exist_ok=True)
    text = (run / "report.md").read_text().replace(str(ROOT).replace("_", "\\_") + "/", "")
    (home / "report.md").write_text(text)
    for picture in sorted(run.glob("report_charts/*.png")):
        (home / "report_charts").mkdir(exist_ok=True)
        (home / "report_charts" / picture.name).write_bytes(squeezed(picture.read_bytes()))


def _screenshots(page: Path, home: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("error: screenshots need a Chromium\n  fix: apt-get install chromium fonts-liberation")
    for name, width, height, colours in SCREENS:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            scheme = f"--blink-settings=preferredColorScheme={0 if colours == 'dark' else 1}"
            size = f"--window-size={width},{height}"
            target = Path(profile) / name
            command = [browser, *_BROWSER, f"--user-data-dir={profile}", scheme, size, f"--screenshot={target}"]
            subprocess.run([*command, page.as_uri()], check=True, capture_output=True)
            (home / name).write_bytes(squeezed(target.read_bytes()))


def _index(emulated: tuple[str, ...]) -> str:
    lines = ["# Gallery", "", "What the kit makes of a run, as it makes it: `make gallery` writes this folder.", ""]
    for name, model, dtype, *_ in MODELS:
        lines += [f"## {model} in {dtype}", ""]
        lines += [f"[Report as Markdown]({name}/report.md). The page, wide and light, on a phone and dark:", ""]
        lines += [f"![The page]({name}/page_light.png)", "", f"![On a phone]({name}/page_dark_phone.png)", ""]
    lines += ["## Side by side", "", "[All runs in one report](combined/report.md)", ""]
    lines += [
        "## Try the fix",
        "",
        "`sme2-kit tune toy_cnn`: [what was tried and what it gained](tune_toy_cnn.txt).",
        "",
    ]
    if emulated:
        said = (
            "Emulated runs: kernels and coverage, no times. The reports above predict what these kernels would change."
        )
        lines += ["## SME2 without SME2", "", said, ""]
        lines += [
            f"- [{model} {dtype}]({name}_emulated/report.md)" for name, model, dtype, *_ in MODELS if name in emulated
        ]
        for name, *_ in MODELS:
            lines += ["", f"![Predicted for {name}]({name}/report_charts/forecast.png)"]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
