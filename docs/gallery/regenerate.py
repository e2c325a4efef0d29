"""`make gallery`: measures models on this machine and puts what the kit made of them into this folder.

`python docs/gallery/regenerate.py NAME...` makes some of its folders again (toy_cnn, mobilenet_v3_small, ...); the rest
stays, and so does the report of all runs together. toy_cnn's page is the README's picture, too.

Nothing here is edited by hand. The screenshots need a Chromium; without an emulator there is no emulated report. The
page of the gallery remembers the layout of the reports that it shows, and a test says when that is an older one.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from model_profiling.platforms.emulator import find_qemu  # noqa: E402
from model_profiling.platforms.platform_table import local_name  # noqa: E402
from model_profiling.report.drawing.vega import compress_png  # noqa: E402
from tests.helpers.chromium import BINARY, chromium  # noqa: E402

# Name of the folder, model, dtype and timed runs.
MODELS: tuple[tuple[str, str, str, int], ...] = (
    ("toy_cnn", "toy_cnn", "fp16", 100),
    ("mobilenet_v3_small", "mobilenet_v3_small", "fp16", 100),
    ("edgetam", "edgetam_image_encoder", "fp32", 24),
    ("smollm2", "smollm2_135m", "int8-dynamic", 60),
)
# How models are exported that are not shown whole.
SETTINGS: dict[str, tuple[str, ...]] = {"smollm2": ("--set", "layers=4"), "edgetam": ("--set", "resolution=512")}
# The chart that the gallery's own page shows.
FORECAST = "sme2"
# The folder whose emulated run is shown, too.
EMULATED = "toy_cnn"
# The folders whose report is kept as Markdown, too, with its pictures; of the others the page is enough.
AS_MARKDOWN = ("toy_cnn", "toy_cnn_emulated", "edgetam")
# Name, width, height and colours of each screenshot.
SCREENS = (("page_light.png", 1280, 1600, "light"), ("page_dark_phone.png", 390, 1600, "dark"))
# The picture in README: a page as one first sees it.
PICTURE, PICTURE_OF = ROOT / "docs" / "images" / "report.png", "toy_cnn"
PICTURE_SIZE = (1280, 720)
# Where a line of an installed package lies on this machine.
_INSTALLED = re.compile(r"[^\s`\"'<>|(]*?/site-packages/")
_SECTION = re.compile(r"Section\(\s*([^,]+,[^,]+)")
_LAYOUT = re.compile(r"<!-- layout (\w+) -->")
# A gallery shows what a quiet machine measures: a run that varies more than this (MAD, which a few interruptions do not
# move) is measured again. On a machine that is never quiet the last is taken, and its report says how much it varies.
_STEADY_PERCENT, _ATTEMPTS = 10.0, 3


def main(wanted: list[str]) -> None:
    if BINARY is None:
        raise SystemExit("error: screenshots need a Chromium\n  fix: apt-get install chromium fonts-liberation")
    models = [model for model in MODELS if not wanted or model[0] in wanted]
    with tempfile.TemporaryDirectory() as scratch:
        work, made = Path(scratch), Path(scratch) / "gallery"
        runs = [_measure(work, *model) for model in models]
        for (name, model, dtype, _), run in zip(models, runs, strict=True):
            _kit(work, "report", run, "--html")
            _publish(work / run, made / name)
            if name == EMULATED and find_qemu() is not None:
                emulated = f"out_{name}/runs/emulator"
                _kit(work, "kernels", _pte(name, model, dtype), "--out", emulated)
                _kit(work, "report", emulated)
                _publish(work / emulated, made / f"{name}_emulated")
        if not wanted:
            _kit(work, "report", *runs, "--html", "--out", "combined/report.md")
            _publish(work / "combined", made / "combined")
            tuned = _kit(work, "tune", "toy_cnn", "--dtype", "fp32").stdout
            (made / "tune_toy_cnn.txt").write_text(tuned.replace(f"{ROOT}/", ""))
        # Only now that all of it is there does the old one go.
        for old in [*(HERE.iterdir() if not wanted else ()), *made.iterdir()]:
            if old.is_dir():
                shutil.rmtree(HERE / old.name, ignore_errors=True)
        shutil.copytree(made, HERE, dirs_exist_ok=True)
    _screenshots([name for name, *_ in models])
    page = HERE / "README.md"
    # Pages that were not made again are as old as they were.
    page.write_text(gallery_page(layout() if not wanted else shown_layout(page.read_text())))


def layout() -> str:
    """Return a short hash of what a report looks like: its templates, styles and scripts, and its sections."""
    report = ROOT / "model_profiling" / "report"
    digest = hashlib.sha256()
    for path in sorted(path for path in (report / "page").iterdir() if path.is_file()):
        digest.update(path.read_bytes())
    found = [each for path in (report / "content").glob("*.py") for each in _SECTION.findall(path.read_text())]
    # However often, and on how many lines, a title is written.
    sections = {" ".join(each.split()) for each in found}
    digest.update(" ".join(sorted(sections)).encode())
    return digest.hexdigest()[:12]


def shown_layout(page: str) -> str:
    """Return the layout that the pages of the gallery have, by what its own page says."""
    found = _LAYOUT.search(page)
    return found[1] if found is not None else ""


def _kit(work: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the kit in `work`, with paths relative to it, so that no report tells where this was."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "model_profiling", *arguments]
    return subprocess.run(command, cwd=work, env=environment, check=True, text=True, capture_output=True)


def _measure(work: Path, name: str, model: str, dtype: str, runs: int) -> str:
    _kit(work, "export", "--model", model, "--dtype", dtype, *SETTINGS.get(name, ()))
    run = f"out_{name}/runs/{local_name()}"
    counts = ("--runs", str(runs), "--quiet")
    for attempt in range(_ATTEMPTS):
        if name == PICTURE_OF:  # with the better program beside it, as users measure
            _kit(work, "profile", model, "--dtype", dtype, "--out", f"out_{name}", *counts)
        else:
            _kit(work, "run", _pte(name, model, dtype), "--out", run, *counts)
        if _steady(work / run):
            break
        sys.stderr.write(f"{name}: executions vary by more than {_STEADY_PERCENT:g} % ({attempt + 1} of {_ATTEMPTS})\n")
        if attempt + 1 < _ATTEMPTS:
            shutil.rmtree(work / run)
    return run


def _pte(name: str, model: str, dtype: str) -> str:
    """Settings are part of the name."""
    called = "_".join([model, *(each.replace("=", "") for each in SETTINGS.get(name, ())[1:])])
    return f"out_{called}/artifacts/{called}_xnnpack_{dtype}.pte"


def _steady(run: Path) -> bool:
    """Whether executions varied little; it is the noise that decides, not what was found."""
    experiments = json.loads((run / "metrics.json").read_text())["experiments"].values()
    latencies = [experiment["latency"] for experiment in experiments]
    return all(100 * each["mad_ms"] < _STEADY_PERCENT * each["median_ms"] for each in latencies)


def _publish(run: Path, home: Path) -> None:
    """Copy a report, its page and its pictures; paths of this checkout become relative to it, and those of installed
    packages to where packages are."""
    home.mkdir(parents=True, exist_ok=True)
    whole = home.name in AS_MARKDOWN
    for report, name in (("report.md", "report.md"), ("report.html", "page.html")):
        if (run / report).is_file() and (whole or name == "page.html"):
            text = (run / report).read_text().replace(f"{ROOT}/", "")
            text = text.replace(f"{ROOT}/".replace("_", "\\_"), "")
            (home / name).write_text(_INSTALLED.sub("", text))
    for picture in sorted(run.glob(f"report_charts/{'*' if whole else FORECAST}.png")):
        (home / "report_charts").mkdir(exist_ok=True)
        (home / "report_charts" / picture.name).write_bytes(compress_png(picture.read_bytes()))


def _screenshots(names: list[str]) -> None:
    with chromium() as tab:
        for name in names:
            page = HERE / name / "page.html"
            for picture, width, height, colours in SCREENS:
                tab.colours(colours)
                tab.open(page, width, height)
                (HERE / name / picture).write_bytes(compress_png(tab.picture()))
            if name == PICTURE_OF:
                tab.colours("light")
                tab.open(page, *PICTURE_SIZE)
                PICTURE.write_bytes(compress_png(tab.picture()))


def gallery_page(shown: str) -> str:
    """The page of the gallery, from what is in its folder: a picture leads to the live page where there is one."""
    lines = ["# Gallery", "", "Reports of real runs, as the kit writes them. A picture opens its report.", ""]
    for name, model, dtype, *_ in MODELS:
        live = f"{name}/page.html"
        lines += [f"## {model} in {dtype}", ""]
        lines += [f"[![The report of {model} in {dtype}, wide and light]({name}/page_light.png)]({live})"]
        lines += [f"[![The report of {model} in {dtype}, on a phone, dark]({name}/page_dark_phone.png)]({live})", ""]
        lines += [f"*The report of {model} in {dtype}, wide and on a phone.*", ""]
        links = [f"[Live page]({live})"]
        if name in AS_MARKDOWN:
            links.append(f"[report as Markdown]({name}/report.md)")
        if (HERE / f"{name}_emulated").is_dir():
            links.append(f"[its SME2 kernels, emulated: coverage, no times]({name}_emulated/report.md)")
        lines += [" · ".join(links), ""]
        if (HERE / name / "report_charts" / f"{FORECAST}.png").is_file():
            said = f"What SME2 would change for {model} in {dtype}: predicted"
            lines += [f"![{said}]({name}/report_charts/{FORECAST}.png)", "", f"*{said}.*", ""]
    lines += ["## Side by side, and try the fix", ""]
    lines += ["- [All runs on one page](combined/page.html)"]
    lines += ["- `sme2-kit tune toy_cnn`: [what was tried and what it gained](tune_toy_cnn.txt)", ""]
    lines += ["`make gallery` writes this folder.", "", f"<!-- layout {shown} -->", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", help="folders to make again; all unless given")
    names = parser.parse_args().name
    unknown = set(names) - {name for name, *_ in MODELS}
    if unknown:
        parser.error(f"no folder of the gallery: {', '.join(sorted(unknown))}")
    main(names)
