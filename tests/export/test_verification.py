"""An exported program has run: what an export calls verified executes, and all else is an error with its reason."""
# ruff: noqa: E402 - without torch these tests are skipped before the imports that need it

import errno
import io
import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("executorch.exir")
torch = pytest.importorskip("torch")
from torch import nn
from torch.nn import functional

from model_profiling.base.directories import LIMITS
from model_profiling.base.errors import KitError, RunError, SetupError
from model_profiling.base.files import read_json
from model_profiling.export import cache
from model_profiling.export.cache import cached
from model_profiling.export.check import verification
from model_profiling.export.check.verification import execute_program
from model_profiling.export.exporter import ExportRequest, export
from model_profiling.export.in_memory import export_module
from model_profiling.export.lower.delegation_preview import preview
from model_profiling.export.prepare import preparation
from model_profiling.export.stages import Stages
from model_profiling.runner.build import build_runner
from model_profiling.store.artifacts import ExportMeta
from tests.conftest import kit
from tests.helpers.in_process import run_program, verify

HERE = Path(__file__)
WIDE = pytest.mark.wide


class Net(nn.Module):  # type: ignore[misc]
    """A network from a function of itself and its input, with the layers it needs."""

    def __init__(self, compute: Callable[[Any, Any], Any], **layers: Any) -> None:
        super().__init__()
        self.compute = compute
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x: Any) -> Any:
        return self.compute(self, x)


def conv(**more: Any) -> Any:
    return nn.Conv2d(4, 4, 3, **{"padding": 1, **more})


IMAGE, VOLUME, ROWS = torch.randn(1, 4, 9, 8), torch.randn(1, 4, 5, 6, 6), torch.randn(2, 8)


def twice(net: Any, x: Any) -> Any:
    return net.a(functional.relu(net.a(x)))


# What an export takes that did not load, did not execute, crashed or was wrong when it stood in the program as it is.
RUNS = {
    "one convolution twice": (Net(twice, a=conv()), IMAGE),
    "one convolution in two sizes": (
        Net(lambda net, x: net.a(x)[..., :4, :4] + net.a(functional.max_pool2d(x, 2)), a=conv()),
        IMAGE,
    ),
    "one linear layer twice": (Net(twice, a=nn.Linear(8, 8)), ROWS),
    "a weight and its transpose": (
        Net(lambda net, x: functional.linear(functional.linear(x, net.a.weight), net.a.weight.t()), a=nn.Linear(8, 8)),
        ROWS,
    ),
    "a weight of two kinds of layers": (
        Net(lambda net, x: functional.conv_transpose2d(net.a(x), net.a.weight, padding=1), a=conv()),
        IMAGE,
    ),
    "dilated": (Net(lambda net, x: torch.sin(net.a(functional.pad(x, (4, 0)))), a=conv(dilation=2)), IMAGE),
    "padded between": (Net(lambda net, x: torch.sin(functional.pad(torch.relu(net.a(x)), (2, 0))), a=conv()), IMAGE),
    "3-D convolution": (
        Net(lambda net, x: torch.relu(net.a(x)), a=nn.Conv3d(4, 6, 3, padding=(1, 0, 1), stride=(2, 1, 1), groups=2)),
        VOLUME,
    ),
    "3-D, same padding": (Net(lambda net, x: net.a(x), a=nn.Conv3d(4, 4, (2, 4, 3), padding="same")), VOLUME),
    "3-D pooling": (
        Net(
            lambda net, x: functional.adaptive_avg_pool3d(functional.max_pool3d(net.a(x), 2, 1, 1, ceil_mode=True), 2),
            a=nn.Conv3d(4, 4, 1),
        ),
        VOLUME,
    ),
    "sort": (Net(lambda net, x: torch.sort(net.a(x), dim=0, descending=True)[0], a=nn.Linear(8, 8)), ROWS),
    "argsort": (Net(lambda net, x: x.gather(-1, torch.argsort(x)) + net.a(x), a=nn.Linear(8, 8)), ROWS),
}


class Side(nn.Module):  # type: ignore[misc]
    """Networks side by side, each on its own input: one export costs much less than several."""

    def __init__(self, networks: list[Net]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, *inputs: Any) -> Any:
        return tuple(network(x) for network, x in zip(self.networks, inputs, strict=True))


# Their graphs in fp16 are those of fp32.
@pytest.mark.parametrize(
    "dtype", ["fp32", pytest.param("int8", marks=WIDE), pytest.param("fp16", marks=[WIDE, pytest.mark.again])]
)
def test_what_did_not_run_as_it_stands_does(dtype: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    networks, inputs = zip(*RUNS.values(), strict=True)
    made = export_module(Side([*networks]), inputs, tmp_path, name="net", dtype=dtype)
    verification = made.record.verification
    assert verification is not None and (verification.status, verification.verdict) == ("verified", "agrees")
    assert not [warning for warning in made.record.warnings if "differ" in warning]
    # ExecuTorch's own runtime says the same.
    assert verify(made).verdict == "agrees"


class Average(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return functional.avg_pool3d(torch.relu(x), 2, divisor_override=3)


class Cut(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return functional.pad(torch.relu(x), (1, -1))


@pytest.mark.parametrize(
    ("net", "x", "words", "line"),
    [
        (Average(), VOLUME, "the runner does not have: aten::avg_pool3d.out", "avg_pool3d("),
        (Cut(), IMAGE, "because of aten::constant_pad_nd.out", "functional.pad(torch.relu(x), (1, -1))"),
    ],
)
def test_what_does_not_run_is_an_error_with_operator_and_line(
    net: Any, x: Any, words: str, line: str, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match=re.escape(words)) as error:
        export_module(net, x, tmp_path, name="net", dtype="fp32")
    number = next(n for n, text in enumerate(HERE.read_text().splitlines(), 1) if line in text and "return" in text)
    assert f"{HERE.name}:{number}" in error.value.message and "--no-verify" in error.value.hint
    assert not [*tmp_path.glob("*.pte"), *tmp_path.glob("*.json")]
    unverified = export_module(net, x, tmp_path, name="net", verify=False, dtype="fp32").record.verification
    assert unverified is not None and (unverified.status, unverified.reason) == ("not verified", "--no-verify")


@WIDE
def test_an_operator_inside_a_delegate_is_found_by_splitting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Real programs that XNNPACK refuses or computes wrongly, as the kit made them before weights had copies.
    monkeypatch.setattr(preparation, "give_own_weights", lambda program, each: None)
    many = Net(lambda net, x: twice(net, torch.sigmoid(net.b(x))) + torch.relu(x), a=conv(), b=conv())
    with pytest.raises(RunError, match="does not load") as error:
        export_module(many, IMAGE, tmp_path, name="net", dtype="int8")
    assert "because of 1 x aten.convolution.default (at " in error.value.message
    # What it advises was tried; it is true.
    advised = re.search(r"export\(\.\.\., leave_out=\['([\w.]+)'\]\)$", error.value.hint)
    assert advised is not None
    made = export_module(many, IMAGE, tmp_path, name="net", dtype="int8", leave_out=(advised[1],))
    assert made.record.verification is not None and made.record.verification.verdict == "agrees"


def test_a_model_that_draws_random_numbers_is_not_blamed(tmp_path: Path) -> None:
    net = Net(lambda net, x: functional.dropout(net.a(x), 0.5, training=True), a=nn.Linear(8, 8))
    record = export_module(net, ROWS, tmp_path, dtype="fp32").record
    assert record.verification is not None and record.verification.status == "verified"
    assert record.verification.verdict == "" and "random numbers" in record.verification.reason


def test_the_command_line_says_whether_it_was_verified_and_check_names_what_is_missing(tmp_path: Path) -> None:
    model = tmp_path / "net.py"
    model.write_text(
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.nn.functional.avg_pool3d(x, 2, divisor_override=3)\n"
    )
    asked = (f"{model}:Net", "--input-shape", "1,2,4,4,4", "--dtype", "fp32")
    checked = kit("check", *asked, "--json", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    missing = json.loads(checked.stdout)["missing_operators"]
    assert [(each["op"], each["sources"]) for each in missing] == [("aten::avg_pool3d.out", [f"{model}:6"])]
    text = kit("check", *asked, cwd=tmp_path)
    assert "aten::avg_pool3d.out (at net.py:6)" in text.stdout and "next:" not in text.stdout
    failed = kit("export", *asked, cwd=tmp_path)
    assert failed.returncode == 4 and "aten::avg_pool3d.out" in failed.stderr and "net.py:6" in failed.stderr
    assert not list(tmp_path.rglob("*.pte"))
    written = kit("export", *asked, "--no-verify", cwd=tmp_path)
    assert written.returncode == 0 and "verified:  no (--no-verify)" in written.stdout
    assert "warning:   the kit's runner cannot run this program" in written.stdout and "next:" not in written.stdout
    (program,) = tmp_path.rglob("*.pte")
    refused = kit("run", program, cwd=tmp_path)
    assert refused.returncode == 3 and "does not have: aten::avg_pool3d.out" in refused.stderr
    assert not list(tmp_path.rglob("manifest.json"))


def test_an_export_is_executed_when_it_is_asked_for_again_and_was_not_or_with_other_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unverified = ExportRequest("toy_cnn", tmp_path, verify=False, dtype="fp32")
    made = export(unverified)
    assert (found := cached(unverified)) is not None and found.record == made.record
    asked = ExportRequest("toy_cnn", tmp_path, dtype="fp32")
    again = cached(asked)
    assert again is not None and again.record.verification is not None
    assert (again.record.verification.status, again.record.verification.verdict) == ("verified", "agrees")
    assert read_json(again.paths.meta, ExportMeta, "record").exports[again.paths.stem] == again.record
    for request in (unverified, asked):
        assert (found := cached(request)) is not None and found.record == again.record

    # What other libraries verified is executed once more.
    first = again.record
    assert first.verification is not None and first.verification.libraries
    calls: list[str] = []

    def executed(paths: Any, *more: Any) -> Any:
        calls.append(paths.stem)
        return execute_program(paths, *more)

    monkeypatch.setattr(cache, "execute_program", executed)
    assert (found := cached(asked)) is not None and found.record == first and not calls
    for module in (cache, verification):
        monkeypatch.setattr(module, "installed_libraries", lambda: "replaced")
    again = cached(asked)
    assert again is not None and again.record.verification is not None
    assert again.record.verification.libraries == "replaced" and len(calls) == 1
    assert cached(asked) is not None and len(calls) == 1


def test_without_a_compiler_the_record_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    record = export_module(Net(lambda net, x: net.a(x), a=nn.Linear(8, 8)), ROWS, tmp_path, dtype="fp32").record
    assert record.verification is not None and record.verification.status == "not verified"
    assert "no C++ compiler found" in record.verification.reason
    found = preview(ExportRequest("toy_cnn", tmp_path, dtype="fp32"), lambda stage: None)
    assert found.missing is None and "no C++ compiler found" in found.no_runner


def drawn(seed: int) -> tuple[Any, Any, list[str]]:
    """A random network of parts that are known to be difficult, its input, and what its parts compute."""
    draw = random.Random(seed)
    shared = conv(dilation=draw.choice([1, 2]), padding=2, groups=draw.choice([1, 2, 4]))
    volume = nn.Conv3d(
        2, 2, draw.choice([1, 2, 3]), padding=2, dilation=draw.choice([1, 2]), stride=draw.choice([1, 2])
    )
    parts: dict[str, Callable[[Any, Any], Any]] = {
        "convolution": lambda net, x: functional.relu(net.shared(x)),
        "conv3d": lambda net, x: functional.relu(net.volume(x.reshape(1, 2, 2, *x.shape[2:]))).flatten(1, 2),
        "sort": lambda net, x: torch.sort(x, dim=draw.choice([1, 2, 3]))[0],
        "constant_pad": lambda net, x: functional.pad(x, (draw.choice([-1, 0, 1, 3]), 1)),
        "avg_pool3d": lambda net, x: functional.avg_pool3d(x, 2, 1, divisor_override=draw.choice([None, None, 3])),
        "max_pool3d": lambda net, x: functional.max_pool3d(x, 2, 1),
        "sigmoid": lambda net, x: torch.sigmoid(x),
    }
    names = draw.choices(list(parts), k=draw.randint(2, 4))
    state = draw.getstate()

    def compute(net: Any, x: Any) -> Any:
        draw.setstate(state)
        for name in names:
            fits = x.shape[1] == 4 and min(x.shape[2:]) > 3
            x = parts[name](net, x) if fits or name in ("sigmoid", "sort") else torch.tanh(x)
        return x

    return Net(compute, shared=shared, volume=volume), torch.randn(1, 4, 10, 9), names


@pytest.mark.parametrize(
    ("seed", "dtype"),
    [
        pytest.param(
            seed, ("int8", "fp32", "fp16")[seed % 3], marks=[WIDE] * (seed > 0) + [pytest.mark.again] * (seed > 2)
        )
        for seed in range(18)
    ],
)
def test_whatever_an_export_calls_ok_runs_and_all_else_names_an_operator(seed: int, dtype: str, tmp_path: Path) -> None:
    torch.manual_seed(seed)
    net, x, names = drawn(seed)
    try:
        made = export_module(net, x, tmp_path, name="net", dtype=dtype)
    except KitError as error:
        assert re.search(r"aten|avg_pool3d", error.message), error.message
        assert any(name in error.message for name in (*names, "eager model")), (error.message, names)
        assert not [*tmp_path.glob("*.pte"), *tmp_path.glob("*.json")]
        return
    assert made.record.verification is not None and made.record.verification.status == "verified"
    assert made.record.verification.runner == build_runner().target.name
    assert len(run_program(made.paths, made.record)) == len(made.record.outputs)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE])
def test_a_limit_of_this_machine_is_no_fault_of_the_model(number: int) -> None:
    """ExecuTorch starts programs, too."""
    stages = Stages(None, io.StringIO(), lambda name: None)
    with pytest.raises(SetupError) as caught, stages.stage("lower to the backend"):
        raise OSError(number, os.strerror(number))
    assert os.strerror(number) in caught.value.message and caught.value.hint == LIMITS[number]
