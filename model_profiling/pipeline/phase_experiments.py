"""The phases of a language model: which there are, how an experiment becomes one for each, and what each reads."""

import hashlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from model_profiling.base import cache, files
from model_profiling.base.errors import InputError
from model_profiling.base.npy import read_npy
from model_profiling.formats import pte
from model_profiling.formats.pte.sequence import SequenceProgram, sequence_program
from model_profiling.pipeline.axes import PHASES, expand
from model_profiling.pipeline.config import MODES, parse_config
from model_profiling.pipeline.config_types import Config, Experiment
from model_profiling.platforms.base import TokenPlan
from model_profiling.store.artifacts import ExportPaths, ExportRecord
from model_profiling.store.run_directory import MOST_TOKENS, Phase

PREFILL, DECODE = 128, 32
# Which kernels run does not depend on how many tokens there are, if there are several; an emulator needs few of them.
EVIDENCE_PREFILL, EVIDENCE_DECODE = 16, 1
MOST_DEPTHS = 16
_TOKENS_LIMIT = 1 << 27
_TOKENS = "tokens.npy"


@dataclass(frozen=True)
class Lengths:
    """What is asked of phases: tokens of prefill, tokens of decode, and how many come before those. None: chosen, 0:
    no such phase."""

    prefill: int | None = None
    decode: int | None = None
    depths: tuple[int, ...] = ()

    @property
    def asked(self) -> bool:
        return self != Lengths()


def sequence_of(model: Path) -> SequenceProgram | None:
    """Return how the program in a file reads tokens; None if it does not, or cannot be read."""
    try:
        return sequence_program(pte.read(model))
    except pte.PteError:
        return None


def usual_method(model: Path) -> str | None:
    """Return the method to run if nobody names one; None leaves that to the runner."""
    try:
        name = pte.read(model).usual_method
    except pte.PteError:
        return None
    return None if name == "forward" else name


def chosen_phases(sequence: SequenceProgram, lengths: Lengths, evidence_only: bool = False) -> list[Phase]:
    """Return the phases to run; what is asked for and cannot be is an error that says what the program takes."""
    room = min(sequence.context if sequence.context is not None else MOST_TOKENS, MOST_TOKENS)
    many, one = sequence.prefill, sequence.decode
    found = []
    prefill = lengths.prefill
    if prefill is None:
        usual = EVIDENCE_PREFILL if evidence_only else PREFILL
        prefill = (min(usual, many.most, room) if many.dynamic else many.most) if many is not None else 0
    if prefill:
        if many is None:
            raise InputError("this program reads one token at a time: it has no prefill", "Leave --prefill out.")
        if not many.takes(prefill):
            takes = f"at most {many.most}" if many.dynamic else f"exactly {many.most}"
            raise InputError(f"this program reads {takes} tokens at once, not {prefill}", f"Use --prefill {many.most}.")
        found.append(Phase("prefill", prefill))
    decode = lengths.decode
    if decode is None:
        usual = EVIDENCE_DECODE if evidence_only else DECODE
        decode = max(1, min(usual, room // 2)) if one is not None else 0
    if decode:
        if one is None:
            raise InputError("this program does not read one token at a time: it has no decode", "Leave --decode out.")
        before = prefill or (EVIDENCE_PREFILL if evidence_only else PREFILL)
        depths = lengths.depths or (max(0, min(before, room - decode)),)
        found += [Phase("decode", decode, depth) for depth in depths]
    elif lengths.depths:
        raise InputError("--depth is of decode, which is left out", "Leave --depth out, or give --decode.")
    for phase in found:
        if phase.depth + phase.tokens > room:
            what = f"{phase.label} needs {phase.depth + phase.tokens} positions, and this program has {room}"
            raise InputError(what, "Ask for fewer tokens.")
    if not found:
        raise InputError("no phase is left to run", "Leave --prefill 0 or --decode 0 out.")
    return found


def checked_lengths(
    prefill: int | None, decode: int | None, depths: Sequence[int], spelled: Callable[[str], str]
) -> Lengths:
    """Return what a user asks for, if it can be counted; `spelled` is how they wrote a name."""
    for name, value in (("prefill", prefill), ("decode", decode)):
        if value is not None and not 0 <= value <= MOST_TOKENS:
            raise InputError(f"{spelled(name)} must be 0 to {MOST_TOKENS} tokens, not {value}", "For example 128.")
    wrong = any(not 0 <= depth <= MOST_TOKENS for depth in depths)
    if wrong or len(depths) > MOST_DEPTHS or len(set(depths)) != len(depths):
        raise InputError(
            f"{spelled('depth')} must be up to {MOST_DEPTHS} different numbers of tokens, not "
            f"{', '.join(map(str, depths[: MOST_DEPTHS + 1]))}",
            "For example 0,128,1024.",
        )
    return Lengths(prefill, decode, tuple(depths))


def wants_phases(config: Config) -> bool:
    """Return whether a config leaves open what a language model reads."""
    plain = not any(e.phase or e.method or e.runner_path for e in config.experiments)
    return plain and not config.inputs


def expand_phases(config: Config, phases: Sequence[Phase], where: str) -> Config:
    """Return the config with each experiment in every phase, one phase after the other."""
    whole = expand(config, [(PHASES, dict.fromkeys(range(len(config.experiments)), phases))], where)
    order = {each.name: phases.index(each.phase) for each in whole.experiments if each.phase is not None}
    experiments = sorted(whole.experiments, key=lambda each: order[each.name])
    pairs = sorted(whole.analysis.compare_pairs, key=lambda pair: order[pair[0]])
    analysis = msgspec.structs.replace(config.analysis, compare_pairs=pairs)
    whole = msgspec.structs.replace(config, experiments=experiments, analysis=analysis)
    # What a name may be is checked there.
    return parse_config(msgspec.to_builtins(whole), where)


def token_plan(sequence: SequenceProgram, experiment: Experiment, tokens: Path) -> tuple[str, TokenPlan]:
    """Return the method that a phase executes, and what it reads."""
    phase = experiment.phase
    assert phase is not None
    reader = sequence.prefill if phase.kind == "prefill" else sequence.decode
    if reader is None or not reader.takes(phase.tokens_read):
        what = f"experiment '{experiment.name}' reads {phase.tokens_read} tokens at once, which this program does not"
        raise InputError(what, "Correct its `phase`.")
    before = phase.depth if phase.kind == "prefill" else phase.depth + phase.tokens
    fill = sequence.fill(before)
    if sum(size * count for _, size, count in fill) < before:
        what = f"experiment '{experiment.name}' needs {before} tokens in the cache, which this program cannot read"
        raise InputError(what, "Correct the `depth` of its `phase`.")
    if phase.kind == "prefill":
        return reader.method, TokenPlan(tokens, fill, phase.depth, phase.tokens, 1)
    if MODES[experiment.mode] == "trace":
        # Kernels are the same at every position.
        return reader.method, TokenPlan(tokens, fill, phase.last, 1, 1)
    return reader.method, TokenPlan(tokens, fill, phase.depth, 1, phase.tokens)


def token_sequence(config: Config, sequence: SequenceProgram, paths: ExportPaths, export: ExportRecord | None) -> Path:
    """Return the file of tokens that experiments read: the user's; else random ones after the export's."""
    phases = [experiment.phase for experiment in config.experiments if experiment.phase is not None]
    needed = max(positions(sequence, phase) for phase in phases)
    if config.token_file is not None:
        return checked_tokens(Path(config.token_file).resolve(), needed, sequence.vocabulary)
    return random_tokens(exported_tokens(paths, export), needed, sequence.vocabulary, config.seed)


def exported_tokens(paths: ExportPaths, export: ExportRecord | None) -> Path | None:
    """Return the tokens that an export left beside the .pte; None if it left none."""
    return paths.directory / export.sequence.tokens if export is not None and export.sequence is not None else None


def positions(sequence: SequenceProgram, phase: Phase) -> int:
    before = sequence.fill(phase.depth if phase.kind == "prefill" else phase.depth + phase.tokens)
    return max(phase.depth + phase.tokens, sum(size * count for _, size, count in before))


def checked_tokens(path: Path, needed: int, vocabulary: int | None) -> Path:
    import numpy as np

    hint = "Give a .npy file of token ids: int64, one dimension."
    tokens = read_npy(path, "token file", hint, _TOKENS_LIMIT)
    if tokens.dtype != np.int64 or tokens.ndim != 1:
        raise InputError(f"token file {path} holds {tokens.dtype} of {tokens.ndim} dimensions", hint)
    if tokens.size < needed:
        raise InputError(f"token file {path} has {tokens.size} tokens, and {needed} are needed", "Ask for fewer.")
    if tokens.size and (int(tokens.min()) < 0 or (vocabulary is not None and int(tokens.max()) >= vocabulary)):
        raise InputError(
            f"token file {path} has ids from {int(tokens.min())} to {int(tokens.max())}, and the program knows "
            f"0 to {(vocabulary or 0) - 1}",
            "Give tokens of this model's own tokenizer.",
        )
    return path


def token_count(path: Path) -> int:
    return int(read_npy(path, "token file", "", _TOKENS_LIMIT).size)


def random_tokens(exported: Path | None, needed: int, vocabulary: int | None, seed: int) -> Path:
    """Return random tokens, in the kit's cache: no program's speed depends on which they are."""
    import numpy as np

    begin = np.zeros(0, np.int64)
    if exported is not None and files.is_file(exported):
        begin = read_npy(checked_tokens(exported, 0, vocabulary), "token file", "", _TOKENS_LIMIT)
    rest = np.random.default_rng(seed).integers(0, vocabulary or 1, max(0, needed - begin.size), dtype=np.int64)
    held = io.BytesIO()
    np.save(held, np.concatenate([begin, rest]), allow_pickle=False)
    data = held.getvalue()
    made_from = {"tokens": hashlib.sha256(data).hexdigest()}
    home = cache.entry(
        "tokens", "token file", made_from, lambda folder: (folder / _TOKENS).write_bytes(data), "written"
    )
    return home / _TOKENS
