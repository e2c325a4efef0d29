"""An ETRecord leads from an instruction to the line of the model; a .pte says which instructions it has."""

import contextlib
import json
import random
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from model_profiling.formats import etdump, etrecord, pte
from model_profiling.formats.etrecord import EtrecordError, InstructionSource, SourceNode, _instructions
from model_profiling.formats.etrecord.reader import EtrecordGraph, frame, module, operator
from model_profiling.formats.pte import DELEGATE, KERNEL, Instruction, Method, PteError, xnnpack_graph
from tests.conftest import SAMPLED, kit
from tests.helpers.waiting import LONGEST_S

Toy = Callable[[str], Path]

EDGE = "edge_dialect_exported_program/forward"
TRACE = """File "/home/me/model.py", line 29, in forward
    x = torch.relu(self.stem(image))
  File "/env/lib/python3.11/site-packages/torch/nn/modules/conv.py", line 565, in forward
    return self._conv_forward(input, self.weight, self.bias)"""


def node(handle: object = 1, target: str = "torch.ops.aten.mean.dim", trace: str = TRACE) -> dict[str, Any]:
    metadata = {"debug_handle": str(handle), "stack_trace": trace, "nn_module_stack": "a,,m.Net;b,stem,torch.nn.Conv2d"}
    return {"name": f"n{handle}", "target": target, "inputs": [], "metadata": {**metadata, "torch_fn": "x;y"}}


def edge(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"graph_module": {"graph": {"nodes": list(nodes), "tensor_values": {}}, "signature": {"input_specs": []}}}


def forge(path: Path, compression: int = zipfile.ZIP_STORED, **members: object) -> Path:
    """Write an ETRecord of one instruction; `members` replace or (None) remove its parts."""
    parts: dict[str, object] = {"ETRECORD_V0": b"", "debug_handle_map": {"forward": {"0": 1}}, EDGE: edge(node())}
    parts.update({{"edge": EDGE}.get(name, name): value for name, value in members.items()})
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, value in parts.items():
            if value is not None:
                archive.writestr(name, value if isinstance(value, (bytes, str)) else json.dumps(value))
    return path


ISLANDS = """
import torch
from torch import nn


class Islands(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
            x = torch.sin(x).cumsum(1)
        return x
"""
# Each layer is delegated, and two portable operators follow it.
DELEGATES, PORTABLE = 4, 8


@pytest.fixture(scope="session")
def islands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Delegates with portable operators between them."""
    home = tmp_path_factory.mktemp("islands")
    (home / "net.py").write_text(ISLANDS)
    done = kit("export", f"{home / 'net.py'}:Islands", "--input-shape", "1,8", "--dtype", "fp32", "--outdir", home)
    assert done.returncode == 0, done.stderr
    (model,) = home.glob("*.pte")
    return model


def record(path: Path) -> Path:
    return path.with_name(f"{path.name}.etrecord")


def dump(runner: Path, model: Path, where: Path) -> Path:
    command = [str(runner), "--model_path", str(model), "--etdump_path", str(where / "a.etdump")]
    subprocess.run(command, check=True, capture_output=True, timeout=LONGEST_S)
    return where / "a.etdump"


@pytest.mark.filterwarnings("ignore::UserWarning")  # Inspector warns per operator
@pytest.mark.parametrize("which", ["fp32", "int8", "islands"])
def test_every_event_is_attributed_as_inspector_attributes_it(
    runner: Path, toy: Toy, tmp_path: Path, which: str, request: pytest.FixtureRequest
) -> None:
    devtools = pytest.importorskip("executorch.devtools")
    model = request.getfixturevalue("islands") if which == "islands" else toy(which)
    trace = dump(runner, model, tmp_path)
    ours = etrecord.read(record(model))
    inspector = devtools.Inspector(etdump_path=str(trace), etrecord=str(record(model)))
    portable = 0
    for event in (event for block in inspector.event_blocks for event in block.events if event.stack_traces):
        source = ours.source(event._instruction_id)
        assert source is not None
        theirs = [(event.module_hierarchy[name], text) for name, text in event.stack_traces.items()]
        assert len(source.nodes) == len(theirs)
        for mine, (hierarchy, text) in zip(source.nodes, theirs, strict=True):
            assert _innermost(hierarchy) == (mine.module_path, mine.module_type)
            place = f'File "{mine.file}", line {mine.line}, in forward\n    {mine.code}'
            assert place in text if text else not mine.file
        portable += source.delegate is None
    assert portable >= (PORTABLE if which == "islands" else 1)


def _innermost(hierarchy: dict[str, tuple[str, str]] | None) -> tuple[str, str]:
    own = [value for value in (hierarchy or {}).values() if not value[1].startswith("torch.export")]
    return (own[-1][0], own[-1][1].split(".")[-1]) if own else ("", "")


def test_an_etdumps_instruction_is_the_etrecords_and_the_ptes(runner: Path, islands: Path, tmp_path: Path) -> None:
    traced = etdump.read(dump(runner, islands, tmp_path)).events
    (method,) = pte.read(islands).methods
    sources = etrecord.read(record(islands)).sources["forward"]
    seen = {int(index) for chain, index in zip(traced.chain, traced.instruction, strict=True) if chain >= 0}
    assert seen == set(sources) == {step.index for step in method.instructions}
    assert len(method.delegates) == DELEGATES
    for step in method.instructions:
        assert sources[step.index].delegate == (step.name if step.kind == "DelegateCall" else None)


def test_the_line_of_a_portable_operator_is_the_models_own(toy: Toy) -> None:
    source = etrecord.read(record(toy("int8"))).source(1, operator="aten::mean.out")
    assert source is not None and source.delegate is None
    (mean,) = source.nodes
    assert (mean.op, mean.module_type) == ("aten.mean.dim", "ToyCNN")
    assert mean.code == Path(mean.file).read_text().splitlines()[mean.line - 1].strip()
    assert "mean" in mean.code


def test_delegated_operators_lead_to_their_lines_and_their_work(toy: Toy) -> None:
    program = pte.read(toy("fp32"))
    ours = etrecord.read(record(toy("fp32")))
    graph = xnnpack_graph.graphs(program, program.methods[0])[0]
    convolution = next(step for step in graph.nodes if step.op == "Conv2d")
    assert [found.module_path for found in ours.nodes(convolution.debug_handle)] == ["stem"]
    (image, weight, *_), (out,) = convolution.inputs, convolution.outputs
    assert (image.shape, weight.shape, out.shape) == ((1, 96, 96, 3), (32, 3, 3, 3), (1, 48, 48, 32))
    assert weight.constant and not image.constant
    assert convolution.multiply_accumulates == 48 * 48 * 32 * 3 * 3 * 3
    depthwise = next(step for step in graph.nodes if step.op == "DepthwiseConv2d")
    assert depthwise.multiply_accumulates == 48 * 48 * 48 * 3 * 3
    inserted = [step for step in graph.nodes if not step.debug_handle]
    assert {step.op for step in inserted} == {"StaticTranspose"}


def test_program_and_graph_read_as_executorch_reads_them(toy: Toy, islands: Path) -> None:
    serialize = pytest.importorskip("executorch.exir._serialize._program")
    for path in (toy("int8"), islands):
        (plan,) = serialize.deserialize_pte_binary(path.read_bytes()).program.execution_plan
        (method,) = pte.read(path).methods
        theirs = [type(step.instr_args).__name__ for step in plan.chains[0].instructions]
        assert [step.kind for step in method.instructions] == theirs
        assert [delegate.backend for delegate in method.delegates] == [delegate.id for delegate in plan.delegates]
        shapes = [tuple(plan.values[index].val.sizes) for index in plan.inputs]
        assert [tensor.sizes for tensor in method.inputs if tensor] == shapes
        calls = [step for step in method.instructions if step.kind == "KernelCall"]
        operators = {f"{one.name}.{one.overload}" if one.overload else one.name for one in plan.operators}
        assert {step.name for step in calls} == operators


def test_a_record_of_another_export_is_said_to_be_one(toy: Toy, islands: Path) -> None:
    models = {"fp32": toy("fp32"), "fp16": toy("fp16"), "int8": toy("int8"), "islands": islands}
    records = {name: etrecord.read(record(path)) for name, path in models.items()}
    said = {(mine, other): etrecord.matches(records[mine], path) for mine in records for other, path in models.items()}
    assert [said[name, name] for name in models] == [None] * 4
    assert all(reason for (mine, other), reason in said.items() if mine != other)
    assert "input 0 is float16 in the .pte and float32 in the ETRecord" in str(said["fp32", "fp16"])
    assert "XNNPACK delegate of instruction 0 has a Conv2d where" in str(said["int8", "fp32"])


@pytest.mark.filterwarnings("ignore:Mutation on a buffer")
def test_what_passes_insert_is_no_mismatch(tmp_path: Path) -> None:
    """A buffer written back, a dynamic size, the branches of a condition, a second method."""
    path = tmp_path / "two.pte"
    _export_control_flow(path)
    ours = etrecord.read(record(path))
    assert etrecord.matches(ours, path) is None
    assert set(ours.sources) == {"forward", "again"}
    method = pte.read(path).method("forward")
    assert method is not None
    kinds = {step.name or step.kind: ours.source(step.index) is None for step in method.instructions}
    assert kinds["JumpFalseCall"] and kinds["aten::sin.out"] and not kinds["aten::cumsum.out"]


def _export_control_flow(path: Path) -> None:
    torch = pytest.importorskip("torch")
    exir = pytest.importorskip("executorch.exir")

    class Branching(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)).cumsum(0)

    class Stateful(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(4, 8))

        def forward(self, x: Any) -> Any:
            self.cache.add_(1)
            return (self.cache.sum() + x.cumsum(0)) * x.shape[0]

    dynamic = ({0: torch.export.Dim("n", min=2, max=9)},)
    example = (torch.ones(3, 8),)
    methods = {
        "forward": torch.export.export(Branching(), example),
        "again": torch.export.export(Stateful(), example, dynamic_shapes=dynamic),
    }
    program = exir.to_edge_transform_and_lower(methods, generate_etrecord=True).to_executorch()
    path.write_bytes(program.buffer)
    program.get_etrecord().save(str(record(path)))


def test_a_node_is_read_from_its_metadata(tmp_path: Path) -> None:
    ours = etrecord.read(forge(tmp_path / "a.etrecord", delegate_map={"forward": {"0": {"name": "Other"}}}))
    lines = ("/home/me/model.py", 29, "x = torch.relu(self.stem(image))")
    mean = SourceNode("aten.mean.dim", "stem", "Conv2d", *lines, 1, name="n1")
    assert ours.source(0) == InstructionSource(0, "Other", (mean,))
    assert ours.source(1) is None and ours.source(0, method="encode") is None


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ("L__self__,,a.b.Net", ("", "Net")),
        ("L['self'],L['self'],a.Net;x,L['self'].blocks.3.conv,torch.nn.Conv2d", ("blocks.3.conv", "Conv2d")),
        ("x,stem,torch.nn.Conv2d;y,,torch.export._trace.f.<locals>.Wrapper", ("stem", "Conv2d")),
        ("k,heads.a,b,a.Head", ("heads.a,b", "Head")),
        ("", ("", "")),
        (";;,", ("", "")),
    ],
)
def test_the_innermost_module_is_found(stack: str, expected: tuple[str, str]) -> None:
    assert module(stack) == expected


def test_a_frame_of_the_framework_counts_only_where_there_is_no_other() -> None:
    library = 'File "/e/site-packages/torch/ao/rnn.py", line 3, in forward\n    a\n'
    assert frame(library) == ("/e/site-packages/torch/ao/rnn.py", 3, "a")
    assert frame(f'{library}  File "/me/m.py", line 5, in forward\n  File "/me/m.py", line 9, in help') == (
        "/me/m.py",
        5,
        "",
    )
    assert frame('File "torch/fx/passes/runtime_assert.py", line 24, in insert') == ("", 0, "")
    assert frame('File "/e/site-packages/executorch/examples/models/a.py", line 1, in forward')[1] == 1
    assert frame("no trace") == frame("") == ("", 0, "")
    assert operator("executorch.exir.dialects.edge.ops.aten.mean.dim") == "aten.mean.dim"


def test_json_as_python_writes_it_is_read(tmp_path: Path) -> None:
    minus = {**node(), "inputs": [{"as_float": float("-inf")}]}
    assert etrecord.read(forge(tmp_path / "a", edge=edge(minus))).source(0) is not None


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"ETRECORD_V0": None}, "no member ETRECORD_V0"),
        ({"debug_handle_map": None}, "no member debug_handle_map"),
        ({"edge": None}, f"no member {EDGE}"),
        ({"edge": '{"graph_module": {"x": ' + "[" * 100_000}, "nested too deeply|truncated"),
        ({"edge": '{"x": ' * 100_000}, "nested too deeply|truncated"),
        ({"edge": "{"}, "not what ExecuTorch writes"),
        ({"edge": b"\xff\xfe"}, "not what ExecuTorch writes"),
        ({"edge": {"graph_module": []}}, "graph_module"),
        ({"edge": edge({"target": 3, "metadata": {}})}, "target"),
        ({"debug_handle_map": {"forward": {"zero": 1}}}, "debug_handle_map"),
        ({"debug_handle_map": {"forward": {"0": "1"}}}, "debug_handle_map"),
        ({"debug_handle_map": "1" * 10_000}, "debug_handle_map"),
        ({"delegate_map": {"forward": {"0": {"name": 5}}}}, "delegate_map"),
        ({"edge": b" " * (257 << 20), "compression": zipfile.ZIP_DEFLATED}, "more than 268435456"),
        ({"edge": b" " * (8 << 20), "compression": zipfile.ZIP_DEFLATED}, "more than .* 60 times"),
    ],
)
def test_a_bad_record_is_one_clear_error(tmp_path: Path, members: dict[str, Any], said: str) -> None:
    path = forge(tmp_path / "bad.etrecord", **members)
    with pytest.raises(EtrecordError, match=f"bad.etrecord is not a readable ETRecord: .*{said}") as caught:
        etrecord.read(path)
    assert caught.value.hint and caught.value.exit_code == 2


def test_what_is_no_file_no_zip_or_no_pte_is_said(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").write_bytes(b"")
    for name in ("text", "empty", "none", "."):
        with pytest.raises(EtrecordError):
            etrecord.read(tmp_path / name)
        with pytest.raises(PteError):
            pte.read(tmp_path / name)


def test_a_record_with_strange_metadata_is_read(tmp_path: Path) -> None:
    strange = [node("-1"), node("9" * 30), node("x"), node(2, "<built-in function add>", "\n" * 1000), node(3, "", "")]
    ours = etrecord.read(
        forge(tmp_path / "a", edge=edge(*strange), debug_handle_map={"forward": {"-5": [2, 2, 3, 77], "9": []}})
    )
    listed = ours.source(-5)
    assert listed is not None and [found.debug_handle for found in listed.nodes] == [2, 3]


def test_corrupt_records_never_crash(tmp_path: Path) -> None:
    whole = forge(tmp_path / "whole", zipfile.ZIP_DEFLATED).read_bytes()
    _corrupt(whole, len(whole), tmp_path / "corrupt", etrecord.read, EtrecordError)


@pytest.mark.wide
def test_corrupt_programs_never_crash(toy: Toy, tmp_path: Path) -> None:
    def read(path: Path) -> None:
        program = pte.read(path)
        for method in program.methods:
            xnnpack_graph.graphs(program, method)

    whole = bytearray(toy("fp32").read_bytes())
    blobs = pte.read(toy("fp32")).methods[0].delegates
    # Only what is read is worth breaking: the program and the graphs at the head of the blobs, not the weights.
    reach = max(blob.offset for blob in blobs) + 2000
    _corrupt(whole, min(reach, len(whole)), tmp_path / "broken", read, PteError)
    offset = blobs[0].offset
    whole[offset + 10 : offset + 14] = struct.pack("<I", 0xFFFFFFF0)
    (tmp_path / "far").write_bytes(whole)
    with pytest.raises(PteError, match="a delegate's blob has"):
        read(tmp_path / "far")


def _corrupt(
    whole: bytes | bytearray, reach: int, path: Path, read: Callable[[Path], object], error: type[Exception]
) -> None:
    """Cut the file or overwrite parts of its first `reach` bytes many times; reading succeeds or raises `error`."""
    chance = random.Random(7)
    for round_ in range(150 if SAMPLED else 1000):
        data = bytearray(whole)
        if round_ % 10 == 0:
            del data[chance.randrange(len(data)) :]
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(max(1, min(reach, len(data)) - 4))
            data[at : at + 4] = chance.choice(
                [b"\xff\xff\xff\xff", b"\0\0\0\0", chance.randbytes(4), chance.randbytes(1)]
            )
        path.write_bytes(data)
        with contextlib.suppress(error):
            read(path)


def test_a_program_that_shares_its_tables_a_million_times_is_refused(tmp_path: Path) -> None:
    """Each of many plans is the same plan with many chains, each the same chain: quadratic, if one follows them."""
    count = 20_000
    # Root at 16 with a vtable at 8: field 1 (execution_plan) at +4. The plan and its chains reuse the layout by hand.
    plan_vtable = struct.pack("<HH", 18, 8) + struct.pack("<7H", 0, 0, 0, 0, 0, 4, 0)
    data = bytearray(struct.pack("<I4s", 16, b"ET12") + struct.pack("<HHHH", 8, 8, 0, 4))
    data += struct.pack("<iI", 8, 4) + struct.pack("<I", count)
    plans = len(data)
    vtable = plans + 4 * count
    plan = vtable + len(plan_vtable) + (-len(plan_vtable) % 4)
    chains = plan + 8
    data += b"".join(struct.pack("<I", plan - (plans + 4 * index)) for index in range(count))
    data += plan_vtable.ljust(plan - vtable, b"\0") + struct.pack("<iI", plan - vtable, 4) + struct.pack("<I", count)
    chain = chains + 4 + 4 * count + 4
    data += b"".join(struct.pack("<I", chain - (chains + 4 + 4 * index)) for index in range(count))
    data += struct.pack("<HH", 4, 4) + struct.pack("<i", 4)
    (tmp_path / "shared.pte").write_bytes(data)
    with pytest.raises(PteError, match="more than it has room for"):
        pte.read(tmp_path / "shared.pte")


def test_nodes_listed_again_and_again_are_refused(tmp_path: Path) -> None:
    same = [node(handle) for handle in (1, 2) for _ in range(2_000)]
    handles = {"forward": {str(index): [1, 2] for index in range(2_000)}}
    with pytest.raises(EtrecordError, match="list more than"):
        etrecord.read(forge(tmp_path / "a", edge=edge(*same), debug_handle_map=handles))


def test_reading_needs_neither_torch_nor_executorch() -> None:
    code = (
        "import sys, model_profiling.formats.etrecord, model_profiling.formats.pte.xnnpack_graph;"
        "sys.exit(' '.join({'torch', 'executorch', 'flatbuffers', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_a_small_record_cannot_cost_much_memory(tmp_path: Path) -> None:
    """Nodes that pack well: what a record may unpack to is bounded by its size, all its members together."""
    node = b'{"target": "t", "metadata": {"stack_trace": ""}},'
    bomb = b'{"graph_module": {"graph": {"nodes": [' + node * 2_000_000 + b"{}]}}}"
    path = forge(tmp_path / "bomb.etrecord", edge=bomb, compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 1 << 20 < len(bomb)
    with pytest.raises(EtrecordError, match="60 times its size"):
        etrecord.read(path)


def test_an_operator_that_writes_to_its_arguments_needs_no_place_in_the_record() -> None:
    """Functionalization wraps `llama::update_cache` in another operator, which has no debug handle."""

    def said(name: str, kind: str = KERNEL) -> str | None:
        method = Method("forward", (Instruction(0, 0, kind, name),), (), (), ())
        return _instructions(method, {}, EtrecordGraph({}, frozenset(), ()))

    assert said("llama::update_cache.out") is None and said("mine::scatter_rows.out") is None
    assert "unknown to the ETRecord" in (said("aten::mul.out") or "")
    assert "unknown to the ETRecord" in (said("XnnpackBackend", DELEGATE) or "")
