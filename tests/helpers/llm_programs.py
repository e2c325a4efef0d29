"""Programs of a tiny language model in every form that the kit recognises, stored: lowering them takes minutes.

    python -m tests.helpers.llm_programs     # makes tests/data/llm again

`answers.npz` has the tokens that they read and what eager fp32 answers after each.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from model_profiling.pipeline.config_types import Experiment
from model_profiling.pipeline.phase_experiments import sequence_of, token_plan
from model_profiling.platforms.base import LaunchRequest, Platform
from model_profiling.store.run_directory import Phase

HOME = Path(__file__).parents[1] / "data" / "llm"
ANSWERS = HOME / "answers.npz"
CONTEXT, VOCABULARY = 96, 64
# How each form is built: what the model attends with, how it takes positions, and how many methods it has.
FORMS: dict[str, tuple[dict[str, Any], int]] = {
    "custom": ({"sdpa": "custom"}, 1),
    "plain": ({"sdpa": "plain"}, 1),
    "each_position": ({"sdpa": "custom", "positions": "each"}, 1),
    "two_methods": ({"sdpa": "custom"}, 2),
    "two_methods_plain": ({"sdpa": "plain"}, 2),
}
Array = np.ndarray[Any, np.dtype[Any]]


def stored(form: str) -> Path:
    return HOME / f"{form}.pte"


def tokens() -> Array:
    return np.asarray(np.load(ANSWERS)["tokens"])


def eager(index: int) -> Array:
    """What the eager model answers to tokens[index], after all before it."""
    return np.asarray(np.load(ANSWERS)["logits"][index])


def request_of(platform: Platform, pte: Path, phase: Phase, read: Path, home: Path) -> LaunchRequest:
    """A process for one phase of a program, without a tracer."""
    sequence = sequence_of(pte)
    assert sequence is not None
    method, reading = token_plan(sequence, Experiment("x", phase=phase), read)
    places = {"log": home / "log", "output_base": home / f"{pte.stem}_{phase.in_names}"}
    return LaunchRequest(platform.runner(None), pte, (), 1, 1, (), method=method, reading=reading, **places)  # type: ignore[arg-type]


def answer(platform: Platform, request: LaunchRequest, runs: int = 3) -> Array:
    """The logits of a phase's last token, from the kit's runner."""
    session = platform.open(request)
    session.run(runs)
    done = session.finish()
    base = request.output_base
    assert base is not None
    values = np.fromfile(base.with_name(f"{base.name}-0.bin"), np.float32)
    return np.asarray(values.reshape(-1, done.outputs[0].shape[-1])[-1])


def without_filling(request: LaunchRequest) -> LaunchRequest:
    """The same, with nothing in the cache: what a decode answers whose cache is another one."""
    assert request.reading is not None
    return replace(request, reading=replace(request.reading, fill=()))


def cosine(one: Array, other: Array) -> float:
    return float(np.dot(one, other) / (np.linalg.norm(one) * np.linalg.norm(other)))


def main() -> None:
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    from tests.helpers.tiny_llm import TinyLlm, built, eager_logits, two_methods

    HOME.mkdir(exist_ok=True)
    sizes: dict[str, Any] = {"layers": 2, "dim": 32, "heads": 4, "vocab": VOCABULARY, "context": CONTEXT}
    read = np.random.default_rng(7).integers(0, VOCABULARY, CONTEXT - 1)
    for form, (settings, methods) in FORMS.items():
        model = TinyLlm(**sizes, **settings)
        if methods == 2:
            two_methods(model, stored(form))
            continue
        with torch.no_grad():
            shapes = model.get_dynamic_shapes()
            captured = torch.export.export(built(model), model.get_example_inputs(), dynamic_shapes=shapes)
        edge = to_edge_transform_and_lower(captured, partitioner=[XnnpackPartitioner()])
        stored(form).write_bytes(edge.to_executorch().buffer)
    model = TinyLlm(**sizes)
    np.savez(ANSWERS, tokens=read, logits=np.stack([eager_logits(model, read, i) for i in range(len(read))]))


if __name__ == "__main__":
    main()
