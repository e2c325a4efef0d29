"""Named layers stay in fp32 with their own weights; calibration takes the user's samples and refuses what is none."""
# ruff: noqa: E402 - without torch these tests are skipped before the imports that need it

from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

pytest.importorskip("executorch.exir")
torch = pytest.importorskip("torch")

import sme2_kit
from model_profiling.base.errors import InputError
from model_profiling.export.cache import describe
from model_profiling.export.prepare.kept_layers import keep_in_fp32, kept_nodes
from model_profiling.export.prepare.quantization import calibration_calls, quantized_graph
from model_profiling.export.request import ExportRequest, typed
from model_profiling.formats import pte
from model_profiling.formats.pte.xnnpack_graph import graphs
from tests.conftest import SAMPLED
from tests.helpers.in_process import verify
from tests.helpers.lossy_networks import FUNCTIONAL, NETWORKS, drawn, network


def captured(net: Any, x: Any) -> Any:
    return torch.export.export(net.half(), (x.half(),))


@pytest.mark.parametrize(
    ("kind", "names"),
    [(kind, names) for kind in NETWORKS for names in (("blocks.1",), ("blocks", "head"))]
    + [("perceptron", ("add",)), ("perceptron", ("blocks.*",)), ("convolutions", ("mean", "blocks.0.1"))],
)
def test_kept_layers_compute_in_fp32_and_all_others_in_fp16(kind: str, names: tuple[str, ...]) -> None:
    net, x = network(kind, seed=0)
    weights = {name: value.clone() for name, value in net.state_dict().items()}
    program = captured(net, x)
    plain = program.module()(x.half())
    kept = {node.name for node in kept_nodes(program.graph, names)}
    keep_in_fp32(program, names, weights)
    values = {node.name: node.meta["val"].dtype for node in program.graph.nodes if node.op == "call_function"}
    computed = {name: dtype for name, dtype in values.items() if not name.startswith("_to_copy")}
    assert kept and {name for name, dtype in computed.items() if dtype == torch.float32} == kept
    answer = program.module()(x.half())
    assert answer.dtype == torch.float16
    assert torch.allclose(answer.float(), plain.float(), atol=2e-2)
    own = [name for name in weights if any(name.startswith(f"{path.rstrip('.*')}.") for path in names)]
    for name in own:
        if weights[name].is_floating_point():
            assert torch.equal(program.state_dict[name], weights[name])


LAYERS = st.tuples(st.just("layer"), st.integers(0, 3))
STEPS = st.lists(LAYERS | st.tuples(st.sampled_from([*FUNCTIONAL, "branch", "row"]), st.integers(0, 9)), max_size=9)


@hypothesis.given(STEPS, st.sets(st.integers(0, 3), min_size=1))
@hypothesis.example([("layer", 0), ("relu", 0), ("layer", 1), ("halves", 0), ("layer", 2)], {0, 1, 2})
@hypothesis.example([("layer", 0), ("row", 0), ("relu_", 0), ("layer", 1)], {0, 1})
@hypothesis.example([("layer", 0), ("same_dtype", 0), ("mask", 0), ("layer", 0), ("add", 1), ("layer", 1)], {0, 1})
@hypothesis.settings(
    max_examples=5 if SAMPLED else 20, deadline=None, phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate]
)
def test_what_stands_between_kept_layers_is_kept_with_them(steps: list[tuple[str, int]], kept: set[int]) -> None:
    steps = [("layer", 0), *steps, ("layer", 1)]
    called = {number % 4 for kind, number in steps if kind == "layer"}
    net, x = drawn(steps)
    expected = net(x).detach()
    weights = {name: value.clone() for name, value in net.state_dict().items()}
    program = captured(net, x)
    plain = program.module()(x.half())
    names = tuple(f"layers.{number}" for number in sorted(kept & called)) or ("layers.0",)
    between, outside = only_between(program.graph, names)
    keep_in_fp32(program, names, weights)
    dtypes = {
        node.name: node.meta["val"].dtype
        for node in program.graph.nodes
        if node.op == "call_function" and hasattr(node.meta["val"], "dtype")
    }
    assert all(dtypes[name] == torch.float32 for name in between if name in dtypes)
    assert all(dtypes[name] != torch.float32 for name in outside if name in dtypes)
    answer = program.module()(x.half())
    assert answer.dtype == torch.float16
    errors = [float((each.float() - expected).abs().max()) for each in (plain.detach(), answer.detach())]
    assert errors[1] <= 2 * errors[0] + 1e-2


def only_between(graph: Any, names: tuple[str, ...]) -> tuple[set[str], set[str]]:
    """Floating-point operators whose values come from these layers alone and go to them alone; and those to which
    nothing comes from them."""
    nodes = [node for node in graph.nodes if node.op == "call_function" and "_assert" not in node.name]
    layers = {node: [path for path, _ in node.meta["nn_module_stack"].values() if path] for node in nodes}
    kept = {node for node, paths in layers.items() if set(paths) & set(names)}
    free = {node for node, paths in layers.items() if not paths}

    def ends(node: Any, step: Any) -> set[bool]:
        """Whether the next layers in one direction are kept; what ends elsewhere is not."""
        found = set()
        for each in step(node):
            if (each.op == "placeholder" and each.name.startswith(("p_", "b_", "c_"))) or "_assert" in each.name:
                continue
            found |= ends(each, step) if each in free else {each in kept}
        return found

    before = {node: ends(node, lambda each: each.all_input_nodes) for node in free}
    after = {node: ends(node, lambda each: each.users) for node in free}
    floating = {node for node in free if getattr(node.meta["val"], "is_floating_point", bool)()}
    between = {node.name for node in floating if before[node] == after[node] == {True}}
    # A view through which a value is changed goes with the value.
    return between, {n.name for n in floating if True not in before[n] and not n.name.startswith(("select", "copy_"))}


def test_a_name_that_means_nothing_is_refused_with_what_is_near() -> None:
    net, x = network("perceptron", seed=0)
    with pytest.raises(InputError, match=r"no layer 'blocs\.1'") as caught:
        keep_in_fp32(captured(net, x), ("blocs.1",), {})
    assert "blocks.1" in caught.value.hint


def test_an_export_is_another_one_with_kept_layers_or_other_samples(tmp_path: Path) -> None:
    (tmp_path / "samples").mkdir()
    np.save(tmp_path / "samples" / "a.npy", np.zeros(3, np.float32))
    plain = ExportRequest("toy_cnn", tmp_path, "int8")
    kept = ExportRequest("toy_cnn", tmp_path, "int8", keep_fp32=("b", "a", "b"), calibration=tmp_path / "samples")
    assert describe(plain) != describe(kept)
    assert typed(kept)[-6:] == ["--keep-fp32", "a", "--keep-fp32", "b", "--calibration", str(tmp_path / "samples")]
    before = describe(kept)
    np.save(tmp_path / "samples" / "a.npy", np.ones(3, np.float32))
    assert describe(kept) != before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtype": "fp32", "keep_fp32": ("a",)}, "all layers are in fp32 already"),
        ({"dtype": "fp16", "calibration": Path()}, "fp16 is not calibrated"),
        ({"dtype": "int8", "calibration": Path("no/such/folder")}, "there is no folder"),
    ],
)
def test_what_cannot_be_is_refused_before_the_export(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ExportRequest("toy_cnn", Path("out"), **settings).check()


def test_the_samples_set_the_ranges_of_int8(tmp_path: Path) -> None:
    net, x = network("perceptron", seed=0)
    np.save(tmp_path / "wide.npy", np.linspace(-30, 30, x.numel(), dtype=np.float32).reshape(x.shape))
    graph = torch.export.export(net, (x,)).module()
    quantized = quantized_graph(graph, "int8", list(calibration_calls(tmp_path, ((x,), {}))))
    steps = [node.args[1] for node in quantized.graph.nodes if "quantize_per_tensor" in str(node.target)]
    assert steps[0] == pytest.approx(60 / 255, rel=0.02)


def test_an_export_says_what_was_kept_and_what_it_was_calibrated_on(tmp_path: Path) -> None:
    net, x = network("perceptron", seed=0)
    (tmp_path / "samples").mkdir()
    np.save(tmp_path / "samples" / "many.npy", np.random.default_rng(0).normal(size=(12, 12)).astype(np.float32))
    made = sme2_kit.export(
        net, x, dtype="int8", out=tmp_path / "out", keep_fp32=["head"], calibration=tmp_path / "samples"
    )
    record = made.record
    assert record.keep_fp32 == ["head"]
    assert record.calibration is not None and record.calibration.batches == 3
    assert verify(made).verdict == "agrees"
    program = pte.read(made.paths.pte)
    nodes = [node for graph in graphs(program, program.methods[0]).values() for node in graph.nodes]
    dtypes = [node.inputs[0].dtype for node in nodes if node.op == "FullyConnected"]
    assert dtypes == ["qint8"] * 4 + ["fp32"]


def calls(folder: Path, *inputs: Any) -> list[Any]:
    return [positional for positional, _ in calibration_calls(folder, (inputs, {}))]


def test_samples_are_taken_one_by_one_whatever_is_in_a_file(tmp_path: Path) -> None:
    image = torch.zeros(1, 2, 3)
    np.save(tmp_path / "1_one.npy", np.full((1, 2, 3), 1, np.float32))
    np.save(tmp_path / "2_bare.npy", np.full((2, 3), 2, np.float64))
    np.save(tmp_path / "3_many.npy", np.stack([np.full((2, 3), n, np.uint8) for n in (3, 4, 5)]))
    found = calls(tmp_path, image)
    assert [float(x.mean()) for (x,) in found] == [1, 2, 3, 4, 5]
    assert all(x.shape == image.shape and x.dtype == torch.float32 for (x,) in found)


def test_a_model_of_several_inputs_takes_a_folder_for_each_sample(tmp_path: Path) -> None:
    image, ids = torch.zeros(1, 2), torch.zeros(1, 3, dtype=torch.int64)
    for number in (1, 2):
        (tmp_path / f"s{number}").mkdir()
        np.save(tmp_path / f"s{number}" / "input_0.npy", np.full((1, 2), number, np.float32))
        np.save(tmp_path / f"s{number}" / "input_1.npy", np.full((1, 3), number))
    found = calls(tmp_path, image, ids)
    assert [(float(x.mean()), int(y[0, 0])) for x, y in found] == [(1, 1), (2, 2)]
    (tmp_path / "s2" / "input_1.npy").unlink()
    with pytest.raises(InputError, match=r"s2 has no input_1\.npy"):
        calls(tmp_path, image, ids)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((1, 5), np.float32), r"has the shape \[1, 5\], and the model takes \[1, 2\]"),
        (np.full((1, 2), np.nan, np.float32), "NaN or infinite"),
        (np.zeros((1, 2), np.complex64), "contains complex64"),
        (np.zeros((0, 2), np.float32), "has the shape"),
        (b"not numpy", "not a readable"),
    ],
)
def test_what_is_no_sample_is_an_error_that_names_the_file(array: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "sample.npy"
    if isinstance(array, bytes):
        path.write_bytes(array)
    else:
        np.save(path, array)
    with pytest.raises(InputError, match=message) as caught:
        calls(tmp_path, torch.zeros(1, 2))
    assert "sample.npy" in caught.value.message


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no samples to calibrate with"):
        calls(tmp_path, torch.zeros(1, 2))
