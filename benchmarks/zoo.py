"""Models of timm, torchvision and transformers by name: exported by the kit and by ExecuTorch alone; makes docs/zoo.md.

    python -m benchmarks.zoo [--work DIR] [--minutes M] [--names timm:resnet10t,hf:BertModel]   # what is missing
    python -m benchmarks.zoo --render                                                     # write the page, run nothing

Each export is a process of its own, with random weights, forked from one that has exported a small model in both ways:
its seconds, of the processor, are without imports and without what torch does the first time. Results are kept beside
the page: a second call goes on where the first ended.
"""

import argparse
import contextlib
import importlib.metadata
import itertools
import os
import resource
import signal
import statistics
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.validate_forecast import replace_part
from model_profiling.base import files
from model_profiling.base.printing import tell

ROOT = Path(__file__).parents[1]
PAGE, RECORD = ROOT / "docs" / "zoo.md", ROOT / "docs" / "zoo.json"
PART = "record"
NAMES = {
    "timm": "mobilenetv4_conv_small_050 mobilenetv3_small_050 resnet10t resnet18 test_convnext convnext_atto "
    "convnextv2_atto efficientnet_b0 efficientnet_lite0 tinynet_e ghostnet_050 lcnet_050 fbnetv3_b repvgg_a0 "
    "regnetx_002 regnety_002 regnetz_005 vit_tiny_patch16_224 deit_tiny_patch16_224 swin_tiny_patch4_window7_224 "
    "mobilevit_xxs mobilevitv2_050 efficientvit_b0 efficientvit_m0 edgenext_xx_small fastvit_t8 repvit_m0_9 "
    "mobileone_s0 inception_next_atto poolformerv2_s12 xcit_nano_12_p16_224 cait_xxs24_224 levit_128s pit_ti_224 "
    "coat_tiny crossvit_tiny_240 tiny_vit_5m_224 efficientformer_l1 efficientformerv2_s0 mixer_s32_224 gmlp_ti16_224 "
    "resmlp_12_224 starnet_s1 hgnetv2_b0 shvit_s1 densenet121 dla34 res2net50_14w_8s hrnet_w18_small",
    "torchvision": "alexnet squeezenet1_1 shufflenet_v2_x0_5 mobilenet_v2 mobilenet_v3_small mnasnet0_5 googlenet "
    "resnet18 regnet_y_400mf efficientnet_b0 convnext_tiny vit_b_32 swin_t vgg11 densenet121 inception_v3 "
    "lraspp_mobilenet_v3_large deeplabv3_mobilenet_v3_large fcn_resnet50 r3d_18 s3d raft_small "
    "ssdlite320_mobilenet_v3_large/head ssd300_vgg16/head fasterrcnn_mobilenet_v3_large_320_fpn/backbone "
    "retinanet_resnet50_fpn/head",
    "hf": "BertModel DistilBertModel RobertaModel AlbertModel ElectraModel MobileBertModel DebertaV2Model MPNetModel "
    "FunnelModel ConvBertModel SqueezeBertModel XLMRobertaModel CamembertModel GPT2Model OPTModel GPTNeoXModel "
    "LlamaModel Qwen2Model MistralModel GemmaModel PhiModel T5Model BartModel MarianModel PegasusModel ViTModel "
    "DeiTModel BeitModel SwinModel ConvNextModel SegformerModel MobileViTModel PoolFormerModel ResNetModel "
    "Dinov2Model LevitModel CLIPModel SiglipModel Wav2Vec2Model HubertModel WhisperModel "
    "DepthAnythingForDepthEstimation YolosModel DetrModel",
}  # fmt: skip
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_WAITING = 15  # the minutes that a minute of the processor may take


class ZooResult(msgspec.Struct, frozen=True):
    """What became of one name; `failed` says why there is no program, and `stock` what ExecuTorch alone says.

    `sme2` is the share of the matrix operators' work for which the table of known kernels has SME2 kernels.
    """

    name: str
    failed: str = ""
    verified: str = ""
    delegates: int = 0
    portable: int = 0
    sme2: float | None = None
    auto_delegates: int | None = None
    auto_portable: int | None = None
    seconds: float = 0.0
    stock: str = ""
    stock_seconds: float = 0.0


def _forked(work: Callable[[], int], minutes: float, said: Path) -> tuple[int, float]:
    """Do some work in a process of its own; return how it ended, and its seconds of the processor."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (round(60 * minutes), round(60 * minutes) + 9))
            signal.alarm(round(60 * minutes * _WAITING))
            for descriptor, path in ((1, said), (2, Path(f"{said}.err"))):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
            code = work()
        except BaseException:  # noqa: BLE001 - as at the top of a process
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status, used = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime


def _kit(words: list[str]) -> int:
    from model_profiling.cli.main import main as kit

    return kit(words)


def _stock(model: str, until: str) -> int:
    """Export as ExecuTorch's documentation does; the kit only makes the model and its inputs."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    from model_profiling.models.loading import LoadOptions, load_model

    made = load_model(model, options=LoadOptions((), (("until", until),) if until else ()))
    with torch.no_grad():
        program = torch.export.export(made.module.eval(), *made.call)
    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    Path(os.devnull).write_bytes(lowered.to_executorch().buffer)
    return 0


def tried(name: str, work: Path, minutes: float) -> ZooResult:
    """Export a model in both ways and with `--rewrite auto`."""
    with files.scratch_directory("zoo-", work) as home:
        return _tried(name, home, work / "said", minutes)


def _tried(name: str, home: Path, said: Path, minutes: float) -> ZooResult:
    model, _, part = name.partition("/") if not name.startswith("hf:") else (name, "", "")
    words = ["export", model, *(["--until", part] if part else []), "--dtype", "fp32", "--json", "--force"]
    code, seconds = _forked(lambda: _kit([*words, "--out", str(home)]), minutes, said)
    failed = _last(said, code, minutes) if code else ""
    stock_code, stock_seconds = _forked(lambda: _stock(model, part), minutes, Path(f"{said}.stock"))
    stock = _last(Path(f"{said}.stock"), stock_code, minutes) if stock_code else ""
    if failed:
        return ZooResult(name, failed, seconds=seconds, stock=stock, stock_seconds=stock_seconds)
    answer = msgspec.json.decode(said.read_bytes())
    record = answer["record"]
    found = ZooResult(
        name,
        verified=_verified(record["verification"]),
        delegates=record["delegation"]["delegate_calls"],
        portable=record["delegation"]["portable_nodes"],
        sme2=_sme2(Path(answer["paths"]["pte"])),
        seconds=seconds,
        stock=stock,
        stock_seconds=stock_seconds,
    )
    code, _ = _forked(lambda: _kit([*words, "--rewrite", "auto", "--out", str(home)]), minutes, said)
    if code:
        return found
    after = msgspec.json.decode(said.read_bytes())["record"]["delegation"]
    return msgspec.structs.replace(found, auto_delegates=after["delegate_calls"], auto_portable=after["portable_nodes"])


def _sme2(program: Path) -> float | None:
    """Return which part of the delegated matrix operators' work has SME2 kernels; None where that is not known."""
    from model_profiling.analysis.graph.operator_work import matrix_product
    from model_profiling.analysis.sme2.kernel_table import known_table, node_kind
    from model_profiling.formats import pte
    from model_profiling.formats.pte import xnnpack_graph

    read, table = pte.read(program), known_table(importlib.metadata.version("executorch"))
    graphs = xnnpack_graph.graphs(read, read.methods[0]).values()
    nodes = [(matrix_product(node), kind) for graph in graphs for node in graph.nodes if (kind := node_kind(node))]
    known = [(each.multiply_accumulates, table.find(kind)) for each, kind in nodes if each] if table else []
    if not known or any(row is None for _, row in known):
        return None
    return sum(work for work, row in known if row and row.on_sme2) / sum(work for work, _ in known)


def _verified(found: dict[str, Any] | None) -> str:
    if found is None or found["status"] != "verified":
        return f"no: {found['reason'] if found else 'not executed'}"
    if not found.get("verdict"):
        return f"not tested: {found['reason']}"
    return f"{found['sqnr_db']:.0f} dB" if found.get("sqnr_db") is not None else "exact"


def _last(said: Path, code: int, minutes: float) -> str:
    if code in (-signal.SIGXCPU, -signal.SIGALRM):
        return f"took more than {minutes:g} minutes"
    if code == -signal.SIGKILL:
        return "killed: there was not enough memory"
    text = Path(f"{said}.err").read_text()
    lines = [line for line in text.splitlines() if line.startswith("error: ")] or text.strip().splitlines()[-1:]
    return (lines or ["no message"])[0].removeprefix("error: ")[:160].replace("|", "/")


def page(results: list[ZooResult]) -> str:
    """Return the tables of the page."""
    good = [each for each in results if not each.failed]
    alone = [each for each in results if each.failed and not each.stock]
    ratios = [each.seconds / each.stock_seconds for each in good if each.stock_seconds and not each.stock]
    middle = f"; median of the kit's processor time to stock's: {statistics.median(ratios):.2f}" if ratios else ""
    listed = sum(len(names.split()) for names in NAMES.values())
    lines = [
        f"{len(results)} of {listed} names were tried: {len(good)} exported, {len(results) - len(good)} not, "
        f"of which stock ExecuTorch exports {len(alone)}{middle}.",
        "",
        "| model | outputs against eager | delegates, portable | with `auto` | work on SME2 | seconds, stock |",
        "|---|---|---|---|---|---|",
    ]
    for each in good:
        auto = "-" if each.auto_delegates is None else f"{each.auto_delegates}, {each.auto_portable}"
        stock = "fails" if each.stock else f"{each.stock_seconds:.0f}"
        counts = f"{each.delegates}, {each.portable}"
        sme2 = "unknown" if each.sme2 is None else f"{each.sme2:.0%}"
        lines.append(f"| `{each.name}` | {each.verified} | {counts} | {auto} | {sme2} | {each.seconds:.0f}, {stock} |")
    if len(good) == len(results):
        return "\n".join(lines)
    lines += ["", "Not exported:", "", "| model | what the kit says | stock ExecuTorch |", "|---|---|---|"]
    lines += [f"| `{each.name}` | {each.failed} | {each.stock or 'exports it'} |" for each in results if each.failed]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("out_zoo"))
    parser.add_argument("--minutes", type=float, default=4.0, help="of the processor, for each export")
    parser.add_argument("--names", help="only these, with commas between them")
    parser.add_argument("--render", action="store_true")
    args = parser.parse_args()
    if not args.render and {name: os.environ.get(name) for name in _ONE_THREAD} != _ONE_THREAD:
        # A thread would not be there in a child, which would wait for it; they are made by imports.
        again = [sys.executable, "-m", "benchmarks.zoo", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, **_ONE_THREAD})
    of_zoos = [[f"{zoo}:{name}" for name in names.split()] for zoo, names in NAMES.items()]
    every = [name for names in itertools.zip_longest(*of_zoos) for name in names if name]
    known = {each.name: each for each in _read()}
    wanted = args.names.split(",") if args.names else [name for name in every if name not in known]
    asked = [] if args.render else wanted
    if asked:
        _warm_up(args.work)
    for name in asked:
        each = known[name] = tried(name, args.work, args.minutes)
        tell(f"{name}: {each.failed or each.verified} ({each.seconds:.0f} s, stock {each.stock_seconds:.0f} s)\n")
        files.write_json(RECORD, [known[key] for key in sorted(known)])
    files.write_text(PAGE, replace_part(PAGE.read_text(), PART, page([known[key] for key in sorted(known)])))


def _warm_up(work: Path) -> None:
    """Import what exports take, and let torch do what it does the first time."""
    import transformers
    from tqdm import tqdm

    tqdm.monitor_interval = 0  # it has a thread
    transformers.logging.set_verbosity_error()
    work.mkdir(parents=True, exist_ok=True)
    with (work / "warm.log").open("w") as log, contextlib.redirect_stdout(log):
        _kit(["export", "timm:test_resnet", "--dtype", "fp32", "--force", "--out", str(work / "warm")])
    _stock("timm:test_resnet", "")


def _read() -> list[ZooResult]:
    return files.read_json(RECORD, list[ZooResult], "record of the zoo") if RECORD.is_file() else []


if __name__ == "__main__":
    main()
