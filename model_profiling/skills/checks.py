"""The gate of each skill: did it leave behind what it promises?"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from model_profiling.analysis.run.dumps import AnalysisSummary
from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError
from model_profiling.base.installation import default_output
from model_profiling.store import artifacts
from model_profiling.store.run_directory import RunDirectory

_MODELS = {"08_onboard_edgetam": "edgetam_image_encoder"}


@dataclass(frozen=True)
class SkillWorkspace:
    """Where a skill worked: which model, in which dtype, and the directories of its artifacts and its run."""

    model: str
    dtype: str
    out: Path
    run: Path

    @property
    def pte(self) -> Path:
        return artifacts.ExportPaths.for_export(self.out / "artifacts", self.model, "xnnpack", self.dtype).pte


def skill_place(skill: str, model: str | None, root: Path = Path()) -> tuple[str, Path]:
    """Return the model that a skill worked on, and the folder that it wrote unless another was named."""
    name = model or _MODELS.get(skill, "toy_cnn")
    if not re.fullmatch(r"\w[\w.-]{0,199}", name):
        raise InputError(f"{name[:200]!r} is not a name of a model", "Give the name that its files carry: toy_cnn.")
    candidates = [root / "model_profiling" / f"out_{name}", root / f"out_{name}"]
    return name, next((path for path in candidates if path.is_dir()), root / default_output(name))


class CheckResult(msgspec.Struct, frozen=True):
    what: str
    ok: bool
    found: str


def check_skill(name: str, place: SkillWorkspace) -> list[CheckResult]:
    """Return all findings of one skill's gate; the skill is done if every one is ok."""
    try:
        return [found for check in _CHECKS[name] for found in check(place)]
    except KitError as error:
        return [CheckResult(name, False, error.message)]


def _setup(_place: SkillWorkspace) -> list[CheckResult]:
    from model_profiling.platforms.doctor import essential_checks

    return [
        CheckResult(check.what, check.ok, check.found if check.ok else f"{check.found}; fix: {check.fix}")
        for check in essential_checks()
    ]


def _runner(_place: SkillWorkspace) -> list[CheckResult]:
    from model_profiling.platforms.process_platform import list_features
    from model_profiling.runner.build import build_runner

    build = build_runner()
    said = list_features([str(build.path)])
    proof = f"features proven by {said.proof}" if said is not None else "it cannot list the CPU's features"
    return [CheckResult("runner", True, str(build.path)), CheckResult("feature table", said is not None, proof)]


def _export(place: SkillWorkspace) -> list[CheckResult]:
    paths = artifacts.ExportPaths(place.pte)
    found = [CheckResult("model", paths.pte.is_file(), str(paths.pte))]
    if not paths.pte.is_file():
        return found
    meta = files.read_json(paths.meta, artifacts.ExportMeta, "export metadata")
    record = meta.exports.get(paths.stem)
    found.append(CheckResult("export_meta.json", record is not None, f"{'knows' if record else 'lacks'} {paths.stem}"))
    for name, digest in (record.files if record else {}).items():
        path = paths.directory / name
        same = path.is_file() and files.sha256(path) == digest
        found.append(CheckResult(name, same, "as exported" if same else "missing or changed"))
    return found


def _run(place: SkillWorkspace) -> list[CheckResult]:
    from model_profiling.analysis.run.validation import check_staleness, problems

    directory = RunDirectory(place.run)
    derived = check_staleness(directory)
    found = problems(directory) or derived.stale
    if derived.awaited:
        found.append(f"{place.run} was not analysed since it was measured: sme2-kit analyze {place.run}")
    return [CheckResult("run directory", False, problem) for problem in found] or [
        CheckResult("run directory", True, f"{place.run} is complete, consistent and not stale")
    ]


def _analysis(place: SkillWorkspace) -> list[CheckResult]:
    """Check that analysis_summary.json knows every experiment, and each one's categories add up to Method::execute."""
    directory = RunDirectory(place.run)
    summary = files.read_json(directory.analysis_path, AnalysisSummary, "analysis")
    missing = sorted(set(directory.manifest().experiments) - set(summary.experiments))
    found = [
        CheckResult("experiments", not missing, f"not analysed: {', '.join(missing)}" if missing else "all analysed")
    ]
    for name, experiment in summary.experiments.items():
        total, parts = experiment.breakdown.execute_ms, sum(part.ms for part in experiment.breakdown.categories)
        ok = abs(parts - total) <= 0.001 + 0.001 * total
        found.append(CheckResult(name, ok, f"categories add up to {parts:.3f} ms of {total:.3f} ms"))
    return found


def _report(place: SkillWorkspace) -> list[CheckResult]:
    """Check that report.md is there and every picture it shows is too."""
    path = place.run / "report.md"
    text = files.read_bytes(path, "report").decode()
    pictures = re.findall(r"!\[[^\]]*\]\(([^)\s]+)", text)
    missing = [picture for picture in pictures if not (place.run / picture).is_file()]
    shown = CheckResult("pictures", bool(pictures) and not missing, ", ".join(missing) or f"{len(pictures)} shown")
    return [CheckResult("report", text.startswith("# "), str(path)), shown]


_CHECKS: dict[str, tuple[Callable[[SkillWorkspace], list[CheckResult]], ...]] = {
    "01_setup_workspace": (_setup,),
    "02_build_runners": (_runner,),
    "03_export_model": (_export,),
    "04_run_profiling": (_run,),
    "05_analyze_results": (_analysis,),
    "06_validate_workflow": (_setup, _export, _run, _analysis),
    "07_report_generation": (_report,),
    "08_onboard_edgetam": (_export, _run),
}
