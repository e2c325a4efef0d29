"""Inputs that a model does not take: the error names the parameters of forward(), and what helps."""

import signal
from pathlib import Path

import pytest
import torch

from model_profiling.base.errors import InputError, RunError
from model_profiling.cli.main import main
from model_profiling.models.loading import load_model
from model_profiling.models.options import input_spec
from model_profiling.models.refused_inputs import explained_call
from model_profiling.models.user_file import random_input

IDS, MASK = "int64:1,8:0..300", "bool:1,8"


class Tokens(torch.nn.Module):  # type: ignore[misc]
    """Ids and positions have tables of their own; only that of the ids limits the input."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = torch.nn.Embedding(300, 4), torch.nn.Embedding(16, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.words(ids) + self.places(torch.arange(ids.shape[1]))


class Masked(Tokens):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(ids).masked_fill(mask[..., None], 0)


class MaybeMasked(Masked):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        assert mask is not None
        return super().forward(ids, mask)


class OneHot(torch.nn.Module):  # type: ignore[misc]
    def forward(self, kind: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(kind, 10)


class Gather(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x.gather(1, index)


class Linear(torch.nn.Linear):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(8, 8)


class Scaled(Linear):
    def forward(self, x: torch.Tensor, *, scale: float) -> torch.Tensor:
        return super().forward(x) * scale


@pytest.mark.parametrize(
    ("kind", "given", "said", "fix"),
    [
        (Tokens, ["1,8"], "does not take its inputs (ids is float32 [1, 8])", "int64:SHAPE:0..ROWS"),
        (Tokens, ["int64:1,8:0..9000"], "an index outside its table", "--input int64:1,128:0..30522"),
        (Masked, [IDS, "1,8"], "true and false where", "--input bool:SHAPE"),
        (Masked, [IDS], "forward(ids, mask) of Masked needs mask, which was", "--input SHAPE_OF_MASK"),
        (Gather, ["2,6", "2,6"], "a float where an integer is needed", "int64:SHAPE:0..ROWS"),
        (Linear, ["1,9"], "example inputs that do not fit", "check their number, shapes"),
        (Linear, ["1,8", "1,8"], "has no parameter for float32 [1, 8]", "1 input by position; leave the others out"),
        (
            Scaled,
            ["1,8"],
            "forward(x, *, scale) of Scaled needs scale, which was not given",
            "get_example_kwarg_inputs",
        ),
        (Gather, ["2,6", "3,5", "1"], "forward(x, index) of Gather has no parameter for float32 [1]", "2 inputs"),
    ],
)
def test_inputs_at_fault_are_named_with_what_helps(
    kind: type[torch.nn.Module], given: list[str], said: str, fix: str
) -> None:
    module = kind()

    def call(specs: list[str]) -> None:
        inputs = tuple(random_input(input_spec(spec)) for spec in specs)
        with explained_call(module, (inputs, {}), "file"):
            module(*inputs)

    with pytest.raises(InputError) as caught:
        call(given)
    assert said in caught.value.message and fix in caught.value.hint


def test_another_failure_is_the_models_own() -> None:
    with pytest.raises(ZeroDivisionError), explained_call(Linear(), ((torch.ones(8),), {}), "file"):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("code", "said", "fix"),
    [
        ("raise SystemExit(2)", "ends the process (at net.py:1)", '__name__ == "__main__"'),
        ("class End(BaseException): pass\nraise End('now')", "RuntimeError: End: now", "the model's own code"),
        ("import os; os._exit(0)", "ends the process (at net.py:1)", '__name__ == "__main__"'),
        *(
            (f"class Odd(Exception):\n    def {method}(*_): raise ValueError\nraise Odd", said, "the model's own code")
            for method, said in (
                *(
                    (each, "(at net.py:3): RuntimeError: Odd: what it says of itself")
                    for each in ("__str__", "__repr__")
                ),
                ("__getattribute__", "(at net.py:2): ValueError"),
            )
        ),
        ("import torch; torch.empty(1 << 50)", "more memory than this process can have", "ulimit -v"),
        ("from . import layers", "(at net.py:1): a relative import in a file", "Import by name"),
        (
            "raise AssertionError('Torch not compiled with CUDA enabled')",
            "a device other than the CPU",
            "leave .cuda()",
        ),
    ],
)
def test_code_that_cannot_be_loaded_is_explained(code: str, said: str, fix: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(f"{code}\nNet = None\n")
    with pytest.raises(RunError) as caught:
        load_model(f"{tmp_path / 'net.py'}:Net")
    assert said in caught.value.message and fix in caught.value.hint


def test_a_timer_that_a_file_sets_neither_ends_the_process_nor_outlives_the_load(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import signal, time, torch\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)\nsignal.setitimer(signal.ITIMER_PROF, 0.01, 0.01)\n"
        "end = time.process_time() + 0.1\nwhile time.process_time() < end: pass\n"
        "Net, example_inputs = torch.nn.ReLU(), (torch.ones(2),)\n"
    )
    load_model(f"{tmp_path / 'net.py'}:Net")
    assert signal.getitimer(signal.ITIMER_REAL) == signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_check_says_it_of_a_users_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\nclass Net(torch.nn.Embedding):\n    def __init__(self):\n        super().__init__(77, 4)\n"
    )
    assert main(["check", f"{tmp_path / 'net.py'}:Net", "--input-shape", "1,5"]) == 2
    assert "--input int64:" in capsys.readouterr().err
