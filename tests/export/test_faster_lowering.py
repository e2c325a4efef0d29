"""What lowering leaves out does not show: graphs run, and their code is what it would have been."""

import pytest
import torch
from torch.fx import GraphModule, symbolic_trace

from model_profiling.export.faster_lowering import faster_lowering


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
