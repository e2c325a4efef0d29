"""A language model small enough for tests, with all a real one has: a cache, rotary positions, grouped queries.

`sme2-kit export tests/helpers/tiny_llm.py:TinyLlm --set layers=1` makes the program of one method that takes any number
of tokens; `two_methods` writes a program of `prefill_forward` and `decode_forward` with the same weights.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from model_profiling.models.language_models.model import Sizes, TransformerModel

VOCABULARY = 257
CONTEXT = 192
SAMPLE = 12
Array = np.ndarray[Any, np.dtype[Any]]


class EachPosition(torch.nn.Module):  # type: ignore[misc]
    """Takes the position of every token, `cache_position[n]`, as exports of optimum-executorch do."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, cache_position: torch.Tensor) -> Any:
        return self.model(input_ids, {"input_pos": cache_position[:1]})


class TinyLlm(TransformerModel):
    """`positions` is "start" for input_pos[1], "each" for cache_position[n]."""

    def __init__(
        self,
        layers: int = 1,
        dim: int = 64,
        heads: int = 4,
        vocab: int = VOCABULARY,
        context: int = CONTEXT,
        sdpa: str = "custom",
        positions: str = "start",
    ) -> None:
        self.sizes = Sizes(dim, 2 * dim, heads, max(1, heads // 2), dim // heads, layers, vocab, 1e4, 1e-5)
        self.positions = positions
        super().__init__(layers, context, sdpa)

    def get_eager_model(self) -> torch.nn.Module:
        model = super().get_eager_model()
        for parameter in model.parameters():
            # A model this small needs larger weights than a real one for attention to decide anything.
            parameter.data *= 10 if parameter.dim() > 1 else 1
        return EachPosition(model) if self.positions == "each" else model

    def get_example_inputs(self) -> tuple[Any, ...]:
        tokens = torch.randint(self.sizes.vocab_size, (1, min(SAMPLE, self.context - 1)))
        return called_with(tokens, 0, self.positions)

    def get_dynamic_shapes(self) -> Any:
        if self.positions == "start":
            return super().get_dynamic_shapes()
        tokens = torch.export.Dim("tokens", max=self.context - 1)
        return ({1: tokens}, {0: tokens})


def called_with(tokens: torch.Tensor, start: int, positions: str) -> tuple[Any, ...]:
    """The inputs for tokens [1, n] from position `start` on."""
    if positions == "each":
        return (tokens, torch.arange(start, start + tokens.shape[1]))
    return (tokens, {"input_pos": torch.tensor([start])})


def built(model: TinyLlm, seed: int = 0) -> torch.nn.Module:
    """The eager model with the weights that an export with this seed has."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return model.get_eager_model()


def eager_logits(model: TinyLlm, tokens: Array, index: int, seed: int = 0) -> Array:
    """What eager fp32 answers at `tokens[index]`: one prefill of tokens[0..index] into a fresh cache, [vocabulary]."""
    fed = torch.from_numpy(np.asarray(tokens[: index + 1], dtype=np.int64))[None]
    with torch.no_grad():
        answer = built(model, seed)(*called_with(fed, 0, model.positions))
    return np.asarray(answer[0].numpy())


def two_methods(model: TinyLlm, path: Path, seed: int = 0, shared: bool = True) -> Path:
    """Write a program of `prefill_forward` (any number of tokens) and `decode_forward` (one), one cache for both.

    Without `shared`, each method has a cache of its own: decode then answers from an empty one, without an error.
    """
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
    from executorch.exir.passes import MemoryPlanningPass

    from model_profiling.export.lower.lowering import capture
    from model_profiling.upstream.faster_lowering import faster_lowering

    module = built(model, seed)
    single = called_with(torch.zeros(1, 1, dtype=torch.int64), 0, model.positions)
    prefill = capture(module, (model.get_example_inputs(), {}), model.get_dynamic_shapes())
    decode = capture(module, (single, {}))
    with faster_lowering():
        edge = to_edge_transform_and_lower(
            {"prefill_forward": prefill, "decode_forward": decode},
            partitioner={name: [XnnpackPartitioner()] for name in ("prefill_forward", "decode_forward")},
        )
        planning = MemoryPlanningPass(share_mutable_buffers=shared)
        path.write_bytes(edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning)).buffer)
    return path


def exported_llm(store: Path, dtype: str = "fp32", backend: str = "xnnpack", **settings: Any) -> Any:
    """Export the model into `store`, unless it is there: to lower a program of dynamic shapes takes seconds."""
    import fcntl

    from model_profiling.export.cache import cached
    from model_profiling.export.exporter import ExportRequest, export
    from model_profiling.models.options import LoadOptions

    name = "_".join(["tiny_llm", *(str(value) for value in settings.values())])
    options = LoadOptions(settings=tuple(settings.items()))
    target = f"{Path(__file__).resolve()}:TinyLlm"
    request = ExportRequest(name, store / name, dtype, backend=backend, target=target, options=options)
    store.mkdir(parents=True, exist_ok=True)
    with (store / f".{name}_{dtype}_{backend}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return cached(request) or export(request)
