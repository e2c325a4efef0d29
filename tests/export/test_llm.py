"""Language models: caches are fresh where it counts, references are true, and programs decode as eager does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("executorch.exir")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model_profiling.base.errors import InputError
from model_profiling.export.in_memory import export_module
from model_profiling.export.lower.lowering import capture, remove_inverse_transposes
from model_profiling.export.prepare.preparation import prepare, quantize
from model_profiling.export.prepare.quantization import quantized_graph
from model_profiling.export.prepare.sequences import find_sequence
from model_profiling.export.request import ExportRequest
from model_profiling.formats.pte.sequence import SequenceProgram, TokenMethod
from model_profiling.models.loading import LoadedModel, LoadOptions, load_model
from model_profiling.models.state import changed_buffers, restored_state
from model_profiling.pipeline.phase_experiments import Lengths, chosen_phases
from tests.conftest import kept
from tests.helpers import tiny_llm
from tests.helpers.in_process import run_program, verify
from tests.helpers.tiny_llm import TinyLlm, called_with, eager_logits, exported_llm

TINY = f"{Path(tiny_llm.__file__).resolve()}:TinyLlm"


def loaded(**chosen: Any) -> LoadedModel:
    return load_model(TINY, options=LoadOptions(settings=tuple(chosen.items())))


def cosine(left: Any, right: Any) -> float:
    left, right = (np.asarray(each, dtype=np.float64).ravel() for each in (left, right))
    return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))


@pytest.fixture(scope="module")
def one_method(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Any:
    return exported_llm(kept(pytestconfig, tmp_path_factory.getbasetemp(), "exports") / "llm")


def method(path: Path, name: str = "forward") -> Any:
    from executorch.runtime import Runtime

    return Runtime.get().load_program(path).load_method(name)


def decoded(path: Path, tokens: Any, depth: int, filled: bool = True) -> Any:
    """What a program answers after a prefill of `depth` tokens and a step for each of the others."""
    program, tokens = method(path), torch.from_numpy(np.asarray(tokens))[None]
    if filled:
        program.execute([tokens[:, :depth], torch.tensor([0])])
    for place in range(depth, tokens.shape[1]):
        answer = program.execute([tokens[:, place : place + 1], torch.tensor([place])])[0].clone()
    return answer[0].numpy()


def test_a_program_decodes_as_eager_does_and_a_wrong_cache_is_found(one_method: Any) -> None:
    record, home = one_method.record.sequence, one_method.paths.directory
    tokens = np.load(home / record.tokens)
    assert tokens.dtype == np.int64 and len(tokens) == tiny_llm.CONTEXT and tokens.max() < tiny_llm.VOCABULARY
    assert set(record.logits) == {str(index) for index in (tiny_llm.SAMPLE - 1, 127, 159, tiny_llm.CONTEXT - 1)}
    for index, file in record.logits.items():
        theirs = np.load(home / file)
        assert theirs.shape == (tiny_llm.VOCABULARY,) and theirs.dtype == np.float32
        np.testing.assert_allclose(theirs, eager_logits(TinyLlm(), tokens, int(index)), atol=1e-4)
    for index, depth in ((127, 100), (159, 128), (159, 158)):
        fed, theirs = tokens[: index + 1], np.load(home / record.logits[str(index)])
        assert cosine(decoded(one_method.paths.pte, fed, depth), theirs) > 0.9999
        assert cosine(decoded(one_method.paths.pte, fed, depth, filled=False), theirs) < 0.99


def test_the_sample_is_answered_from_a_fresh_cache_every_time(one_method: Any) -> None:
    assert verify(one_method).verdict == "agrees"
    first, second = (run_program(one_method.paths, one_method.record)[0] for _ in range(2))
    assert torch.equal(first, second)
    assert [entry.shape for entry in one_method.record.inputs] == [[1, tiny_llm.SAMPLE], [1]]


def test_custom_operators_are_said_to_be_right_where_they_are(one_method: Any) -> None:
    left = {entry.op: entry for entry in one_method.record.delegation.not_delegated}
    for name, count in (("llama.custom_sdpa.default", 1), ("llama.update_cache.default", 2)):
        assert left[name].count == count and "nothing to rewrite" in left[name].reason
    assert "no tensor" in left["_local_scalar_dense.default"].reason
    floats = [entry for entry in left.values() if "dtype not supported by XNNPACK (float32)" in entry.reason]
    assert floats == []  # float32 is what it supports
    assert "known only when the program runs" in left["aten.view_copy.default"].reason


@pytest.mark.parametrize("chosen", [{"sdpa": "plain"}, {"positions": "each"}, {"context": 20}, {"context": 140}])
def test_references_are_those_of_one_prefill_whatever_the_signature(chosen: dict[str, Any]) -> None:
    model = TinyLlm(**chosen)
    found = find_sequence(loaded(**chosen), seed=0)
    assert found is not None and len(found.tokens) == model.context == max(found.logits) + 1
    for index, values in found.logits.items():
        ours = eager_logits(model, found.tokens.numpy(), index)
        np.testing.assert_allclose(values.numpy(), ours, atol=1e-4)


@pytest.mark.parametrize("context", [20, 140])
def test_what_is_run_by_default_has_a_reference(context: int) -> None:
    found = find_sequence(loaded(context=context), seed=0)
    assert found is not None
    reader = TokenMethod("forward", context - 1, True)
    phases = chosen_phases(SequenceProgram(reader, reader, None, context, 1), Lengths())
    assert {phase.kind for phase in phases} == {"prefill", "decode"}
    assert {phase.last for phase in phases} <= set(found.logits)


class Steps(torch.nn.Module):  # type: ignore[misc]
    """Takes `tokens` at once, no more and no fewer, and answers with the logits of all of them."""

    def __init__(self, room: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(31, 8)
        self.head = torch.nn.Linear(8, 31)
        self.register_buffer("seen", torch.zeros(1, room, 8))

    def forward(self, input_ids: torch.Tensor, cache_position: torch.Tensor) -> torch.Tensor:
        if cache_position[-1] >= self.seen.shape[1]:
            raise RuntimeError("the cache is full")
        self.seen[:, cache_position] = self.table(input_ids)
        return self.head(self.seen.cumsum(1)[:, cache_position])


class Adds(torch.nn.Module):  # type: ignore[misc]
    """Remembers nothing."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


def fixed(tokens: int, room: int, **changes: Any) -> LoadedModel:
    inputs = (torch.randint(31, (1, tokens)), torch.arange(tokens))
    return LoadedModel(
        "steps",
        "",
        "",
        Steps(room).eval(),
        **{"call": (inputs, {}), "dynamic_shapes": None, **changes},
    )


@pytest.mark.parametrize(("tokens", "room", "answered"), [(1, 40, 40), (16, 640, 160), (128, 256, 256), (5, 12, 10)])
def test_a_model_of_fixed_shapes_is_fed_step_by_step(tokens: int, room: int, answered: int) -> None:
    model = fixed(tokens, room)
    found = find_sequence(model, seed=0)
    assert found is not None and answered - 1 in found.logits and max(found.logits) < room
    assert torch.equal(model.module.seen, torch.zeros(1, room, 8))
    table, head = model.module.table, model.module.head
    with torch.no_grad():
        for index, values in found.logits.items():
            torch.testing.assert_close(values, head(table(found.tokens[: index + 1]).sum(0)), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    "changes",
    [
        {"call": ((torch.ones(1, 4), torch.arange(4)), {})},
        {"call": ((torch.ones(1, 4, dtype=torch.int64),), {})},
        {"call": ((torch.ones(2, 4, dtype=torch.int64), torch.arange(4)), {})},
        {"call": ((torch.ones(1, 4, dtype=torch.int64), torch.arange(3, 7)), {})},
        {"module": Adds()},
    ],
)
def test_other_signatures_are_no_language_models(changes: dict[str, Any]) -> None:
    from dataclasses import replace

    assert find_sequence(replace(fixed(4, 8), **changes), seed=0) is None


def test_exporting_leaves_the_cache_fresh_in_every_dtype() -> None:
    """Eager runs for references, for what the dtype costs and for calibration: none is seen by the next."""
    for dtype in ("fp16", "int8-dynamic", "int4"):
        request = ExportRequest("tiny", Path(), dtype)
        prepared = prepare(loaded(), request)
        if dtype != "fp16":
            prepared = quantize(prepared, request)
        state = {name: buffer for name, buffer in prepared.model.module.named_buffers() if "_cache" in name}
        assert len(state) == 2 and not any(buffer.any() for buffer in state.values()), dtype
        assert prepared.cost is not None and prepared.cost.sqnr_db is not None
        assert prepared.cost.sqnr_db > (40 if dtype == "fp16" else 20 if dtype == "int8-dynamic" else 5), dtype


class Counter(torch.nn.Module):  # type: ignore[misc]
    """Counts its calls from a number that is not zero, with a buffer in place or with another in its place."""

    count: torch.Tensor

    def __init__(self, replaced: bool = False) -> None:
        super().__init__()
        self.replaced = replaced
        self.register_buffer("count", torch.tensor([5.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.replaced:
            self.count = self.count + 1
        else:
            self.count.add_(1)
        return x * self.count


def test_state_that_is_not_zero_at_first_is_in_the_program(tmp_path: Path) -> None:
    result = export_module(Counter(), torch.tensor([[1.0, 2.0, 4.0]]), tmp_path, dtype="fp32")
    assert verify(result).verdict == "agrees"
    program = method(result.paths.pte)
    answers = [float(program.execute([torch.ones(1, 3)])[0][0, 0]) for _ in range(3)]
    assert answers == [6, 7, 8]


@pytest.mark.parametrize("replaced", [False, True])
def test_state_is_put_back_however_a_model_keeps_it(replaced: bool) -> None:
    module = Counter(replaced)
    assert set(changed_buffers(module, ((torch.ones(1),), {}))) == {"count"}
    with restored_state(module):
        module(torch.ones(1))
    assert float(module.count) == 5
    assert "count" in module.state_dict()


class Turned(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, orders: list[list[int]]) -> None:
        super().__init__()
        self.orders = orders

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for order in self.orders:
            x = x.permute(order) if len(order) == 3 else x.transpose(*order)
        return x + 1


@settings(max_examples=8, deadline=None)
@given(st.lists(st.one_of(st.permutations(range(3)), st.tuples(*[st.integers(-3, 2)] * 2).map(list)), max_size=5))
def test_only_transposes_that_undo_each_other_go(orders: list[list[int]]) -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    program = capture(Turned(orders), ((x,), {}))
    remove_inverse_transposes(program)
    assert torch.equal(program.module()(x), Turned(orders)(x))


def test_a_pair_of_transposes_goes() -> None:
    program = capture(Turned([[1, 2], [-1, 1], [2, 0, 1], [1, 2, 0]]), ((torch.ones(2, 3, 4),), {}))
    assert remove_inverse_transposes(program) == 2
    assert [str(node.target) for node in program.graph.nodes if node.op == "call_function"] == ["aten.add.Tensor"]


def test_int4_channel_is_four_bits_for_any_model_with_linear_layers(tmp_path: Path) -> None:
    from model_profiling.formats import pte
    from model_profiling.formats.pte.xnnpack_graph import graphs

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 32))
    result = export_module(module, torch.randn(3, 64), tmp_path, dtype="int4-channel")
    assert verify(result).verdict == "agrees"
    program = pte.read(result.paths.pte)
    nodes = [node for graph in graphs(program, program.methods[0]).values() for node in graph.nodes]
    layers = [[value.dtype for value in node.inputs][:2] for node in nodes if node.op == "FullyConnected"]
    assert layers == [["qdint8", "qcint4"]] * 2
    assert result.paths.pte.name.endswith("_xnnpack_int4-channel.pte")


def test_a_model_without_linear_layers_is_not_called_quantized() -> None:
    net, x = torch.nn.Conv2d(3, 4, 3), torch.ones(1, 3, 8, 8)
    with pytest.raises(InputError, match="int4-channel quantizes linear layers, and this model has none"):
        quantized_graph(torch.export.export(net, (x,)).module(), "int4-channel", [((x,), {})])
    with pytest.raises(InputError, match="int8-dynamic quantizes"):
        quantized_graph(torch.export.export(torch.nn.Sigmoid(), (x,)).module(), "int8-dynamic", [((x,), {})])


def saved(tmp_path: Path, state: dict[str, Any]) -> LoadOptions:
    torch.save(state, tmp_path / "weights.pt")
    return LoadOptions(checkpoint=tmp_path / "weights.pt")


def test_a_checkpoint_needs_neither_caches_nor_a_tied_head(tmp_path: Path) -> None:
    state = loaded().module.state_dict()
    weights = {name: tensor + 1 for name, tensor in state.items() if "cache" not in name and name != "output.weight"}
    module = load_model(TINY, options=saved(tmp_path, weights)).module
    assert torch.equal(module.output.weight, weights["tok_embeddings.weight"])
    assert not any(buffer.any() for name, buffer in module.named_buffers() if "_cache" in name)
    longer = loaded(context=400).module.state_dict()
    load_model(TINY, options=saved(tmp_path, longer))
    with pytest.raises(InputError, match=r"lacks 1 \(norm.weight\)"):
        load_model(TINY, options=saved(tmp_path, {k: v for k, v in weights.items() if k != "norm.weight"}))
    with pytest.raises(InputError, match="are one tensor in the model"):
        load_model(TINY, options=saved(tmp_path, {**state, "output.weight": state["output.weight"] + 1}))


@pytest.mark.parametrize("name", ["smollm2_135m", "qwen3_0_6b"])
def test_models_of_the_zoo_have_the_published_sizes_and_weights_that_compute(name: str) -> None:
    from importlib import import_module

    from model_profiling.models import registered_models

    module, _, attribute = str(registered_models()[name].target).partition(":")
    model = getattr(import_module(module), attribute)
    sizes = model.sizes
    heads = (2 * sizes.n_heads + 2 * sizes.n_kv_heads) * sizes.head_dim * sizes.dim
    norms = 2 * sizes.dim + (2 * sizes.head_dim if sizes.use_qk_norm else 0)
    layer = heads + 3 * sizes.dim * sizes.hidden_dim + norms
    count = sizes.n_layers * layer + sizes.vocab_size * sizes.dim + sizes.dim
    assert registered_models()[name].parameters == f"{count / 1e6:.1f} M"


def test_random_weights_compute_something() -> None:
    model = loaded()
    norms = [tensor for name, tensor in model.module.named_parameters() if "norm" in name]
    assert norms and all(torch.equal(norm, torch.ones_like(norm)) for norm in norms)
    assert model.module.output.weight is model.module.tok_embeddings.weight
    with torch.no_grad():
        answers = model.module(*called_with(torch.randint(31, (1, 9)), 0, "start"))
    assert answers.isfinite().all() and answers.std() > 0.1


def test_a_bad_setting_is_an_error_that_says_what_is_right() -> None:
    for chosen, said in (
        ({"sdpa": "fast"}, "no sdpa 'fast'"),
        ({"layers": -1}, "layers -1"),
        ({"context": 1}, "context 1"),
    ):
        with pytest.raises(InputError, match=said):
            load_model("smollm2_135m", options=LoadOptions(settings=tuple(chosen.items())))
