"""Exports without what the kit relies on and nobody promised: by stock ways, and with a word about what is missing."""
# ruff: noqa: E402 - without torch these tests are skipped before the imports that need it

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from model_profiling.base.dtypes import NAMES
from model_profiling.base.errors import KitError, SetupError
from model_profiling.base.rewrites import LAYOUT
from model_profiling.export import cache
from model_profiling.export.beside import require_for_numerics
from model_profiling.export.exporter import ExportRequest, export
from model_profiling.export.in_memory import export_module, loader
from model_profiling.models.loading import load_model
from model_profiling.models.options import LoadOptions
from model_profiling.upstream.all_reliances import ALL
from model_profiling.upstream.faster_lowering import PARTS, STOCK_VARIABLE
from model_profiling.upstream.reliance import FAILS_VARIABLE
from tests.conftest import ROOT, kit
from tests.helpers.both_ways import assert_same_both_ways
from tests.helpers.tiny_llm import exported_llm

# Of each way to make a dtype one; the others are made in the same ways.
HOLDING = ("fp32", "int8", "int4")
IMAGE = torch.linspace(-1, 1, 3 * 8 * 8).reshape(1, 3, 8, 8)


class Net(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Has what every dtype converts, a linear layer of a width that groups divide among it, and what is portable."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.image = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, 2), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
        self.rows = torch.nn.Linear(36, 32)
        self.head = torch.nn.Linear(32, 4)

    def forward(self, x: Any) -> Any:
        return self.head(torch.relu(self.rows(self.image(x).flatten(1)))).cumsum(1)


class Given:
    """The same as a registered model."""

    def get_eager_model(self) -> Any:
        return Net().eval()

    def get_example_inputs(self) -> Any:
        return (IMAGE,)


@pytest.mark.wide
@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(name, marks=[pytest.mark.wide] * (name != "fp32") + [pytest.mark.again] * (name not in HOLDING))
        for name in NAMES
    ],
)
def test_the_program_of_every_dtype_is_the_same_in_both_ways(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = loader("net", Net().eval(), IMAGE, None)()
    assert_same_both_ways(loaded, ExportRequest("net", tmp_path, dtype), monkeypatch)


# Small settings. Each dtype and each kind of network, with and without the rewrite; of a small one above.
# The language models of the zoo are this transformer with a larger vocabulary, which takes a minute to lower.
TINY_LLM = f"{ROOT / 'tests' / 'helpers' / 'tiny_llm.py'}:TinyLlm"
BOTH_WAYS = [("ds_cnn", "int8", (LAYOUT,), ())]
BOTH_WAYS_AGAIN = [
    (TINY_LLM, "fp32", (LAYOUT,), ()),
    ("resnet8", "fp16", (LAYOUT,), ()),
    ("deep_autoencoder", "int8-dynamic", (), ()),
    ("deit_tiny", "int4-channel", (), (("blocks", 1),)),
    ("ds_cnn", "fp32", (), ()),
    ("deit_tiny", "fp16", (LAYOUT,), (("blocks", 1),)),
    ("mobilenet_v3_small", "fp32", (LAYOUT,), ()),
    (TINY_LLM, "int4", (), ()),
    ("llm_block_decode", "int4", (LAYOUT,), (("tokens", 8), ("width", 128))),
]


@pytest.mark.models
@pytest.mark.parametrize(
    ("name", "dtype", "rewrites", "settings"),
    [*BOTH_WAYS, *(pytest.param(*case, marks=pytest.mark.again) for case in BOTH_WAYS_AGAIN)],
)
def test_programs_of_the_zoo_are_the_same_in_both_ways(
    name: str, dtype: str, rewrites: Any, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_model(name, 0, LoadOptions(settings=settings))
    assert_same_both_ways(
        loaded, ExportRequest(name.rpartition(":")[2], tmp_path, dtype, rewrites=rewrites), monkeypatch
    )


@pytest.mark.parametrize(
    ("dtype", "rewrites"),
    [
        pytest.param("fp32", (LAYOUT,), marks=pytest.mark.wide),
        pytest.param("fp16", (), marks=[pytest.mark.wide, pytest.mark.again]),
        pytest.param("int8", (), marks=[pytest.mark.wide, pytest.mark.again]),
        pytest.param("int4-channel", (LAYOUT,), marks=[pytest.mark.wide, pytest.mark.again]),
    ],
)
def test_an_export_does_without_everything_and_says_so(
    dtype: str, rewrites: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FAILS_VARIABLE, "all")
    record = export_module(Net().eval(), IMAGE, tmp_path, dtype=dtype, rewrites=rewrites).record
    assert record.lowering.startswith("stock: late-compilation is switched off")
    assert record.verification is not None and record.verification.verdict == "agrees"
    said = "\n".join(record.warnings)
    for words in (
        "lowered in the stock way",
        "why an operator was not delegated is unknown",
        "rewrites are neither done",
    ):
        assert said.count(words) == 1, said
    assert ("all patterns are prepared" in said) == dtype.startswith("int")
    (left,) = [each for each in record.delegation.not_delegated if "cumsum" in each.op]
    assert left.reason.startswith("reason unknown") and record.rewrites is None


MISSING = {
    "layout-lowering": "--rewrite layout rewrites the graph, and then it is lowered in the stock way",
    "partitioner-reasons": "why an operator was not delegated is unknown",
    "unchanged-graphs": "models are lowered without unchanged-graphs, which",
    "nested-inputs": "tuples, lists and dicts only",
    "etrecord-contents": "source lines are unknown",
}


@pytest.mark.parametrize(
    "names", [["layout-lowering"], pytest.param([*MISSING][1:], marks=pytest.mark.wide)], ids=["one", "several"]
)
def test_what_is_missing_costs_nothing_else(names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAILS_VARIABLE, ",".join(names))
    record = export_module(Net().eval(), IMAGE, tmp_path, rewrites=(LAYOUT,), dtype="fp32").record
    for name in names:
        (line,) = [warning for warning in record.warnings if warning.startswith(name)]
        assert MISSING[name] in line and record.rewrites is not None
    assert (record.lowering == "faster") == ("unchanged-graphs" not in names)
    assert record.verification is not None and record.verification.verdict == "agrees"


def test_what_nothing_true_can_be_said_without_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Counter(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.ones(1))

        def forward(self, x: Any) -> Any:
            self.count += 1
            return x * self.count

    monkeypatch.setenv(FAILS_VARIABLE, "all")
    with pytest.raises(SetupError, match=r"language models cannot be built; other models are not affected") as caught:
        export(
            ExportRequest(
                "smollm2_135m", tmp_path, options=LoadOptions(settings=(("layers", 1), ("context", 32))), dtype="fp32"
            )
        )
    assert "ExecuTorch 1.5.0, 1.5.1" in caught.value.hint
    with pytest.raises(KitError, match="--keep-fp32 and numerics are refused"):
        export_module(Net().eval(), IMAGE, tmp_path, dtype="fp16", keep_fp32=("rows",))
    with pytest.raises(KitError, match="its program would begin with zeros"):
        export_module(Counter().eval(), IMAGE, tmp_path, dtype="fp32")
    with pytest.raises(SetupError, match="numerics is refused"):
        require_for_numerics(ExportRequest("net", tmp_path, "int8"))
    monkeypatch.setenv(FAILS_VARIABLE, "node-provenance")
    require_for_numerics(ExportRequest("net", tmp_path, "fp16"))
    with pytest.raises(SetupError, match="numerics of quantized programs is refused"):
        require_for_numerics(ExportRequest("net", tmp_path, "int8"))


@pytest.mark.wide
@pytest.mark.again
def test_commands_do_without_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # All but ExecuTorch's transformer, of which this language model is built.
    monkeypatch.setenv(FAILS_VARIABLE, ",".join(each.name for each in ALL if each.name != "example-llama"))
    record = exported_llm(tmp_path / "llm").record
    assert record.lowering.startswith("stock: ") and record.verification.verdict == "agrees"
    for verb, code in (("export", 0), ("numerics", 3)):
        done = kit(verb, "toy_cnn", "--dtype", "fp16", "--outdir", tmp_path / verb, env={FAILS_VARIABLE: "all"})
        assert done.returncode == code, done.stderr
        text = done.stdout + done.stderr
        assert ("in the stock way" in text) if not code else ("numerics is refused" in text), text


@pytest.mark.wide
def test_an_export_of_the_other_way_is_not_taken_for_this_one(
    register: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register("net", Given)
    request = ExportRequest("net", tmp_path, backend="portable", verify=False, dtype="fp32")
    faster = export(request)
    assert faster.record.lowering == "faster" and cache.cached(request) is not None
    for variable, value in ((STOCK_VARIABLE, "1"), (FAILS_VARIABLE, ",".join(PARTS))):
        monkeypatch.setenv(variable, value)
        assert cache.cached(request) is None
        stock = export(request)
        assert stock.record.lowering.startswith("stock: ") and variable in stock.record.lowering
        # Who switches it off knows; of what is missing one is told.
        assert any("stock way" in warning for warning in stock.record.warnings) == (variable == FAILS_VARIABLE)
        again = cache.cached(request)
        assert again is not None and again.record == stock.record
        assert stock.record.files[stock.paths.pte.name] == faster.record.files[faster.paths.pte.name]
        monkeypatch.delenv(variable)
        assert cache.cached(request) is None
