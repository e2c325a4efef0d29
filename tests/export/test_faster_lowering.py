"""What lowering leaves out does not show: graphs run, their code is what it would have been, and so is the program."""

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("executorch.exir")

import torch
from torch.fx import GraphModule, symbolic_trace

from model_profiling.export.lower import lowering
from model_profiling.upstream.faster_lowering import faster_lowering


def changed(module: GraphModule) -> None:
    """Make addition a multiplication."""
    for node in module.graph.nodes:
        if node.op == "call_function":
            node.target = torch.mul
    module.recompile()


class Sum(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.add(x, x)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("asked", ["called", "code"])
def test_a_graph_is_compiled_when_it_is_needed(inside: bool, asked: str) -> None:
    expected, x = symbolic_trace(Sum()), torch.tensor([3.0])
    changed(expected)
    with faster_lowering():
        module = symbolic_trace(Sum())
        changed(module)
        if inside:
            assert module(x) == 9 if asked == "called" else module.code == expected.code
            # It changes once more, and what was compiled is old.
            changed(module)
    assert module(x) == 9 if asked == "called" else module.code == expected.code
    assert module(x) == 9 and module.code == expected.code
    changed(module)
    assert module(x) == 9


def test_copies_of_a_program_share_weights_that_lowering_leaves_as_they_are() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).eval()
    program, before = torch.export.export(model, (torch.ones(1, 3, 8, 8),)), copy.deepcopy(model.state_dict())
    lowered = lowering.lower(program, "xnnpack")
    kept = lowered.edge._etrecord.edge_dialect_program.state_dict
    assert kept["0.weight"] is program.state_dict["0.weight"]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert copy.deepcopy(program).state_dict["0.weight"] is not program.state_dict["0.weight"]


class Parts(torch.nn.Module):  # type: ignore[misc]
    """What passes fuse, decompose, replace or leave: in several delegates, with portable operators between."""

    def __init__(self) -> None:
        super().__init__()
        self.image = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.PReLU(4), torch.nn.Hardswish()
        )
        self.rows, self.norm = torch.nn.Linear(4, 6), torch.nn.LayerNorm(6)
        self.series = torch.nn.Conv1d(6, 4, 1)

    def forward(self, x: Any) -> Any:
        image = self.image(x)
        rows = self.norm(torch.relu(self.rows(image.flatten(2).transpose(1, 2)))).cumsum(1)
        return torch.cat([image[:, :2], image], 1), self.series(rows.transpose(1, 2)).softmax(-1)


def parts() -> Any:
    torch.manual_seed(0)
    return torch.export.export(Parts().eval(), (torch.randn(1, 3, 6, 6),))


def of_any_length() -> Any:
    length = {1: torch.export.Dim("length", min=2, max=9)}
    network = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.Linear(4, 2))
    return torch.export.export(network.eval(), (torch.ones(1, 6, 4),), dynamic_shapes=(length,))


@pytest.mark.parametrize(
    ("captured", "backend", "delegation"),
    [pytest.param(parts, "xnnpack", "whole", marks=pytest.mark.wide), (of_any_length, "portable", "whole")],
)
def test_the_program_is_what_executorch_makes_by_itself(
    captured: Callable[[], Any], backend: str, delegation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    program = captured()
    for context in (faster_lowering, contextlib.nullcontext):
        monkeypatch.setattr(lowering, "faster_lowering", context)
        lowered = lowering.lower(program, backend, delegation)
        emitted = lowering.emit(lowered).program
        made.append((bytes(emitted.buffer), emitted.debug_handle_map, emitted.delegate_map, lowered.nodes))
    assert made[0] == made[1]


def test_a_graph_that_a_pass_changed_is_traced_and_verified_again() -> None:
    """Else shapes would be those of the graph before, and a wrong graph would go on."""
    from executorch.backends.xnnpack._passes import XNNPACKPassManager
    from executorch.backends.xnnpack._passes.xnnpack_pass import XNNPACKPass
    from executorch.exir import to_edge
    from executorch.exir.dialects._ops import ops
    from torch._export.verifier import SpecViolationError

    class Smaller(XNNPACKPass):  # type: ignore[misc]
        """Makes the sum of x and x that of a number's sum, whose shape is another."""

        def call(self, graph_module: GraphModule) -> Any:
            for node in graph_module.graph.nodes:
                if node.target == ops.edge.aten.add.Tensor:
                    node.target, node.args = ops.edge.aten.sum.dim_IntList, (node.args[0], [1])
            return super().call(graph_module)

    class Nothing(XNNPACKPass):  # type: ignore[misc]
        def call(self, graph_module: GraphModule) -> Any:
            seen.append(graph_module)
            return super().call(graph_module)

    seen: list[GraphModule] = []
    edge = to_edge(torch.export.export(Sum(), (torch.ones(2, 3),))).exported_program()
    with faster_lowering():
        made = XNNPACKPassManager(edge, [Nothing, Nothing, Nothing, Smaller, Nothing, Nothing]).transform()
        # The first trace may rename what it finds; the second finds what it left.
        assert [one is seen[1] for one in seen] == [False, True, True, False, False]
        assert [node.meta["val"].shape for node in made.graph.nodes if node.op == "call_function"] == [(2,)]
        for node in made.graph.nodes:
            if node.op == "call_function":
                node.target = torch.relu
        with pytest.raises(SpecViolationError):
            made._validate()


def test_lowering_does_not_look_at_the_program_that_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code without a file among its callers would make that long."""

    def asked() -> Any:
        raise AssertionError("the stack was asked for")

    monkeypatch.setattr("inspect.stack", asked)
    assert lowering.lower(parts(), "xnnpack", "whole").nodes
