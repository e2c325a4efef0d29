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
from model_profiling.upstream import reliance
from model_profiling.upstream.faster_lowering import faster_lowering, functions_of, left_out, lowering_way, why_slower
from model_profiling.upstream.patching import Block
from model_profiling.upstream.reliance import FAILS_VARIABLE, ProvenPair, installed_version, source_digest
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


# Tells stock torch from that with a saving.
STOCK: dict[str, Callable[[], bool]] = {
    "shared-provenance": copies_of_provenance,
    "late-compilation": compiles_at_once,
    "repeated-decompositions": decomposes_again,
    "known-shapes": computes_shapes_again,
    "repeated-verifications": verifies_again,
    "operator-lists": lists_operators_again,
}


@pytest.mark.wide
@pytest.mark.parametrize("saving", STOCK)
def test_another_thread_has_stock_torch(saving: str) -> None:
    is_stock, left = STOCK[saving], left_out()
    assert is_stock()
    with faster_lowering():
        assert on_a_thread(is_stock)
        assert is_stock() == (saving in left)
        assert on_a_thread(is_stock)
    assert is_stock() and on_a_thread(is_stock)


@pytest.mark.wide
@pytest.mark.parametrize("saving", STOCK)
def test_a_saving_that_does_not_hold_is_left_out_alone(saving: str, monkeypatch: pytest.MonkeyPatch) -> None:
    already = left_out()
    monkeypatch.setenv(FAILS_VARIABLE, saving)
    assert set(left_out()) == {*already, saving}
    assert lowering_way().startswith("faster without ") and f"without {', '.join(left_out())}" in why_slower()
    with faster_lowering():
        assert {name for name, is_stock in STOCK.items() if is_stock()} == {*already, saving} & set(STOCK)
    assert all(is_stock() for is_stock in STOCK.values())


def test_a_pass_of_another_thread_traces_its_graph() -> None:
    module = exported().run_decompositions().graph_module
    expected = [node.name for node in ExportPass()(module).graph_module.graph.nodes]
    with faster_lowering():
        traced = [on_a_thread(lambda: ExportPass()(module)).graph_module for _ in range(2)]
    assert traced[0] is not traced[1] and [node.name for node in traced[0].graph.nodes] == expected


def owners() -> dict[Any, dict[str, Any]]:
    block = Block()
    replaced = [each.owner for name in faster.PARTS for each in faster._saving(name)(block)]
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
        (FAILS_VARIABLE, "all", "late-compilation is switched off"),
        (faster.STOCK_VARIABLE, "0", ""),
    ],
)
def test_it_can_be_switched_off(variable: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    assert lowering_way().startswith(f"stock: {reason}") == bool(reason)
    assert bool(why_slower()) == (variable == FAILS_VARIABLE) or not reason
    with faster_lowering():
        assert compiles_at_once() == (bool(reason) or "late-compilation" in left_out())


def test_other_versions_and_other_code_are_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(self: Any) -> Any:
        return stock(self)

    stock, before = GraphModule.recompile, lowering_way()
    with monkeypatch.context() as patch:
        patch.setattr(GraphModule, "recompile", other)
        reason = "other code replaced torch.fx.graph_module.GraphModule.recompile"
        assert left_out()["late-compilation"] == reason and lowering_way().startswith("faster without late-compilation")
        with faster_lowering():
            assert GraphModule.recompile is other and not lists_operators_again()
    # A check is done once in a process.
    with monkeypatch.context() as patch:
        patch.setattr(reliance, "_checked", reliance._checked.__wrapped__)
        patch.setattr(reliance, "installed_version", lambda package: "9.9.9")
        assert lowering_way().startswith("stock: torch 9.9.9 is not a version that this was proven with")
        with faster_lowering():
            assert compiles_at_once()
    assert lowering_way() == before


def of_installed(**fields: Any) -> ProvenPair:
    """What would stand in the table of what is installed."""
    savings = {name: source_digest(functions_of(name).values()) for name in faster.PARTS}
    versions = {name: installed_version(name) for name in ("torch", "executorch")}
    return ProvenPair(**{**versions, "savings": savings, **fields})


def with_pairs(*pairs: ProvenPair) -> dict[str, str]:
    """What is left out if these are the table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reliance, "_checked", reliance._checked.__wrapped__)
        patch.setattr(reliance, "PROVEN_PAIRS", pairs)
        patch.setattr(reliance, "PROVEN_TORCH", tuple(each.torch for each in pairs))
        patch.setattr(reliance, "PROVEN_EXECUTORCH", tuple(each.executorch for each in pairs))
        return left_out()


def test_a_pair_of_releases_is_proven_together() -> None:
    pair = of_installed()
    assert not with_pairs(of_installed(torch="1.0"), pair)
    # Each of the two is in the table, but not with the other.
    others = of_installed(torch="1.0"), of_installed(executorch="1.0")
    left = with_pairs(*others)
    assert set(left) == set(faster.PARTS)
    assert all(f"not proven with torch {pair.torch} and executorch {pair.executorch}" in said for said in left.values())
    assert "is not a version" in with_pairs(others[0])["known-shapes"]


@pytest.mark.parametrize("saving", faster.PARTS)
def test_what_was_not_proven_of_a_pair_is_left_out_alone(saving: str) -> None:
    proven = of_installed().savings
    left = with_pairs(of_installed(savings={name: each for name, each in proven.items() if name != saving}))
    assert list(left) == [saving] and f"{saving} is not proven with" in left[saving]
    left = with_pairs(of_installed(savings={**proven, saving: "another hash"}))
    assert list(left) == [saving] and f"{saving} was proven with other code" in left[saving]


def test_a_hash_is_of_all_functions() -> None:
    for saving in faster.PARTS:
        functions = list(functions_of(saving).values())
        hashes = {source_digest(functions[:count]) for count in range(len(functions) + 1)}
        assert len(hashes) == len(functions) + 1
