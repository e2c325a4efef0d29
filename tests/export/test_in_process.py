"""The kit as a guest in somebody's process, a notebook, a REPL or a script: what was there before is as it was."""
# ruff: noqa: E402 - without torch these tests are skipped before the imports that need it

import contextlib
import copy
import gc
import inspect
import io
import logging
import os
import random
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("executorch.exir")
torch = pytest.importorskip("torch")

from model_profiling.base.errors import InputError
from model_profiling.export import cache, host
from model_profiling.export.exporter import ExportRequest, export
from model_profiling.export.in_memory import export_module
from model_profiling.export.quiet import kept_off_terminal
from model_profiling.models.state import own_copy
from tests.conftest import ROOT
from tests.helpers.in_process import verify
from tests.helpers.waiting import LONGEST_S

INPUT = torch.linspace(-1, 1, 2 * 3 * 8).reshape(2, 3, 8)


class SmallNet(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Has what a caller may look at later: batch norm statistics, frozen weights, hooks, a mix of modes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.norm = torch.nn.BatchNorm1d(3)
        self.drop = torch.nn.Dropout(0.5)
        self.first.bias.requires_grad_(False)
        self.calls: list[int] = []
        self.first.register_forward_hook(lambda module, args, output: output * 1.0)

    def forward(self, x: Any, scale: Any = None) -> Any:
        # Draws from the generator while it is traced and run.
        noise = torch.rand(8) * 0
        x = self.drop(self.norm(self.first(x))) + noise
        return x if scale is None else x * scale


def state_of(module: Any) -> Any:
    """All that an export might change of a module, by value."""
    return {
        "tensors": {
            name: (tensor.dtype, tensor.requires_grad, tensor.data_ptr(), tensor.detach().clone())
            for name, tensor in [*module.named_parameters(), *module.named_buffers()]
        },
        "modes": [part.training for part in module.modules()],
        "hooks": [list(part._forward_hooks.values()) for part in module.modules()],
        "attributes": [sorted(vars(part)) for part in module.modules()],
    }


def same(before: Any, after: Any) -> bool:
    tensors, seen = before.pop("tensors"), after.pop("tensors")
    equal = all(
        old[:3] == new[:3] and torch.equal(old[3], new[3])
        for old, new in zip(tensors.values(), seen.values(), strict=True)
    )
    return equal and list(tensors) == list(seen) and before == after


def host_state() -> dict[str, Any]:
    """What belongs to the process and not to the kit."""
    return {
        "random": (random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist()),
        "torch": (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()),
        "gc": (gc.get_threshold(), gc.isenabled(), gc.get_freeze_count() > 0),
        "streams": (sys.stdout, sys.stderr),
        "warnings": list(warnings.filters),
        "logging": [(list(log.handlers), log.level, log.propagate) for log in map(logging.getLogger, (None, "torch"))],
        "filters": [list(handler.filters) for handler in logging.getLogger().handlers],
        "place": (Path.cwd(), list(sys.argv)),
    }


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What only the first export of a process imports is there."""
    export_module(torch.nn.Identity(), INPUT, tmp_path_factory.mktemp("first"), dtype="fp32")


@contextlib.contextmanager
def unusual_host() -> Iterator[None]:
    """A process with settings of its own."""
    grad, threads = torch.is_grad_enabled(), torch.get_num_threads()
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        torch.set_grad_enabled(grad)
        torch.set_num_threads(threads)


class Given:
    """A registered model that hands out the caller's own module."""

    module: Any = None

    def get_eager_model(self) -> Any:
        return self.module

    def get_example_inputs(self) -> Any:
        return (INPUT,)


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("way", ["in memory", "registered", "inference mode"])
def test_an_export_leaves_the_callers_module_and_process_as_they_are(way: str, register: Any, tmp_path: Path) -> None:
    module = SmallNet()
    module.norm.eval()  # half in training, half not
    given = INPUT.clone().requires_grad_(way != "inference mode")
    with unusual_host(), torch.inference_mode() if way == "inference mode" else contextlib.nullcontext():
        before, process = state_of(module), host_state()
        if way == "registered":
            Given.module = module
            register("given", Given)
            result = export(ExportRequest("given", tmp_path, "fp16"))
            assert result.record.request is not None and result.record.request.origin == "memory"
        else:
            result = export_module(module, given, tmp_path, dtype="fp16")
            assert result.paths.pte.name == "small_net_xnnpack_fp16.pte"
        assert host_state() == process
        assert same(before, state_of(module))
    assert result.record.inputs[0].dtype == "float16"
    verify(result)


@pytest.mark.parametrize(
    "inputs",
    [INPUT, [INPUT, torch.full((8,), 2.0)], {"scale": torch.ones(8), "x": INPUT}],
    ids=["tensor", "positional", "keywords"],
)
def test_example_inputs_are_given_as_the_module_is_called(inputs: Any, tmp_path: Path) -> None:
    module = SmallNet().eval()
    result = export_module(module, inputs, tmp_path, name="a-net.2", dtype="fp32")
    positional = (inputs,) if isinstance(inputs, torch.Tensor) else () if isinstance(inputs, dict) else tuple(inputs)
    with torch.no_grad():
        expected = module(*positional, **(inputs if isinstance(inputs, dict) else {}))
    saved = np.load(result.paths.directory / result.record.outputs[0].file)
    np.testing.assert_allclose(saved, expected.numpy(), atol=1e-5)
    assert result.record.source == "memory" and result.record.weights.startswith("as they were in memory")
    assert verify(result).verdict == "agrees"


class Locked(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def forward(self, x: Any) -> Any:
        return x + 1


@pytest.mark.parametrize(
    ("module", "inputs", "options", "problem"),
    [
        (SmallNet, INPUT, {}, "the class SmallNet is not an instance"),
        (lambda x: x, INPUT, {}, "a function is not an instance"),
        (torch.jit.trace(torch.nn.ReLU(), INPUT), INPUT, {}, "TorchScript"),
        (torch.nn.Linear(8, 8, device="meta"), INPUT, {}, "weight is on the device meta"),
        (torch.nn.ReLU(), INPUT.to("meta"), {}, "on the device meta"),
        (torch.nn.ReLU(), None, {}, "cannot be a NoneType"),
        (torch.nn.ReLU(), "text", {}, "cannot be a str"),
        (torch.nn.ReLU(), INPUT.numpy(), {}, "cannot be a ndarray"),
        (torch.nn.ReLU(), (INPUT.numpy(),), {}, "is a ndarray and not a tensor"),
        (torch.nn.ReLU(), {1: INPUT}, {}, "named 1"),
        (torch.nn.ReLU(), INPUT, {"name": "../up"}, "cannot be a model's name"),
        (torch.nn.ReLU(), INPUT, {"dtype": "float16"}, "no dtype 'float16'"),
        (torch.nn.ReLU(), INPUT, {"rewrites": ("x",)}, "no rewrite 'x'"),
        (Locked(), INPUT, {}, "cannot be copied"),
    ],
)
def test_what_cannot_be_exported_says_why(module: Any, inputs: Any, options: Any, problem: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        export_module(module, inputs, tmp_path, **options)
    assert problem in caught.value.message and caught.value.hint
    assert not list(tmp_path.glob("*.pte"))


def test_a_copy_has_what_refuses_to_be_copied() -> None:
    # The computed weight of old-style weight_norm is no leaf of the graph of gradients.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.nn.Sequential(torch.nn.utils.weight_norm(torch.nn.Linear(8, 8)))
    module(INPUT)
    with pytest.raises(RuntimeError):
        copy.deepcopy(module)
    ours = own_copy(module)
    assert torch.equal(ours(INPUT), module(INPUT)) and ours[0].weight_v is not module[0].weight_v
    tied = torch.nn.ModuleList([torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)])
    tied[1].weight = tied[0].weight
    assert own_copy(tied)[1].weight is not tied[0].weight


def test_an_export_in_memory_is_not_taken_for_another(register: Any, tmp_path: Path) -> None:
    Given.module = torch.nn.ReLU()
    register("relu", Given)
    request = ExportRequest("relu", tmp_path, dtype="fp32")
    export(request)
    assert cache.cached(request) is not None
    export_module(torch.nn.Tanh(), INPUT, tmp_path, name="relu", dtype="fp32")
    assert cache.cached(request) is None


@pytest.mark.parametrize("frozen", [False, True])
def test_what_the_caller_froze_stays_frozen(frozen: bool) -> None:
    before = gc.get_threshold()
    gc.unfreeze()
    if frozen:
        gc.freeze()
    try:
        count = gc.get_freeze_count()
        with host.host_untouched(0):
            assert gc.get_threshold() != before
        # What was frozen and is needed no more may go.
        assert gc.get_freeze_count() > count / 2 if frozen else gc.get_freeze_count() == 0
        assert gc.get_threshold() == before
    finally:
        gc.unfreeze()


def test_only_the_exporting_thread_is_kept_off_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    handler = logging.StreamHandler(stream := io.StringIO())
    logging.getLogger().addHandler(handler)
    kept = threading.Event(), threading.Event()

    def other() -> None:
        kept[0].wait(120)
        print("other prints")  # noqa: T201
        sys.stderr.write("other errs\n")
        logging.getLogger("other").warning("other logs")
        with kept_off_terminal(loud=False) as said:
            print("other exports")  # noqa: T201
        assert said.getvalue() == "other exports\n"
        kept[1].set()

    thread = threading.Thread(target=other)
    thread.start()
    streams = sys.stdout, sys.stderr
    try:
        with kept_off_terminal(loud=False) as said:
            print("we print")  # noqa: T201
            made_inside = logging.StreamHandler()
            kept[0].set()
            assert kept[1].wait(120)
            logging.getLogger("ours").warning("we log")
            with kept_off_terminal(loud=False) as inner:
                print("within")  # noqa: T201
            sys.stderr.write("we err\n")
    finally:
        logging.getLogger().removeHandler(handler)
        thread.join()
    assert (sys.stdout, sys.stderr) == streams
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("other prints\n", "other errs\n")
    assert stream.getvalue() == "other logs\n" and inner.getvalue() == "within\n"
    assert all(words in said.getvalue() for words in ("we print", "we log", "we err"))
    # A handler that torch made while it was imported inside speaks to the terminal afterwards.
    made_inside.emit(logging.makeLogRecord({"msg": "later"}))
    assert capsys.readouterr().err == "later\n"


DRAWS = """
from model_profiling.report.drawing.drawing_process import DrawingPool
spec = {"mark": "bar", "data": {"values": [{"a": 1}]}, "encoding": {"x": {"field": "a"}}}
with DrawingPool() as artist:
    print(len(artist.draw(spec).result().png) > 100, artist.svg(spec).result()[:4])
"""


@pytest.mark.wide
@pytest.mark.parametrize("host_program", ["script without a guard", "standard input"])
def test_pictures_can_be_drawn_from_any_program(host_program: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(DRAWS)
    words = [sys.executable, "script.py" if host_program.startswith("script") else "-"]
    given = None if host_program.startswith("script") else DRAWS
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        words,
        input=given,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
    )
    assert (done.stdout, done.returncode) == ("True <svg\n", 0), done.stderr


def test_a_picture_that_ends_its_process_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    from model_profiling.base.errors import RunError
    from model_profiling.report.drawing import drawing_process

    # A process of its own, also where tests share one.
    monkeypatch.setattr(drawing_process, "_started", inspect.unwrap(drawing_process._started))
    hand = drawing_process.DrawingProcess()
    try:
        hand._process.kill()
        with pytest.raises(RunError, match="could not be drawn"):
            hand.ask("svg", {})
        with pytest.raises(RunError, match="could not be drawn"):
            hand.ask("svg", {"mark": "no such mark"})
    finally:
        hand.close()
    assert hand._process.returncode == 0


@pytest.fixture
def own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Sources of the kit, to be edited; what is known of the kit's own is forgotten before and after."""
    home = tmp_path / "kit"
    for place in ("export/exporter.py", "models/options.py", "models/net/model.py", "report/html.py"):
        (home / place).parent.mkdir(parents=True, exist_ok=True)
        (home / place).write_text("")
    cache._own_code.cache_clear()
    monkeypatch.setattr(cache, "_KIT", home)
    yield home
    cache._own_code.cache_clear()


def test_an_edit_of_code_that_an_export_may_import_makes_a_new_export(own_code: Path, tmp_path: Path) -> None:
    request = ExportRequest("relu", tmp_path, dtype="fp32")
    before = cache.describe(request)
    # What comes after an export decides nothing of it; a model enters by what is loaded.
    for place, changes in {
        "export/exporter.py": 1,
        "models/options.py": 1,
        "models/net/model.py": 0,
        "report/html.py": 0,
    }.items():
        (own_code / place).write_text("# edited\n")
        cache._own_code.cache_clear()
        assert (cache.describe(request) != before) == bool(changes), place
        before = cache.describe(request)


def test_the_folders_of_the_code_that_is_hashed_are_those_up_to_export() -> None:
    tree = (ROOT / "CONTRIBUTING.md").read_text().split("<!-- stages -->")[1]
    folders = re.findall(r"^  (\w+)/ ", tree, re.MULTILINE)
    assert set(cache._FOLDERS) == set(folders[: folders.index("export") + 1])
