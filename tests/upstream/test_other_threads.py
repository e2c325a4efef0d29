"""While one thread lowers, another one has stock torch; afterwards torch is what it was, and nothing is remembered."""
# ruff: noqa: E402 - without torch these tests are skipped before the imports that need it

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from executorch.exir.pass_base import ExportPass
from torch._export import utils
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Interpreter, symbolic_trace
from torch.fx.graph import PythonCode
from torch.fx.traceback import NodeSource

from model_profiling.upstream import faster_lowering as faster
from model_profiling.upstream.faster_lowering import faster_lowering, lowering_way, stock_reason
from model_profiling.upstream.patching import Block
from tests.upstream.test_late_compilation import on_a_thread


class Small(torch.nn.Module):  # type: ignore[misc,name-defined]
    def forward(self, x: Any) -> Any:
        return torch.nn.functional.silu(x) + 1


def exported() -> Any:
    return torch.export.export(Small(), (torch.ones(2, 3),))


def copies_of_provenance() -> bool:
    source = NodeSource(Graph().placeholder("x"), "a pass")
    copied = copy.deepcopy([source, source])
    assert copied[0] == source and copied[0] is copied[1]
    return copied[0] is not source and copied[0].node_info is not source.node_info


def compiles_at_once() -> bool:
    module = symbolic_trace(Small())
    return type(module.recompile()) is PythonCode and bool(vars(module)["_code"])


def decomposes_again() -> bool:
    once = exported().run_decompositions()
    again = once.run_decompositions({})
    return again is not once and len(again.graph.nodes) == len(once.graph.nodes)


def computes_shapes_again() -> bool:
    interpreter = Interpreter(GraphModule({}, Graph()))
    with FakeTensorMode():
        value = torch.ones(2)
        one, two = (interpreter.call_function(torch.ops.aten.add.Tensor, (value, value), {}) for _ in range(2))
    return one is not two


def verifies_again() -> bool:
    program, seen = exported(), []

    class Counting:
        dialect = "COUNTING"

        def check(self, checked: Any) -> None:
            seen.append(checked)

    program._verifiers = [Counting]
    program._validate()
    program._validate()
    return len(seen) == 2


def lists_operators_again() -> bool:
    return utils._collect_all_valid_cia_ops_for_namespace(torch.ops.prims) is not (
        utils._collect_all_valid_cia_ops_for_namespace(torch.ops.prims)
    )


STOCK: list[Callable[[], bool]] = [
    *(copies_of_provenance, compiles_at_once, decomposes_again, computes_shapes_again, verifies_again),
    lists_operators_again,
]


@pytest.mark.parametrize("is_stock", STOCK)
def test_another_thread_has_stock_torch(is_stock: Callable[[], bool]) -> None:
    """Each of these tells stock torch from ours: on the thread that lowers it is false."""
    assert lowering_way() == "faster" and is_stock()
    with faster_lowering():
        assert on_a_thread(is_stock)
        assert not is_stock()
        assert on_a_thread(is_stock)
    assert is_stock() and on_a_thread(is_stock)


def test_a_pass_of_another_thread_traces_its_graph() -> None:
    module = exported().run_decompositions().graph_module
    expected = [node.name for node in ExportPass()(module).graph_module.graph.nodes]
    with faster_lowering():
        traced = [on_a_thread(lambda: ExportPass()(module)).graph_module for _ in range(2)]
    assert traced[0] is not traced[1] and [node.name for node in traced[0].graph.nodes] == expected


def owners() -> dict[Any, dict[str, Any]]:
    block = Block()
    replaced = [each.owner for saving in faster._savings() for each in saving(block)]
    return {owner: dict(vars(owner)) for owner in replaced}


@pytest.mark.parametrize("own", [False, True])
def test_everything_is_put_back(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if own:
        monkeypatch.setattr(NodeSource, "__deepcopy__", lambda self, memo: "theirs", raising=False)
    before = owners()
    with pytest.raises(KeyError), faster_lowering():
        assert any(dict(vars(owner)) != was for owner, was in before.items())
        raise KeyError
    after = {owner: dict(vars(owner)) for owner in before}
    assert all(list(after[owner]) == list(was) for owner, was in before.items())
    assert all(after[owner][name] is value for owner, was in before.items() for name, value in was.items())
    if own:
        assert on_a_thread(lambda: copy.deepcopy(NodeSource(None))) == "theirs"


def test_what_a_block_saw_is_free_afterwards() -> None:
    with faster_lowering():
        with FakeTensorMode():
            value = torch.ones(2)
            Interpreter(GraphModule({}, Graph())).call_function(torch.ops.aten.add.Tensor, (value, value), {})
        gone, held = weakref.ref(value), Interpreter.call_function
        del value
        gc.collect()
        assert gone() is not None
    gc.collect()
    assert gone() is None and held is not Interpreter.call_function


def test_operators_that_come_between_two_exports_are_known() -> None:
    """The same namespace and name: only the operator itself tells that it is now a composite one."""
    library = torch.library.Library("sme2_kit_between", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    operator = torch.ops.sme2_kit_between.twice.default
    with faster_lowering():
        assert operator not in utils._collect_all_valid_cia_ops()
    library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
    with faster_lowering():
        assert operator in utils._collect_all_valid_cia_ops()
    assert operator in utils._collect_all_valid_cia_ops()


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        (faster.STOCK_VARIABLE, "1", "SME2_KIT_STOCK_LOWERING is set"),
        ("SME2_KIT_UPSTREAM_FAILS", "unchanged-graphs", "unchanged-graphs is switched off"),
        (faster.STOCK_VARIABLE, "0", ""),
    ],
)
def test_it_can_be_switched_off(variable: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    assert stock_reason().startswith(reason) and bool(stock_reason()) == bool(reason)
    with faster_lowering():
        assert compiles_at_once() == bool(reason)


def test_other_versions_and_other_code_are_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    from model_profiling.upstream import reliance

    def other(self: Any) -> Any:
        return stock(self)

    stock = GraphModule.recompile
    assert lowering_way() == "faster"
    with monkeypatch.context() as patch:
        patch.setattr(GraphModule, "recompile", other)
        assert lowering_way() == "stock: other code replaced torch.fx.graph_module.GraphModule.recompile"
        with faster_lowering():
            assert GraphModule.recompile is other
    # A check is done once in a process.
    with monkeypatch.context() as patch:
        patch.setattr(reliance, "_checked", reliance._checked.__wrapped__)
        patch.setattr(reliance, "installed_version", lambda package: "9.9.9")
        assert "torch 9.9.9 is not a version that this was proven with" in lowering_way()
        with faster_lowering():
            assert compiles_at_once()
    with monkeypatch.context() as patch:
        patch.setattr(reliance, "_checked", reliance._checked.__wrapped__)
        patch.setattr(faster, "_WORK", {**faster._WORK, next(iter(faster._WORK)): "another hash"})
        assert "GraphModule.__new__ is not the code that this was proven with" in lowering_way()
    assert lowering_way() == "faster"
