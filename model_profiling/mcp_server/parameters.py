"""What tools may be asked for: each parameter's type and its description, once for all tools that take it."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AliasChoices, Field

from model_profiling.base import dtypes
from model_profiling.pipeline.config_types import MOST_COUNTS, MOST_THREADS
from model_profiling.pipeline.phase_experiments import MOST_DEPTHS
from model_profiling.platforms.platform_table import EXAMPLES, HERE, NAMES
from model_profiling.runner.sdk_choice import MOST_CHOICES
from model_profiling.store.run_directory import MOST_TOKENS

# Marks text that becomes no part of a path; `boundary.py` refuses all other text that leads out of the workspace.
TEXT = "text"
if TYPE_CHECKING:
    Dtype = str
    PlatformName = str
    PlatformHere = str
else:
    # Of an export that exists; tools that make one have the parameters of export_options.py.
    Dtype = Annotated[Literal[dtypes.NAMES], Field(description="Data type of the export.")]
    PlatformName, PlatformHere = Literal[NAMES], Literal[HERE]
Setting = bool | int | float | str | list[int | float | str]
Model = Annotated[
    str,
    Field(
        description="A name that `models` lists, or path/to/file.py:ClassName in the workspace. The file is run: it "
        "must be code you trust.",
        min_length=1,
    ),
]
InputShapes = Annotated[
    list[str] | None,
    Field(
        description="Each input in order, for a class without example inputs: a shape, with a data type and a range of "
        'values if need be: ["1,3,224,224"], ["int64:1,128:0..30522", "bool:1,128"]. Values are random.'
    ),
]
Settings = Annotated[
    dict[str, Setting] | None,
    Field(description='Settings of the model, as arguments of its class: {"resolution": 512, "bias": false}.'),
    TEXT,
]
Checkpoint = Annotated[
    str | None,
    Field(
        description="File with weights: .safetensors, or a state dict saved by torch. Without it, weights are random."
    ),
]
# Where a tool writes. The other names are earlier ones.
_OUT = AliasChoices("out", "outdir", "output_root")
ArtifactsDir = Annotated[
    str | None,
    Field(
        validation_alias=_OUT,
        description="Directory for the .pte and its files (default: out_<model>/artifacts). A .pte of the same model "
        "and dtype in it is replaced: give another directory to keep both.",
    ),
]
Pte = Annotated[str, Field(description="The .pte, as `export` answers it in `pte`.", min_length=1)]
Machine = Annotated[
    str | None,
    Field(
        description=f"Another machine to measure on: {', '.join(EXAMPLES)}. A host goes by its name in the user's "
        "ssh_config."
    ),
]
RunOut = Annotated[
    str | None,
    Field(validation_alias=_OUT, description="Run directory to write (default: out_<model>/runs/<platform>)."),
]
TuneOut = Annotated[
    str | None, Field(validation_alias=_OUT, description="Directory for all variants (default: out_<model>/tune).")
]
RunDir = Annotated[
    str,
    Field(
        description="A run directory, as `run` answers it in `run_dir`, or DIR@LABEL for an earlier run of it.",
        min_length=1,
    ),
]
RunOrDump = Annotated[str, Field(description="A run directory, DIR@LABEL, or an .etdump file.", min_length=1)]
Side = Annotated[
    str,
    Field(
        description="A run directory, DIR@LABEL, an .etdump, or a .pte, which is measured now. Two .pte are measured "
        "interleaved, which is the most precise comparison.",
        min_length=1,
    ),
]
OtherSide = Annotated[
    str | None,
    Field(description="The same; leave it out to compare one .pte under two versions of ExecuTorch.", min_length=1),
]
SideExperiment = Annotated[
    str | None, Field(description="Only this experiment of the run directory (default: those that both sides have).")
]
Runs = Annotated[
    int | None, Field(description="Timed executions per experiment (default: as many as fit the budget).", ge=1)
]
Launches = Annotated[int | None, Field(description="Processes started per experiment (default: chosen).", ge=1)]
Budget = Annotated[float | None, Field(description="Seconds for all executions (default: 30).", gt=0)]
Threads = Annotated[int | None, Field(description="Threads of each execution (default: 1).", ge=1, le=MOST_THREADS)]
_Threads = Annotated[int, Field(ge=1, le=MOST_THREADS)]
ThreadCounts = Annotated[
    _Threads | Annotated[list[_Threads], Field(min_length=1, max_length=MOST_COUNTS)] | None,
    Field(
        description="Threads of each execution (default: 1). Several, as in [1, 2, 4], are measured interleaved, on "
        "and off, within one budget; `scaling` of the answer compares them."
    ),
]
StartupLaunches = Annotated[
    int | None,
    Field(
        description="Extra launches per experiment that measure start-up: load, packing, first inference. 0: "
        "none (default: 10, or as the budget allows; of `compare` none, unless start-up is judged).",
        ge=0,
        le=1000,
    ),
]
PageCache = Annotated[
    Literal["warm", "cold"] | None,
    Field(description="For these: the .pte in the system's page cache, or dropped from it (default: warm)."),
]
Prefill = Annotated[
    int | None,
    Field(
        description="Language models: tokens of the prompt, read in one execution. 0: no prefill (default: 128).",
        ge=0,
        le=MOST_TOKENS,
    ),
]
Decode = Annotated[
    int | None,
    Field(
        description="Language models: tokens read one by one after it. 0: no decode (default: 32).",
        ge=0,
        le=MOST_TOKENS,
    ),
]
Depths = Annotated[
    list[Annotated[int, Field(ge=0, le=MOST_TOKENS)]] | None,
    Field(
        description="Language models: tokens in the cache before decode (default: those of prefill). Several, as in "
        "[0, 128, 1024], show how decode slows down.",
        min_length=1,
        max_length=MOST_DEPTHS,
    ),
]
_Executorch = Annotated[str, Field(min_length=1)]
Executorch = Annotated[
    list[_Executorch] | None,
    Field(
        description="ExecuTorch to run with instead of the installed release: releases such as 1.5.0, or install "
        "prefixes of builds in the workspace. Several are measured interleaved, and each is compared with the next.",
        min_length=1,
        max_length=MOST_CHOICES,
    ),
]
ComparedExecutorch = Annotated[
    list[_Executorch] | None,
    Field(
        description="Releases such as 1.5.0, or install prefixes of builds in the workspace: two, before and after, "
        "for one .pte; one for two .pte.",
        min_length=1,
        max_length=2,
    ),
]
Method = Annotated[str | None, Field(description="Method of the program to run (default: forward).", min_length=1)]
Label = Annotated[
    str | None, Field(description="Name of this run among those of its directory: DIR@LABEL names it later.")
]
Labels = Annotated[
    dict[str, str] | None,
    Field(description='What to find the run by later (tool `history`): {"experiment": "new-head"}.'),
    TEXT,
]
Force = Annotated[bool, Field(description="Measure again although the results exist. The earlier run is kept.")]
Html = Annotated[bool, Field(description="Also write report.html, a page that needs no other file.")]
