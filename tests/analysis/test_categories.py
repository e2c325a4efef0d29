"""Every operator the installed libraries can name has a category, and a user's file can say otherwise."""

import json
import re
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_profiling.analysis.run.summary import analyse_run
from model_profiling.analysis.timing.categories import (
    ALGORITHMS,
    CATEGORIES,
    PORTABLE_RULES,
    XNNPACK_RULES,
    CategoryTable,
    OperatorClass,
    is_packed,
    load_table,
    strip_instance,
)
from model_profiling.base.errors import InputError, SetupError
from model_profiling.formats.etdump import read
from model_profiling.runner.sdk import installed_sdk
from model_profiling.store.run_directory import RunDirectory
from tests.conftest import needs
from tests.helpers.run_forge import forge_run

pytestmark = pytest.mark.fast

DATA = Path(__file__).parents[1] / "data" / "etdump"
KNOWN_GOOD = Path(__file__).parents[1] / "data" / "known_good_run"

# Linkers store a string that ends another one inside it, where no scan can tell that it is there. Which ones differs by
# platform; these are all that are hidden in one of the wheels (Linux aarch64, Linux x86_64, macOS).
HIDDEN_OPERATORS = (
    *("Fully Connected (NC, F16)", "Fully Connected (NC, F32)", "Fully Connected (NC, PF16)"),
    *("Fully Connected (NC, PF32)", "ELU (NC)", "GELU (NC)", "Max Pooling (NHWC, F32)", "Square Root (NC)"),
    "Invalid",  # the same string as an invalid data type's
)
HIDDEN_ALGORITHMS = ("Average Pooling", "GEMM", "Transpose")


@pytest.fixture(scope="module")
def table() -> CategoryTable:
    return load_table()


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The folder of the installed executorch."""
    try:
        return installed_sdk().libraries.parent
    except SetupError:
        needs(False, "executorch")
        raise


@pytest.fixture(scope="module")
def library(wheel: Path) -> Callable[[str], bytes]:
    """The bytes of one of the wheel's libraries."""

    def contents(stem: str) -> bytes:
        (path,) = (each for each in wheel.rglob(f"{stem}.*") if each.suffix in (".so", ".dylib"))
        return path.read_bytes()

    return contents


@pytest.fixture(scope="module")
def portable_names(runner: Path, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What a real dump calls the operators of a small network that nothing was delegated of."""
    home = tmp_path_factory.mktemp("portable")
    (home / "net.pte").write_bytes(portable_network())
    command = [runner, "--model_path", home / "net.pte", "--num_executions", "1", "--etdump_path", home / "net.etdump"]
    subprocess.run(list(map(str, command)), capture_output=True, check=True)
    dump = read(home / "net.etdump")
    return {name for name in dump.strings if name.startswith("native_call_")}


def portable_network() -> bytes:
    """A program of operators of every kind, quantized ones too, in tiny shapes."""
    import executorch.kernels.quantized  # noqa: F401
    import torch
    import torch.ao.quantization.fx._decomposed
    from executorch.exir import to_edge

    quantized, functional = torch.ops.quantized_decomposed, torch.nn.functional

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.embedding = torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.Embedding(8, 8)
            self.linear, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)

        def forward(self, x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = functional.interpolate(functional.max_pool2d(self.conv(x), 2), scale_factor=2.0)
            y = self.norm(self.linear(functional.pad(y, (0, 0, 1, 0))[:, :, 1:])).softmax(-1) + self.embedding(i)
            y = y.index_select(2, i) + y[:, :, i].scatter(2, i.view(1, 1, 8, 1).expand(1, 4, 8, 8), y)
            y = torch.cat([y.gather(3, i.view(1, 1, 1, 8).expand(1, 4, 8, 8)), y.flip(2)], 1).permute(0, 1, 3, 2)
            left, right = y.double().float().split(4, 1)
            y = quantized.quantize_per_tensor(torch.stack([left, right]).sum(0), 0.1, 0, -128, 127, torch.int8)
            y = quantized.dequantize_per_tensor(y, 0.1, 0, -128, 127, torch.int8)
            scale, zero = quantized.choose_qparams.tensor(y, -128, 127, 1e-5, torch.int8)
            y = quantized.quantize_per_tensor.tensor(y, scale, zero, -128, 127, torch.int8)
            y = quantized.dequantize_per_tensor.tensor(y, scale, zero, -128, 127, torch.int8)
            y = torch.bmm(torch.where(y > 0, y, y.tanh())[0], y[0]).clone()
            return *y.topk(3), y.argmax(-1), y.cumsum(0), torch.arange(8) + i, y.masked_fill(y > 1, 0.0)

    program = torch.export.export(Net().eval(), (torch.randn(1, 4, 8, 8), torch.arange(8)))
    return bytes(to_edge(program).to_executorch().buffer)


def strings_between(data: bytes, first: str, last: str) -> list[str]:
    """The strings of the read-only data from `first` to `last`, without the jump tables that may lie among them."""
    start, end = data.index(first.encode() + b"\0"), data.index(b"\0" + last.encode() + b"\0")
    assert 0 < end - start < 16384, "the string table is no longer laid out as this test expects"
    words = re.findall(rb"([A-Z][A-Za-z0-9]+(?: [A-Za-z0-9(),_-]+)*)\0", data[start : end + len(last) + 2])
    return [word.decode() for word in words]


def xnnpack_operators(data: bytes) -> set[str]:
    """Every name xnn_operator_type_to_string and its unary, binary and reshape companions can return."""
    by_type = strings_between(data, "ArgMax Pooling (NHWC, F32)", "Unary Elementwise (NC)")
    by_elementwise_type = strings_between(data, "Add (ND)", "Split Dims (NC)")
    # Names with a layout lying elsewhere, should a compiler order them otherwise.
    anywhere = re.findall(rb"([A-Z][A-Za-z0-9]+(?: [A-Z][A-Za-z0-9]*)* \(N[A-Z0-9]+(?:, [A-Z0-9_]+)*\))\0", data)
    hidden = [name for name in HIDDEN_OPERATORS if name.encode() + b"\0" in data]
    return {*by_type, *by_elementwise_type, *(name.decode() for name in anywhere), *hidden}


def test_every_operator_xnnpack_can_name_has_a_row(table: CategoryTable, library: Callable[[str], bytes]) -> None:
    names = xnnpack_operators(library("libexecutorch_backend_xnnpack"))
    assert len(names) >= 173, sorted(names)
    assert {"Invalid Unary Op", "Pack LH (X32)", "RoPE (NTHC, F16)", *HIDDEN_OPERATORS} <= names
    assert [name for name in sorted(names) if not table.classify(f"{name} #1", delegated=True).known] == []


def test_every_type_in_xnnpack_names_is_read(table: CategoryTable, library: Callable[[str], bytes]) -> None:
    layouts = {"NC", "ND", "NHWC", "NCHW", "NTHC", "NCHW2NHWC"}
    for name in xnnpack_operators(library("libexecutorch_backend_xnnpack")):
        inside = re.search(r"\((.*)\)", name)
        types = [part for part in re.split(r"[, _]+", inside[1]) if part not in layouts] if inside else []
        assert table.classify(name, delegated=True).dtype == "-".join(types), name


def test_every_xnnpack_algorithm_is_listed(library: Callable[[str], bytes]) -> None:
    data = library("libexecutorch_backend_xnnpack")
    found = {name for name in strings_between(data, "Default", "VMulCAddC") if "(" not in name}
    found |= {name for name in HIDDEN_ALGORITHMS if name.encode() + b"\0" in data}
    assert found == set(ALGORITHMS)
    assert {each for rule in XNNPACK_RULES for each in rule.algorithms} <= set(ALGORITHMS)


def kernels(data: bytes) -> set[str]:
    """The operators a library registers, by the whole name."""
    namespaces = rb"aten|quantized_decomposed|dim_order_ops|et_copy|executorch_prim|llama|preprocess"
    return {name.decode() for name in re.findall(rb"(?<![\w:])((?:%s)::\w+(?:\.\w+)?)\0" % namespaces, data)}


def events(data: bytes) -> set[str]:
    """What a library's generated wrappers call their events: an operator in a dump, without its namespace."""
    return {name.decode() for name in re.findall(rb"(native_call_[\w:]+(?:\.\w+)?)\0", data)}


def unknown(names: Iterable[str], table: CategoryTable) -> list[str]:
    return [name for name in sorted(names) if not table.classify(name, delegated=False).known]


@pytest.mark.parametrize(
    ("stem", "registered", "traced"),
    [
        ("libexecutorch_kernels_optimized", 200, 200),
        ("libexecutorch_kernels_quantized", 20, 19),
        ("libexecutorch", 25, 0),
        ("libcustom_ops_aot_lib", 11, 1),
        ("libquantized_ops_aot_lib", 6, 0),
    ],
)
def test_every_kernel_has_a_row_as_it_is_registered_and_as_a_dump_names_it(
    stem: str, registered: int, traced: int, table: CategoryTable, library: Callable[[str], bytes]
) -> None:
    names, in_dumps = kernels(library(stem)), events(library(stem))
    assert len(names) >= registered and len(in_dumps) >= traced, (sorted(names), sorted(in_dumps))
    assert unknown(names | in_dumps, table) == []


def test_every_kernel_of_the_functions_files_has_a_row(table: CategoryTable, wheel: Path) -> None:
    files = [wheel / "kernels" / name for name in ("portable/functions.yaml", "quantized/quantized.yaml")]
    names = {name for file in files for name in re.findall(r"^- (?:op|func): ([\w:.]+)", file.read_text(), re.M)}
    assert len(names) >= 220
    assert unknown({*names, *(f"native_call_{name.split('::')[-1]}" for name in names)}, table) == []


def test_what_a_dump_cannot_tell_apart_is_one_class(table: CategoryTable, library: Callable[[str], bytes]) -> None:
    """`native_call_add.out` is ATen's or quantized_decomposed's: whichever it is, its time is counted alike."""
    stems = ("kernels_optimized", "kernels_quantized")
    names = {name for stem in stems for name in kernels(library(f"libexecutorch_{stem}"))}
    for name in names:
        dumped = f"native_call_{name.split('::')[1]}"
        assert table.classify(dumped, delegated=False) == table.classify(name, delegated=False), name


def test_a_real_dump_of_portable_kernels_names_them_as_the_libraries_do(
    portable_names: set[str], table: CategoryTable, library: Callable[[str], bytes]
) -> None:
    stems = ("kernels_optimized", "kernels_quantized")
    assert portable_names <= {name for stem in stems for name in events(library(f"libexecutorch_{stem}"))}
    assert {f"native_call_{name}.out" for name in ("quantize_per_tensor", "_to_dim_order_copy")} <= portable_names
    assert unknown(portable_names, table) == []


@pytest.mark.parametrize("path", sorted(DATA.glob("cnn_*.etdump")), ids=lambda path: path.stem)
def test_a_real_etdump_has_no_unknown_delegated_operator(path: Path, table: CategoryTable) -> None:
    dump = read(path)
    names = {dump.strings[code] for code in dump.events.delegate[dump.events.delegated]}
    assert len(names) >= 4
    assert all(table.classify(name, delegated=True).known for name in names), names


def test_no_operator_has_two_rows_and_a_kind_belongs_to_one_category() -> None:
    for rules in (XNNPACK_RULES, PORTABLE_RULES):
        names = [(name, rule.algorithms) for rule in rules for name in rule.names]
        assert len(names) == len(set(names))
    rules = XNNPACK_RULES + PORTABLE_RULES
    category_of = {rule.kind: rule.category for rule in rules}
    assert all(category_of[rule.kind] == rule.category for rule in rules)
    assert set(category_of.values()) == set(CATEGORIES)


# A name, then its category, kind, types and microkernel (-: none).
XNNPACK_NAMES = """
Convolution (NHWC, F32) IGEMM #1: CONV / conv2d / F32 / IGEMM
Convolution (NHWC, PF32) IGEMM #1: CONV / conv2d / PF32 / IGEMM / packed
Convolution (NHWC, PQS8, QS8, QC8W) IGEMM #12: CONV / conv2d / PQS8-QS8-QC8W / IGEMM / packed
Convolution (NHWC, QC8) DWConv #3: CONV / depthwise / QC8 / DWConv
Convolution (NHWC, F16) VMulCAddC #1: CONV / depthwise / F16 / VMulCAddC
Convolution (NHWC, F16) GEMM #1: CONV / pointwise / F16 / GEMM
Convolution (NCHW, F32) Conv2D HWC2CHW #1: CONV / conv2d / F32 / Conv2D HWC2CHW
Deconvolution (NHWC, F32) Subconv2D #1: CONV / deconvolution / F32 / Subconv2D
Fully Connected (NC, F16) GEMM #2: GEMM / fully connected / F16 / GEMM
Dynamic Fully Connected (NC, PF16) GEMM #1: GEMM / fully connected / PF16 / GEMM / packed
Fully Connected (NC, QP8, F32, QB4W) GEMM #1: GEMM / fully connected / QP8-F32-QB4W / GEMM / packed
Batch Matrix Multiply (NC, BF16_F32) GEMM #1: GEMM / batch matmul / BF16-F32 / GEMM
Transpose (ND, X16) Transpose #1: Data Movement / transpose / X16 / Transpose
Transpose (ND, X32) #1: Data Movement / transpose / X32 / -
Static Reshape (NC) #1: Data Movement / reshape / - / -
Pack LH (X8) #1: Data Movement / pack / X8 / -
Convert (NC) #1: Data Movement / convert / - / -
Convert (NC, F32, QP8) #1: Data Movement / convert / F32-QP8 / - / packed
Add (ND) #1: Elementwise / binary / - / -
Softmax (NC, F32) #1: Elementwise / softmax / F32 / -
Mean (ND) Reduce #1: Other / reduction / - / Reduce
Max Pooling (NHWC, S8) #1: Other / pooling / S8 / -
"""


@pytest.mark.parametrize("line", XNNPACK_NAMES.strip().splitlines())
def test_xnnpack_names(line: str, table: CategoryTable) -> None:
    name, _, expected = line.partition(": ")
    found = table.classify(name, delegated=True)
    said = [found.category, found.kind, found.dtype or "-", found.algorithm or "-"]
    assert said + ["packed"] * is_packed(found.dtype) == expected.split(" / ")


PORTABLE_NAMES = """
Other / reduction: native_call_mean.out, aten::mean.out, aten.mean.dim, mean.out, mean, NATIVE_CALL_Mean.Out
CONV / conv2d: native_call_convolution.out
Elementwise / softmax: native_call__softmax.out
GEMM / fully connected: native_call_addmm.out, native_call_mixed_linear.out
GEMM / batch matmul: native_call_bmm.out
Data Movement / transpose: native_call_permute_copy.out
Data Movement / gather: native_call_index_put_, native_call_embedding.out, native_call_embedding_4bit.dtype_out
Data Movement / gather: native_call_index.Tensor_out, quantized_decomposed::embedding_xbit.out
Data Movement / copy: native_call_slice_scatter.out, native_call__clone_dim_order.out, native_call__h2d_copy.out
Data Movement / copy: llama::fallback.out
Data Movement / convert: native_call__to_dim_order_copy.out, native_call_quantize_per_tensor.out
Data Movement / convert: native_call_dequantize_per_tensor.out, native_call_choose_qparams.Tensor_out
Data Movement / convert: native_call_dim_order_ops::_to_dim_order_copy.out
Data Movement / convert: native_call_quantized_decomposed::quantize_per_tensor.out
Data Movement / convert: quantized_decomposed.dequantize_per_tensor.default
Data Movement / fill: native_call__empty_dim_order.out
Elementwise / binary: native_call_quantized_decomposed::add.out
Other / scalar: native_call_executorch_prim::add.Scalar
GEMM / attention: native_call_llama::custom_sdpa.out
"""


@pytest.mark.parametrize("line", PORTABLE_NAMES.strip().splitlines())
def test_portable_names(line: str, table: CategoryTable) -> None:
    expected, _, names = line.partition(": ")
    for name in names.split(", "):
        found = table.classify(name, delegated=False)
        assert (f"{found.category} / {found.kind}", found.dtype, is_packed(found.dtype)) == (expected, "", False), name


@pytest.mark.parametrize(
    ("name", "delegated"),
    [
        ("my_library::add.out", False),  # only its author knows what it does
        ("llama::mean.out", False),  # not one of that library's
        ("native_call_frobnicate.out", False),
        ("Convolution (NHWC, F32) IGEMM #1", False),
        ("Method::execute", False),
        ("", False),
        ("", True),
        ("17", True),
        ("mean.out", True),
        ("MPSGraph op (fused", True),
        ("Add\n(ND)", True),
        ("(" * 100_000, True),
        (" (NC) GEMM" * 10_000, True),
    ],
)
def test_a_name_nobody_knows_is_other_and_says_so(name: str, delegated: bool, table: CategoryTable) -> None:
    assert table.classify(name, delegated) == OperatorClass("Other", "unknown")
    assert not table.classify(name, delegated).known


def test_a_report_says_that_no_rule_matched(tmp_path: Path) -> None:
    def rename(name: str) -> str:
        return "native_call_frobnicate.out" if name.startswith("native_call_") else name

    run = forge_run(KNOWN_GOOD, tmp_path / "run", rename=rename)
    directory = RunDirectory(run)
    for experiment in analyse_run(directory, directory.manifest(), load_table()).summary.experiments.values():
        (note,) = experiment.notes
        assert "no category rule matches frobnicate.out" in note and "--categories" in note
    directory = RunDirectory(KNOWN_GOOD)
    known = analyse_run(directory, directory.manifest(), load_table()).summary
    assert all(experiment.notes == [] for experiment in known.experiments.values())


FORMS: tuple[Callable[[str], str], ...] = (str.upper, str.title, lambda x: f"{x} #3", lambda x: f"{x}#12")
OVERLOADS = ("", ".out", ".Tensor_out", ".int_out", ".default", ".self_out")


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_however_a_portable_operator_is_spelled_it_is_the_same(data: st.DataObject) -> None:
    """Case, overload, instance number, prefix and namespace say nothing about the work."""
    table = load_table()
    name = data.draw(st.sampled_from([name for rule in PORTABLE_RULES for name in rule.names]))
    namespace, bare = name.split("::") if "::" in name else ("aten", name)
    expected = table.classify(f"{namespace}::{bare}", delegated=False)
    assert expected.known
    spelled = data.draw(st.sampled_from([f"{namespace}::{bare}", f"{namespace}.{bare}"]))
    if namespace != "executorch_prim" and data.draw(st.booleans()):
        spelled = bare
    spelled = data.draw(st.sampled_from(["", "native_call_"])) + spelled + data.draw(st.sampled_from(OVERLOADS))
    for form in data.draw(st.lists(st.sampled_from(FORMS), max_size=2, unique=True)):
        spelled = form(strip_instance(spelled))
    assert table.classify(spelled, delegated=False) == expected, spelled


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_however_an_xnnpack_operator_is_spelled_it_is_the_same(data: st.DataObject) -> None:
    table = load_table()
    rule = data.draw(st.sampled_from(XNNPACK_RULES))
    name = data.draw(st.sampled_from(rule.names))
    algorithm = data.draw(st.sampled_from(rule.algorithms or ("",)))
    spelled = f"{name} (NHWC, PQS8, QS8, QC8W) {algorithm}".strip()
    expected = table.classify(spelled, delegated=True)
    assert (expected.category, expected.kind, expected.dtype) == (rule.category, rule.kind, "PQS8-QS8-QC8W")
    for form in FORMS:
        assert table.classify(form(spelled), delegated=True) == expected


def test_strip_instance() -> None:
    assert strip_instance("Convolution (NHWC, F32) IGEMM #1") == "Convolution (NHWC, F32) IGEMM"
    assert strip_instance("Convolution (NHWC, F32) IGEMM #1234") == "Convolution (NHWC, F32) IGEMM"
    assert strip_instance("native_call_mean.out") == "mean.out"
    assert strip_instance("my #1 operator") == "my #1 operator"


def write(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "categories.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_users_file_extends_and_overrides(tmp_path: Path) -> None:
    operators = {
        "Transpose (ND, X32)": {"category": "Other", "kind": "my kind"},
        "Fully Connected*": {"category": "CONV"},
        "my_custom_op.out": "CONV",
        "aten::mean.out": {"category": "Elementwise"},
        "my_library::*": "GEMM",
    }
    table = load_table(write(tmp_path, {"operators": operators}))
    assert table.classify("Transpose (ND, X32) #7", True) == OperatorClass("Other", "my kind", "X32")
    assert table.classify("Transpose (ND, X16) #7", True).category == "Data Movement"
    assert table.classify("Fully Connected (NC, PF16) GEMM #1", True) == OperatorClass(
        "CONV", "fully connected", "PF16", "GEMM"
    )
    assert table.classify("native_call_my_custom_op.out", False) == OperatorClass("CONV", "custom")
    assert table.classify("native_call_mean.out", False) == OperatorClass("Elementwise", "reduction")
    assert table.classify("native_call_my_library::anything.out", False).category == "GEMM"


def test_a_users_namespace_is_found_whether_the_dump_has_it_or_not(tmp_path: Path) -> None:
    operators = {
        "quantized_decomposed::quantize_per_tensor.out": {"category": "Other", "kind": "mine"},
        "my_library::my_op.out": "GEMM",
        "my_library::add.out": "CONV",
        "dim_order_ops::*": "Elementwise",
        "aten::m*": "Elementwise",
    }
    table = load_table(write(tmp_path, {"operators": operators}))
    for name in ("native_call_quantize_per_tensor.out", "quantized_decomposed::quantize_per_tensor.out"):
        assert table.classify(name, False) == OperatorClass("Other", "mine")
    for name in ("native_call_my_op.out", "my_library::my_op.out"):
        assert table.classify(name, False) == OperatorClass("GEMM", "custom")
    assert table.classify("my_library::add.out", False).category == "CONV"
    assert table.classify("native_call_add.out", False) == OperatorClass("Elementwise", "binary")  # ATen's, surely
    assert table.classify("native_call__clone_dim_order.out", False) == OperatorClass("Elementwise", "copy")
    assert table.classify("native_call_mm.out", False) == OperatorClass("Elementwise", "fully connected")
    assert table.classify("Max Pooling (NHWC, S8) #1", True).category == "Other"  # XNNPACK's, not ATen's


def test_an_exact_name_wins_over_a_pattern_and_the_first_pattern_over_the_next(tmp_path: Path) -> None:
    # A pattern that is made to be slow is not.
    operators = {"*a" * 200 + "b": "GEMM", "*": "Other", "Add*": "GEMM", "Add (ND)": "CONV"}
    table = load_table(write(tmp_path, {"operators": operators}))
    assert table.classify("Add (ND) #1", True).category == "CONV"
    assert {table.classify(n, True).category for n in ("Convolution (NHWC, F32) IGEMM #1", "a" * 5000)} == {"Other"}


@pytest.mark.parametrize(
    ("content", "says", "hint"),
    [
        ("", "not JSON", "Write it like"),
        ("{", "not JSON", "Write it like"),
        ("[" * 100_000, "not JSON", "Write it like"),
        ("[]", "not contain a JSON object", "Write it like"),
        ("{}", '"operators" is missing', "Write it like"),
        ({"operators": []}, '"operators" is missing or not an object', "Write it like"),
        ({"operators": {}, "colour": 1}, 'unknown key "colour"', "operators"),
        ({"operators": {"a.out": "Conv"}}, 'operators["a.out"] has the category "Conv"', ", ".join(CATEGORIES)),
        ({"operators": {"a.out": {"category": None}}}, 'operators["a.out"] has the category null', "Data Movement"),
        ({"operators": {"a.out": {"category": ["CONV"]}}}, "has the category [...]", "Data Movement"),
        ({"operators": {"a.out": {"kind": "x"}}}, 'operators["a.out"] has no category', "Data Movement"),
        ({"operators": {"a.out": 5}}, 'operators["a.out"] is neither', "Write it like"),
        ({"operators": {"a.out": {"category": "CONV", "knd": ""}}}, 'unknown key "knd"', "category, kind"),
        ({"operators": {"a.out": {"category": "CONV", "kind": 3}}}, "has the kind 3", "short word"),
        ({"operators": {"a.out": {"category": "CONV", "kind": " "}}}, 'has the kind " "', "short word"),
        ({"operators": {"a.out": {"category": "CONV", "kind": "unknown"}}}, 'the kind "unknown"', "short word"),
        ({"operators": {"Add (ND) #1": "CONV"}}, 'operators["Add (ND) #1"] is not an operator name', "instance number"),
        ({"operators": {"native_call_a.out": "CONV"}}, "is not an operator name", "native_call_"),
        ({"operators": {"": "CONV"}}, 'operators[""] is not an operator name', "instance number"),
        ({"operators": {"\x1b[31m\ud800": "x"}}, 'operators["\\u001b[31m\\ud800"]', "Data Movement"),
        ({"operators": {"mean.out": "CONV", "aten::mean.out": "GEMM"}}, '"mean.out" is given twice', "Keep one"),
        ('{"operators": {"a.out": "CONV", "a.out": "GEMM"}}', '"a.out" is given twice', "Keep one"),
    ],
)
def test_a_broken_file_is_an_error_that_names_the_key(content: object, says: str, hint: str, tmp_path: Path) -> None:
    path = write(tmp_path, content)
    with pytest.raises(InputError) as caught:
        load_table(path)
    assert says in caught.value.message
    assert str(path) in caught.value.message
    assert hint in caught.value.hint
    assert len(caught.value.message) < 400


def test_a_file_that_is_missing_huge_or_not_text_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        load_table(tmp_path / "none.json")
    for content, why in ((b"\xff\xfe\x00{", "not JSON"), (b" " * (2 << 20), "larger than")):
        (tmp_path / "binary.json").write_bytes(content)
        with pytest.raises(InputError, match=why):
            load_table(tmp_path / "binary.json")
