"""The config of a run without one: the model, this machine's default accelerator on and off, sensible counts."""

import re
from collections.abc import Sequence
from pathlib import Path

from model_profiling.base import files
from model_profiling.base.dtypes import NAMES as DTYPES
from model_profiling.base.errors import InputError
from model_profiling.formats import pte
from model_profiling.formats.pte.dtypes import program_dtype
from model_profiling.pipeline.axes import accelerator, switched_off
from model_profiling.pipeline.config import parse_config
from model_profiling.pipeline.config_types import Config
from model_profiling.pipeline.phase_experiments import Lengths, chosen_phases, expand_phases, sequence_of, wants_phases
from model_profiling.pipeline.pipeline import asked_dtype, export_record
from model_profiling.pipeline.schedule import CHOSEN, Counts
from model_profiling.platforms.base import Platform
from model_profiling.platforms.emulator import how_to_install
from model_profiling.store.artifacts import MANIFEST, PROGRAM, ExportPaths, wrong_folder
from model_profiling.store.run_directory import RunDirectory

# One execution says nothing until it is over, and an emulator takes hundreds of times as long for it as a CPU.
_EMULATION_TIMEOUT_S = 7200.0
_ONCE: dict[str, object] = {"mode": "trace", "num_runs": 1, "warmup": 0}
# How exports are named: what is left of a name that ends so is the model's. Nothing else is read from a name.
_BACKEND_AND_DTYPE = rf"_(xnnpack|portable)_({'|'.join(DTYPES)})$"


def default_config(
    model: Path,
    platform: Platform,
    output_root: Path | None,
    counts: Counts = CHOSEN,
    threads: int | Sequence[int] | None = None,
    ladder: bool = False,
    inputs: Sequence[Path] = (),
    lengths: Lengths = Lengths(),  # noqa: B008 - frozen
    method: str | None = None,
    token_file: Path | None = None,
) -> tuple[Config, str]:
    """Return a config with the accelerator that matters most on and off; else one experiment and the reason.

    A language model is run in its phases, unless it has inputs or a method is named.
    """
    paths = ExportPaths(checked_program(model).resolve())
    dtype = program_dtype(paths.pte, [] if method is None else [method]).main
    common: dict[str, object] = {
        **counts.of_experiment,
        "num_threads": 1 if threads is None else threads if isinstance(threads, int) else list(threads),
        "method": method,
    }
    raw: dict[str, object] = {
        "model": str(model),
        "output_root": str(output_root or default_output_root(paths, platform.folder)),
        "inputs": [str(path) for path in inputs],
        "budget_s": counts.budget_s,
        "token_file": str(token_file) if token_file is not None else None,
        "experiments": [{"name": f"{platform.name}_baseline", **common}],
    }
    evidence = ladder or platform.timing != "measured"
    config, remark = _ladder(raw, platform, method) if evidence else _on_and_off(raw, platform, dtype, common)
    return _phased(config, model, lengths, evidence), remark


def _phased(config: Config, model: Path, lengths: Lengths, evidence: bool) -> Config:
    sequence = sequence_of(model)
    if sequence is not None and wants_phases(config):
        return expand_phases(config, chosen_phases(sequence, lengths, evidence), "(made for its phases)")
    if lengths.asked or config.token_file:
        why = "it does not take token ids [1, n] with their positions, and keep a cache"
        if sequence is not None:
            why = "--input or --method says what is run"
        hint = "Leave --prefill, --decode, --depth and --tokens out."
        raise InputError(f"{model.name} is not run as a language model: {why}", hint)
    return config


def _on_and_off(
    raw: dict[str, object], platform: Platform, dtype: str, common: dict[str, object]
) -> tuple[Config, str]:
    feature = accelerator(platform, dtype)
    if feature is None and (unproven := platform.probe().unproven):
        return parse_config(raw, "(made for this machine)"), unproven
    if feature is None:
        return parse_config(raw, "(made for this machine)"), (
            f"this CPU has no accelerator for {dtype} that can be switched off: one experiment, no comparison; "
            "an int8 or fp16 export may have one (see sme2-kit doctor)"
        )
    raw["experiments"] = [
        {"name": f"{platform.name}_{feature}_on", **common},
        {"name": f"{platform.name}_{feature}_off", "disable_features": switched_off(feature), **common},
    ]
    return parse_config(raw, "(made for this machine)"), ""


def _ladder(raw: dict[str, object], on: Platform, method: str | None) -> tuple[Config, str]:
    """Return NEON, SME and SME2 on the same model, traced once each, where time means nothing."""
    if on.probe().arch != "aarch64":
        hint = "Use --platform emulator, or a machine with an Arm CPU."
        raise InputError(f"{on.name} is {on.probe().arch}, and has no SME or NEON kernels to trace", hint)
    platform, present = on.name, set(on.probe().features)
    rungs = [("neon", ["sme"]), ("sme1", ["sme2"]), ("sme2", [])]
    shown = [rung for rung in rungs if rung[0] == "neon" or {"sme1": "sme", "sme2": "sme2"}[rung[0]] in present]
    raw["experiments"] = [
        {"name": f"{platform}_{name}", "disable_features": off, "method": method} | _ONCE for name, off in shown
    ]
    names = [f"{platform}_{name}" for name, _ in shown]
    raw["analysis"] = {"compare_pairs": [[names[0], name] for name in names[1:]]}
    raw["timeout_s"] = _EMULATION_TIMEOUT_S
    missing = [name for name, _ in rungs if name not in {rung[0] for rung in shown}]
    remark = ""
    if missing and on.timing == "emulated":
        remark = f"the emulator does not support {' and '.join(missing)}: {how_to_install()} installs one that does"
    elif missing:
        remark = f"this CPU does not have {' and '.join(missing)}: sme2-kit kernels without --platform emulates them"
    return parse_config(raw, "(made for the emulator)"), remark


def checked_program(model: Path) -> Path:
    """Return `model` if it says of itself that it is a .pte of the format that the runner takes; so does a damaged
    one, and the runner finds the damage."""
    hint = "Give what sme2-kit export makes."
    if model.is_dir():
        raise wrong_folder(model, PROGRAM)
    try:
        with files.open_file(model) as file:
            begins = file.read(8)
    except FileNotFoundError:
        raise InputError(
            f"model {model} does not exist", "Export it first: sme2-kit export --model NAME --dtype fp16."
        ) from None
    except OSError as error:
        raise InputError(f"model {model} cannot be read: {error.strerror}", hint) from None
    if model.suffix == ".py":
        hint = f"Export and run it: sme2-kit profile {model}:ClassName"
    if begins[4:6] != b"ET":
        raise InputError(f"{model} is not a .pte: it does not start like an ExecuTorch program", hint)
    pte.check_identifier(model, begins)
    return model


def output_root_of(model: Path, platform: str) -> Path:
    return default_output_root(ExportPaths(model.resolve()), platform)


def default_output_root(paths: ExportPaths, platform: str) -> Path:
    """Return `out_<model>/runs/<platform>` beside `out_<model>/artifacts`, or under the working directory.

    Where another dtype of the model was run before, the dtype is added.
    """
    if paths.directory.name == "artifacts" and paths.directory.parent.name.startswith("out_"):
        home = paths.directory.parent
    else:
        # Without its record, the .pte's name without backend and dtype.
        record = export_record(paths)
        model = record.model if record else re.sub(_BACKEND_AND_DTYPE, "", paths.stem) or paths.stem
        home = Path(f"out_{re.sub(r'[^A-Za-z0-9_.-]', '_', model)}")
    return _root(home, platform, paths)


def root_below(home: Path, platform: str, model: Path) -> Path:
    """Return `runs/<platform>` of the directory that a user names for all results."""
    return _root(home, platform, ExportPaths(model.resolve()))


def _root(home: Path, platform: str, paths: ExportPaths) -> Path:
    root = home / "runs" / platform
    if (root / MANIFEST).is_file() and RunDirectory(root).manifest().model.stem != paths.stem:
        root = root.with_name(f"{platform}-{asked_dtype(paths)}")
    return root
