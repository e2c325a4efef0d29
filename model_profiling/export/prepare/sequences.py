"""A sequence of tokens for language models, and what eager fp32 answers at some of them.

A language model is known by its signature: int64 tokens [1, n], the position of the first ([1]) or of each of them
([n]) as int64, and buffers that a call changes. What it answers depends on what it was fed before, so that each answer
here comes from a model whose buffers are fresh.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from model_profiling.base import files
from model_profiling.base.errors import KitError
from model_profiling.export.prepare import samples
from model_profiling.formats.pte import sequence
from model_profiling.models.loading import LoadedModel
from model_profiling.models.refused_inputs import explained_call
from model_profiling.models.state import changed_buffers, restored_state
from model_profiling.pipeline.phase_experiments import Lengths, chosen_phases
from model_profiling.store.artifacts import ExportPaths, SequenceRecord
from model_profiling.upstream.captured_graphs import tensors_of, with_tensors

TOKENS = "tokens.npy"
LONGEST = 640
# After a prefill of 128 tokens, and after 32 more.
ANSWERED = (127, 159)
# Lengths to try where the model's signature does not say how many tokens it takes.
SHORTER = (511, 319, 255, 191, 63, 31)


@dataclass(frozen=True)
class Sequence:
    """Tokens, and the logits at some of them by index."""

    tokens: torch.Tensor
    logits: dict[int, torch.Tensor]

    def write(self, paths: ExportPaths) -> None:
        files.write_bytes(paths.inputs / TOKENS, samples.npy_bytes(self.tokens))
        for index, values in self.logits.items():
            files.write_bytes(paths.expected / f"logits_{index}.npy", samples.npy_bytes(values))

    def record(self, paths: ExportPaths) -> SequenceRecord:
        logits = {str(index): f"{paths.expected.name}/logits_{index}.npy" for index in sorted(self.logits)}
        return SequenceRecord(f"{paths.inputs.name}/{TOKENS}", logits)


def find_sequence(model: LoadedModel, seed: int) -> Sequence | None:
    """Make up tokens and let the model, still in fp32, answer; None if it is not a language model."""
    reader = _reader(model)
    if reader is None:
        return None
    first = reader.sample_length - 1
    answers: dict[int, torch.Tensor] = {first: reader.fed(reader.sample[0])}
    if answers[first].numel() < 2:
        return None  # it answers with something else than a value for each token of a vocabulary
    tokens = reader.made_up(answers[first].numel(), seed)
    wanted = {*(index for index in ANSWERED if first < index < reader.capacity), *reader.run_by_default} - {first}
    last = [min(LONGEST, reader.capacity) - 1, reader.longest_call - 1, *SHORTER]
    for index in sorted(wanted):
        _answer(reader, tokens, index, answers)
    for index in map(reader.reachable, last):
        if max(answers) < index < reader.capacity and _answer(reader, tokens, index, answers):
            break
    return Sequence(tokens[: max(answers) + 1], answers)


@dataclass(frozen=True)
class TokenModel:
    """A language model that can be fed tokens from a fresh start."""

    model: LoadedModel
    sample: torch.Tensor
    # Whether it takes the position of each token, or of the first one.
    each: bool
    # No call takes more tokens than `longest_call`; with `fixed`, none fewer.
    longest_call: int
    fixed: bool
    # No cache holds more.
    capacity: int

    @property
    def run_by_default(self) -> list[int]:
        """Return the last tokens of the phases that `run` chooses: its outputs are held against these answers."""
        whole = sequence.TokenMethod("forward", self.longest_call, not self.fixed)
        single = whole if whole.takes(1) else None
        several = whole if self.longest_call > 1 else None
        program = sequence.SequenceProgram(several, single, None, self.capacity, 0)
        return [phase.last for phase in chosen_phases(program, Lengths())]

    @property
    def sample_length(self) -> int:
        return int(self.sample.shape[1])

    def reachable(self, index: int) -> int:
        """Return the last token up to `index` at which a call can end."""
        return (index + 1) // self.longest_call * self.longest_call - 1 if self.fixed else index

    def made_up(self, logits: int, seed: int) -> torch.Tensor:
        """Return the tokens of the sample inputs, and random ones after them that the model has an embedding for."""
        tables = [part.num_embeddings for part in self.model.module.modules() if isinstance(part, torch.nn.Embedding)]
        generator = torch.Generator().manual_seed(seed)
        more = torch.randint(min(logits, max(tables, default=logits)), (LONGEST,), generator=generator)
        return torch.cat((self.sample[0], more))[: max(LONGEST, self.sample_length)]

    def fed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of the last token after a fresh start, in as few calls as the model allows."""
        module, answer = self.model.module, torch.empty(0)
        with restored_state(module), torch.no_grad():
            for start in range(0, len(tokens), self.longest_call):
                inputs, keywords = self._call(tokens[start : start + self.longest_call], start)
                answer = next(iter(tensors_of(module(*inputs, **keywords))), torch.empty(0)).clone()
        last = answer.flatten()[-answer.shape[-1] :] if answer.dim() else answer.flatten()
        return last.to(torch.float32)

    def _call(self, tokens: torch.Tensor, start: int) -> Any:
        places = torch.arange(start, start + len(tokens)) if self.each else torch.tensor([start])
        return with_tensors(self.model.call, (tokens[None], places))


def _answer(reader: TokenModel, tokens: torch.Tensor, index: int, answers: dict[int, torch.Tensor]) -> bool:
    """Note what the model answers at a token, if it takes that many."""
    if index != reader.reachable(index):
        return False
    try:
        answers[index] = reader.fed(tokens[: index + 1])
    except KitError:
        raise
    except Exception:  # noqa: BLE001 - how a model refuses to be fed beyond its context is its own affair
        return False
    return True


def _reader(model: LoadedModel) -> TokenModel | None:
    tensors = tensors_of(model.call)
    if len(tensors) != 2 or any(tensor.dtype != torch.int64 for tensor in tensors):
        return None
    tokens, places = tensors
    if tokens.dim() != 2 or tokens.shape[0] != 1 or places.dim() != 1 or len(places) not in (1, tokens.shape[1]):
        return None
    if int(places[0]) != 0:
        return None  # the sample is one step of many: nothing says what came before
    with explained_call(model.module, model.call, model.origin):
        state = changed_buffers(model.module, model.call)
    if not state:
        return None
    # One dimension of a cache of keys or values is its number of tokens.
    capacity = min((max(buffer.shape) for buffer in state.values() if buffer.dim() >= 3), default=LONGEST)
    length = int(tokens.shape[1])
    dynamic, most = _token_dimension(model)
    longest = min(most or LONGEST, LONGEST, capacity) if dynamic else length
    return TokenModel(model, tokens, len(places) == length, longest, not dynamic, max(capacity, length))


def _token_dimension(model: LoadedModel) -> tuple[bool, int | None]:
    """Return whether the number of tokens may change, and how many they may be; None where nothing says it."""
    if model.dynamic_shapes is None:
        return False, None
    names = list(inspect.signature(model.module.forward).parameters)
    given = {**dict(zip(names, model.call[0], strict=False)), **model.call[1]}
    shapes = model.dynamic_shapes
    spec = _first_spec(given if isinstance(shapes, Mapping) else tuple(given.values()), shapes)
    if spec is None:
        return False, None
    entry = spec.get(1) if isinstance(spec, Mapping) else spec[1] if isinstance(spec, (tuple, list)) else spec
    if entry is None or isinstance(entry, int):
        return False, None
    most = getattr(entry, "max", None)
    return True, int(most) if isinstance(most, int) else None


def _first_spec(value: Any, spec: Any) -> Any:
    """Return what `dynamic_shapes` says of the first tensor of nested inputs; both are nested alike."""
    if isinstance(value, torch.Tensor) or spec is None:
        return spec
    if isinstance(value, Mapping):
        pairs = [(each, spec.get(name)) for name, each in value.items()] if isinstance(spec, Mapping) else []
    else:
        pairs = list(zip(value, spec, strict=False)) if isinstance(value, (tuple, list)) else []
    return next((_first_spec(*pair) for pair in pairs if tensors_of(pair[0])), None)
