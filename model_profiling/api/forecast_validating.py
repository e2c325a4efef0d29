"""Validate the forecast on a machine: measure its roofs, run a few models on and off, hold predictions against both."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from platform import node
from typing import Any

import msgspec

from model_profiling import __version__
from model_profiling.analysis.roofs.roof_rates import Roofs
from model_profiling.analysis.run.run_forecasts import (
    table_differences,
    traced_operators,
    validated_gain,
    validated_model,
)
from model_profiling.analysis.sme2.forecast_validation import (
    FailedModel,
    ForecastValidation,
    ValidatedModel,
    shareable,
    shared_environment,
    shared_roofs,
)
from model_profiling.api.exporting import from_target
from model_profiling.api.measuring import RunRequest, kernels_request, measure
from model_profiling.api.roof_measuring import COUNTS, Probing, earlier_roofs, measure_roofs
from model_profiling.base.directories import working_directory
from model_profiling.base.dtypes import ARITHMETICS
from model_profiling.base.errors import InputError, InterruptionError, KitError
from model_profiling.base.on_progress import OnNote, OnProgress
from model_profiling.export.request import ExportRequest
from model_profiling.formats.pte.dtypes import program_dtype
from model_profiling.models import registered_models
from model_profiling.models.lookup import model_name
from model_profiling.pipeline.axes import accelerator, switched_off
from model_profiling.pipeline.defaults import checked_program
from model_profiling.pipeline.manifest_records import now
from model_profiling.pipeline.schedule import Counts
from model_profiling.platforms.base import Platform
from model_profiling.report.content import validation
from model_profiling.report.files.page_files import write_validation

# Small ones of different kinds, which need no other packages.
MODELS = ("toy_cnn", "resnet8", "ds_cnn", "mobilenet_v1_025")
BUDGET_S = 20.0
_THREADS = 1


@dataclass(frozen=True)
class ValidationRequest:
    """Models (names, file.py:Class, or .pte) and dtypes to hold the forecast against, and where files go."""

    out: Path
    models: Sequence[str] = MODELS
    dtypes: Sequence[str] = ARITHMETICS
    # Seconds for each model in each dtype.
    budget_s: float = BUDGET_S
    probing: Counts = COUNTS
    force: bool = False

    def check(self) -> None:
        """Refuse a model that is not there, before anything is measured."""
        for model in self.models:
            if _is_program(model):
                checked_program(Path(model))
            else:
                model_name(model)


@dataclass(frozen=True)
class _Cell:
    model: str
    name: str
    dtype: str


def validate_forecast(
    asked: ValidationRequest, platform: Platform, on_progress: OnProgress, on_note: OnNote
) -> ForecastValidation:
    """Hold the forecast against this machine; the page and the JSON are written anew after each model."""
    if platform.timing != "measured":
        raise InputError(
            "a forecast cannot be validated under an emulator: its times mean nothing",
            "Leave --platform emulator out; `sme2-kit kernels MODEL.pte` shows the kernels.",
        )
    cells = list(_cells(asked, platform))
    if not cells:
        why = platform.probe().unproven or "this CPU has no feature that matters for them and can be switched off"
        raise InputError(f"nothing can be switched in {', '.join(asked.dtypes)}: {why}", "See sme2-kit doctor.")
    warnings: list[str] = []
    roofs = _roofs(asked, platform, list(dict.fromkeys(cell.dtype for cell in cells)), on_progress, warnings, on_note)
    probe = platform.probe()
    found = ForecastValidation(
        created=now(),
        kit_version=__version__,
        executorch=roofs.executorch,
        environment=shared_environment(platform.name, probe.features, {"arch": probe.arch, **probe.environment}),
        roofs=shared_roofs(roofs),
        warnings=warnings,
    )
    for number, cell in enumerate(cells, 1):
        label = f"{cell.name} {cell.dtype} ({number} of {len(cells)})"

        def report(stage: str, done: int, total: int, label: str = label) -> None:
            on_progress(f"{label}: {stage}", done, total)

        try:
            held = _hold(asked, cell, roofs, platform, report)
        except InterruptionError:
            raise
        except KitError as error:
            why = _shareable(error.message, asked.out, platform)
            found = msgspec.structs.replace(found, failed=[*found.failed, FailedModel(cell.name, cell.dtype, why)])
            on_note(f"{cell.name} {cell.dtype}: {error.message}")
        else:
            found = msgspec.structs.replace(found, models=[*found.models, held])
            on_note(f"{cell.name} {cell.dtype}: {validation.sentence(held.time)}")
        write_validation(found, asked.out)
    return found


def _shareable(sentence: str, out: Path, platform: Platform) -> str:
    """Return a sentence without the names of folders, machines and users that this process knows."""
    device = platform.probe().environment.get("device")
    told = [device.get(name) for name in ("serial", "host", "name")] if isinstance(device, dict) else []
    home = Path.home()
    names = {str(name) for name in (*told, node(), home.name) if name} - {"root", "localhost"}
    return shareable(sentence, (str(out.absolute()), working_directory(), str(home)), names)


def _is_program(model: str) -> bool:
    return model.endswith(".pte")


def _cells(asked: ValidationRequest, platform: Platform) -> Iterator[_Cell]:
    """Yield each model in each dtype that it can be exported in and in which something can be switched here."""
    dtypes = [dtype for dtype in asked.dtypes if accelerator(platform, dtype) is not None]
    for model in asked.models:
        known, name = registered_models().get(model), Path(model).stem if _is_program(model) else model_name(model)
        can = [program_dtype(Path(model)).main] if _is_program(model) else dtypes if known is None else known.dtypes
        yield from (_Cell(model, name, dtype) for dtype in dtypes if dtype in can)


def _roofs(
    asked: ValidationRequest,
    platform: Platform,
    dtypes: list[str],
    on_progress: OnProgress,
    warnings: list[str],
    on_note: OnNote,
) -> Roofs:
    """Return the roofs of this CPU in all dtypes with the features on and off; what is known of them is used.

    What makes a new measurement hard to believe is added to `warnings`.
    """
    known = earlier_roofs(str(platform.probe().environment.get("cpu") or ""), on_note)
    if known is not None and (asked.force or known.executorch != platform.runner(None).executorch):
        known = None
    there = {entry.key for entry in known.measurements} if known is not None else set()
    sides = {d: [(), tuple(sorted(switched_off(accelerator(platform, d) or "")))] for d in dtypes}
    lacking = [d for d in dtypes if not {(d, _THREADS, off) for off in sides[d]} <= there]
    if known is not None and not lacking:
        on_note(f"uses the roofs of {known.cpu} that were measured on {known.created[:10]} (--force measures again)")
        return known

    def warn(sentence: str) -> None:
        warnings.append(_shareable(sentence, asked.out, platform))
        on_note(sentence)

    return measure_roofs(Probing(lacking, (_THREADS,), asked.probing), platform, on_progress, warn)


def _hold(
    asked: ValidationRequest, cell: _Cell, roofs: Roofs, platform: Platform, on_progress: OnProgress
) -> ValidatedModel:
    home = asked.out / f"{cell.name}-{cell.dtype}"
    pte = Path(cell.model)
    if not _is_program(cell.model):
        wanted = ExportRequest(cell.name, home / "artifacts", cell.dtype, target=cell.model)
        pte = from_target(on_progress, asked.force)(wanted, "export").paths.pte
    counts, out = Counts(budget_s=asked.budget_s, startup_launches=0), home / "runs" / platform.folder
    request = RunRequest(pte, out=out, counts=counts, threads=_THREADS, force=asked.force)
    run = measure(request, platform, on_progress).run
    run.save()
    held, more = validated_model(run, roofs, cell.name), dict[str, Any]()
    # What a target predicts, where SME2 was switched, and what traced kernels say of the table.
    try:
        more |= {"gain": validated_gain(run)} if "sme2" in held.switched else {"no_gain": "SME2 was not switched"}
    except KitError as error:
        more["no_gain"] = _shareable(error.message, home, platform)
    try:
        if platform.trace_note:
            raise InputError(platform.trace_note, "")
        traced = measure(kernels_request(pte, platform, None, home / "kernels"), platform, on_progress).run
    except InterruptionError:
        raise
    except KitError as error:
        return msgspec.structs.replace(held, **more, not_traced=_shareable(error.message, home, platform))
    if not (operators := traced_operators(traced)):
        more["not_traced"] = "the kernel table has no CPU with the features of this one"
        return msgspec.structs.replace(held, **more)
    return msgspec.structs.replace(held, **more, traced=operators, differences=table_differences(traced))
