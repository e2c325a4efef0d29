"""A graph module whose compilation was put off is a stock module: whatever is asked, whenever, on any thread."""

# ruff: noqa: E402 - without torch these tests are skipped before the imports that need it

import copy
import inspect
import io
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch.fx import Graph, GraphModule, symbolic_trace
from torch.fx.graph import PythonCode
from torch.package import PackageExporter, PackageImporter

from model_profiling.upstream.faster_lowering import faster_lowering, lowering_way

X = torch.linspace(-1, 1, 6).reshape(2, 3)


class Named(GraphModule):  # type: ignore[misc]
    """A subclass as somebody may have: it leaves all to its base."""


class WithOwnRecompile(GraphModule):  # type: ignore[misc]
    """A subclass that looks at what it has compiled."""

    def recompile(self) -> Any:
        code = super().recompile()
        self.lines = len(code.src.splitlines())
        return code


KINDS: dict[str, type] = {"plain": GraphModule, "subclass": Named, "own recompile": WithOwnRecompile}
STEPS = ("add", "relu", "neg", "weight", "layer", "graph", "pair")


def inner() -> GraphModule:
    graph = Graph()
    value = graph.placeholder("value")
    graph.output(graph.call_function(torch.mul, (value, 3)))
    return GraphModule({}, graph)


def built(steps: list[str], kind: str) -> GraphModule:
    """A module of these steps, with a keyword input that has a default."""
    root = torch.nn.Module()
    root.weight = torch.nn.Parameter(torch.arange(3.0))
    root.layer, root.inner = torch.nn.ReLU(), inner()
    graph = Graph()
    value = graph.placeholder("x")
    scale = graph.placeholder("scale", default_value=2.0)
    value = graph.call_function(torch.mul, (value, scale))
    for step in steps:
        if step == "add":
            value = graph.call_function(torch.add, (value, value))
        elif step == "relu":
            value = graph.call_method("relu", (value,))
        elif step == "neg":
            value = graph.call_function(torch.neg, (value,))
        elif step == "weight":
            value = graph.call_function(torch.add, (value, graph.get_attr("weight")))
        elif step == "pair":
            value = graph.call_function(torch.add, (value, 1), {"alpha": 0.5})
        else:
            value = graph.call_module("layer" if step == "layer" else "inner", (value,))
    graph.output(value)
    return KINDS[kind](root, graph, "Net")


def changed(module: GraphModule) -> Any:
    """Change a graph, and that of a module inside of it, and say so once, as torch asks for."""
    for each in (module, *module.children()):
        for node in each.graph.nodes if isinstance(each, GraphModule) else ():
            if node.target is torch.mul:
                node.target = torch.sub
    return module.recompile()


def plain(code: PythonCode) -> Any:
    return code.src, sorted(code.globals), list(vars(code)), type(code) is PythonCode


def again(module: Any) -> Any:
    return module.code, module(X).tolist(), type(module).__name__, module.training, sorted(module.state_dict())


def packaged(module: GraphModule) -> Any:
    file = io.BytesIO()
    with PackageExporter(file) as exporter:
        exporter.extern("**")
        exporter.save_pickle("net", "net.pkl", module)
    file.seek(0)
    return again(PackageImporter(file).load_pickle("net", "net.pkl"))


def saved(module: GraphModule) -> Any:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return again(torch.load(file, weights_only=False))


def failed(module: GraphModule) -> str:
    with pytest.raises(TypeError) as caught:
        module(X, 1, 2, 3)
    return str(caught.value).replace("Net.", "")


def looked_at(code: PythonCode) -> Any:
    return repr(code).partition("globals")[0], code == code, hasattr(code, "nothing"), code._prologue_start


ASKED: dict[str, Callable[[Any], Any]] = {
    "call": lambda module: module(X).tolist(),
    "call with keywords": lambda module: module(x=X, scale=3.0).tolist(),
    "call it wrongly": failed,
    "forward": lambda module: (str(inspect.signature(module.forward)), module.forward(X).tolist()),
    "forward of the class": lambda module: type(module).forward(module, X).tolist(),
    "code": lambda module: module.code,
    "_code": lambda module: (module._code, sorted(module._lineno_map), module._prologue_start),
    "text": str,
    "readable": lambda module: module.print_readable(print_output=False),
    "recompile": lambda module: plain(module.recompile()),
    "look at the result": lambda module: looked_at(module.recompile()),
    "pickle the result": lambda module: plain(pickle.loads(pickle.dumps(with_names(module.recompile())))),
    "pickle": lambda module: again(pickle.loads(pickle.dumps(module))),
    "save": saved,
    "package": packaged,
    "deepcopy": lambda module: again(copy.deepcopy(module)),
    "copy": lambda module: again(copy.copy(module)),
    "state": lambda module: (sorted(module.__getstate__()), module.__getstate__()["_code"]),
    "attributes": lambda module: sorted(vars(module)),
    "trace": lambda module: symbolic_trace(module).code,
    "change": lambda module: (plain(changed(module)), again(module)),
    "change the inner one": lambda module: (changed(module), getattr(module, "inner", torch.neg)(X).tolist())[1],
}


def with_names(code: PythonCode) -> PythonCode:
    """Return it with globals that can be pickled: modules cannot."""
    code.globals = dict.fromkeys(code.globals)
    return code


def on_a_thread(work: Callable[[], Any]) -> Any:
    result: list[Any] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as error:  # noqa: BLE001 - for the test to raise
            result.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    if isinstance(result[0], BaseException):
        raise result[0]
    return result[0]


def here(work: Callable[[], Any]) -> Any:
    return work()


@pytest.mark.wide
@pytest.mark.parametrize(
    ("when", "where"),
    [
        ("inside", on_a_thread),
        ("after", here),
        pytest.param("inside", here, marks=pytest.mark.wide),
        pytest.param("after", on_a_thread, marks=pytest.mark.wide),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=4, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(steps=st.lists(st.sampled_from(STEPS), max_size=4), first=st.permutations(list(ASKED)))
def test_it_answers_as_a_stock_module_does(
    when: str, where: Any, kind: str, steps: list[str], first: list[str]
) -> None:
    assert lowering_way() == "faster"
    expected = {name: ASKED[name](built(steps, kind)) for name in ASKED}
    stock = built(steps, kind)
    expected_in_turn = [ASKED[name](stock) for name in first]
    with faster_lowering():
        late = {name: built(steps, kind) for name in ASKED}
        one = built(steps, kind)
        if kind != "own recompile":
            assert all(not module.__dict__["_code"] for module in late.values())
        if when == "inside":
            found = {name: where(lambda name=name: ASKED[name](late[name])) for name in ASKED}
            in_turn = where(lambda: [ASKED[name](one) for name in first])
    if when == "after":
        found = {name: where(lambda name=name: ASKED[name](late[name])) for name in ASKED}
        in_turn = where(lambda: [ASKED[name](one) for name in first])
    assert found == expected
    # One module is asked for all of it, in any order.
    assert in_turn == expected_in_turn


def test_of_a_module_that_was_compiled_nothing_is_left() -> None:
    stock = built(["add"], "plain")
    with faster_lowering():
        late = built(["add"], "plain")
        assert set(vars(type(late))) > set(vars(type(stock)))
    assert torch.equal(late(X), stock(X))
    assert set(vars(type(late))) == set(vars(type(stock))) and sorted(vars(late)) == sorted(vars(stock))


def test_what_somebody_gives_a_module_stays() -> None:
    with faster_lowering():
        own, own_class = built(["add"], "plain"), built(["add"], "plain")
        own.forward = lambda x: "own"
        type(own_class).forward = lambda self, x: "own"
        assert (own(X), own_class(X)) == ("own", "own")
    assert (own(X), own_class(X)) == ("own", "own")
    assert own_class.code == built(["add"], "plain").code and own_class(X) == "own"
    own_class.recompile()
    assert torch.equal(own_class(X), built(["add"], "plain")(X))


def test_many_threads_compile_a_module_once() -> None:
    with faster_lowering():
        late = built(["add", "weight"], "plain")
    expected = built(["add", "weight"], "plain")(X)
    start, answers = threading.Barrier(8), []

    def ask() -> None:
        start.wait(60)
        answers.append(late(X))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == 8 and all(torch.equal(each, expected) for each in answers)
