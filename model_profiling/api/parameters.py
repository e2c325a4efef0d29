"""Every parameter of every verb, once: its type, what it says, how it is typed, and what text of it may become a path.

Functions of the API annotate their parameters with these; the command line, the tools of assistants and the reference
page are made from them. What only commands or tools have is here, too (see `definition.find`).
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from model_profiling.api.parameter import Parameter
from model_profiling.base.dtypes import ARITHMETICS, DEFAULT_DTYPE

if TYPE_CHECKING:
    import torch

    from model_profiling.api.loaded_run import Run
    from model_profiling.export.request import ExportResult
    from model_profiling.platforms.base import Platform

# The places of tables and limits, which are looked up where they are needed.
_PLATFORMS = "model_profiling.platforms.platform_table.NAMES"
_MOST_THREADS = "model_profiling.pipeline.config_types.MOST_THREADS"
_MOST_LAUNCHES = "model_profiling.pipeline.config_types.MOST_LAUNCHES"
_LEAST_SPEEDUP = "model_profiling.analysis.sme2.whatif.LEAST_SPEEDUP"
_MOST_SPEEDUP = "model_profiling.analysis.sme2.whatif.MOST_SPEEDUP"
_MOST_TOKENS = "model_profiling.store.run_directory.MOST_TOKENS"

OptionalPath = str | Path | None
# What several parameters share.
_COUNT, _LIMIT = Parameter("N", least=1), Parameter("PCT", least=0)
_INPUT, _WRITTEN = Parameter("FILE", "path"), Parameter("FILE", "path", written=True)
_RUN = Parameter("RUN", "run", earlier=("--run-dir",))

# The model, and how it is made.
_FROM_MODEL = (
    "a name that `sme2-kit models` lists, path/to/file.py:ClassName, or timm:, torchvision: or hf: and its name"
)
Model = Annotated["torch.nn.Module | str | Path", _FROM_MODEL, Parameter("MODEL", "model", earlier=("--model",))]
ModelOrProgram = Annotated[
    "torch.nn.Module | str | Path",
    f"{_FROM_MODEL}; or a .pte, which is not exported again",
    Parameter("MODEL", "model", earlier=("--model",)),
]
AnyModel = Annotated[
    "torch.nn.Module | str | Path",
    f"{_FROM_MODEL}; a .pte, or an .onnx or .tflite, which are taken as they are",
    Parameter("MODEL", "model"),
]
Program = Annotated["str | Path | ExportResult", "the .pte, as `export` names it", Parameter("MODEL.pte", "path")]
InputShapes = Annotated[
    Sequence[Sequence[int] | str],
    "a random input, for a model from a file that brings no example inputs: a shape (1,3,224,224), or dtype, shape "
    "and range of values without its end (int64:1,128:0..30522 are token ids for an embedding of 30522 rows; "
    "integers without a range are 0 and 1; bool:1,128); once for each input",
    Parameter("SHAPE", "text", flag="--input", earlier=("--input-shape",)),
]
Inputs = Annotated[
    Sequence[str | Path],
    "a file to run on: .npy or raw .bin (default: the export's samples, else ones); once for each input",
    Parameter("FILE", "path", flag="--input"),
]
Settings = Annotated[
    Mapping[str, Any] | None,
    "a setting of a registered model, or an argument of the class or function of a file: depth=12, bias=False, "
    "widths=[16,32], act=relu; may be repeated",
    Parameter("KEY=VALUE", "text", flag="--set"),
]
Checkpoint = Annotated[OptionalPath, "weights: .safetensors, or a state dict saved by torch", _INPUT]

# Where a verb writes.
_OUT = Parameter("DIR", "path", earlier=("--outdir", "--output-root", "--output", "--output-dir"))
_FILE = dataclasses.replace(_OUT, metavar="FILE", written=True, earlier=(*_OUT.earlier, "-o", "--parquet", "--csv"))

Out = Annotated[OptionalPath, "place of all results (default: out_<model>)", _OUT]
ArtifactsOut = Annotated[OptionalPath, "place of the .pte and its files (default: out_<model>/artifacts)", _OUT]
RunOut = Annotated[OptionalPath, "the run directory (default: out_<model>/runs/<platform>)", _OUT]
KernelsOut = Annotated[
    OptionalPath, "the run directory (default: out_<model>/runs/emulator, or <platform>_kernels)", _OUT
]
TuneOut = Annotated[OptionalPath, "place of all variants (default: out_<model>/tune)", _OUT]
SweepOut = Annotated[OptionalPath, "place of all results (default: what the file says, else out_<its name>)", _OUT]
ValidationOut = Annotated[OptionalPath, "place of all results (default: out_forecast_validation)", _OUT]
RoofsOut = Annotated[OptionalPath, "where to write (default: the kit's cache, by the CPU's name)", _FILE]
ReportOut = Annotated[OptionalPath, "where to write (default: report.md in the run directory)", _FILE]
GraphOut = Annotated[OptionalPath, "where to write (default: graph.html in the run directory; none of two)", _FILE]
HistoryOut = Annotated[
    OptionalPath, "trend: a page (.html, with .md and .json beside it), .svg or .png; export: .parquet or .csv", _FILE
]
ToolOut = Annotated[OptionalPath, "default: standard output", _FILE]
TimelinesOut = Annotated[OptionalPath, "write operator tables and the comparison there", _OUT]
KernelListOut = Annotated[OptionalPath, "a name that ends in .csv asks for CSV (default: stdout)", _FILE]
SkillOut = Annotated[OptionalPath, "the folder it wrote (default: out_<model>, here or in model_profiling)", _OUT]
SkillsOut = Annotated[
    OptionalPath,
    "default: .agents/skills here, and .claude/skills where .claude exists",
    Parameter("DIR", "path", earlier=("--to",)),
]

# How much to measure.
Runs = Annotated[int | None, "timed runs of each experiment or program, over all launches (default: chosen)", _COUNT]
Launches = Annotated[int | None, "processes started for each experiment or program (default: chosen)", _COUNT]
BudgetS = Annotated[
    float | None,
    "time for all runs; counts that are not given are chosen (default: 30)",
    Parameter("SECONDS", flag="--budget", least=1e-3),
]
Threads = Annotated[int | None, "threads of the model (default: 1)", Parameter("N", least=1, most=_MOST_THREADS)]
ThreadCounts = Annotated[
    int | Sequence[int] | None,
    "threads of the model (default: 1); several, as in 1,2,4, are run side by side and compared",
    Parameter("N[,N...]", least=1, most=_MOST_THREADS, commas=True),
]
StartupLaunches = Annotated[
    int | None,
    "extra launches that measure start-up; 0: none (default: 10, or as the budget allows; of two .pte none, unless "
    "start-up is judged)",
    Parameter("N", least=0, most=_MOST_LAUNCHES),
]
PageCache = Annotated[
    Literal["warm", "cold"],
    "for these: the .pte in the system's page cache, as after an earlier start, or dropped from it (default: warm)",
    Parameter(choices=("warm", "cold")),
]
Force = Annotated[bool, "do again what is there already; an existing run is kept"]
Timeout = Annotated[
    float, "give a runtime up that says nothing so long (default: 600)", Parameter("SECONDS", flag="--timeout")
]

# What is run, where, and with what.
Config = Annotated[OptionalPath, "a JSON config instead (see model_profiling/configs/)", Parameter("FILE", "config")]
PlatformName = Annotated[
    "str | Platform | None",
    "where to run (default: on this machine)",
    Parameter("PLATFORM", "machine", choices=_PLATFORMS, earlier=("machine",)),
]
Lock = Annotated[bool, "measure even while others measure on this machine (default: wait for them)"]
Only = Annotated[
    Sequence[str] | None,
    "only this experiment; may be repeated",
    Parameter("EXPERIMENT", "part", earlier=("experiments",)),
]
Method = Annotated[str | None, "the method to run (default: forward)", Parameter("NAME")]
_TOKENS = "language models"
Prefill = Annotated[
    int | None,
    "tokens of the prompt, read at once; 0: none (default: 128)",
    Parameter("N", group=_TOKENS, least=0, most=_MOST_TOKENS),
]
Decode = Annotated[
    int | None,
    "tokens after it, read one by one; 0: none (default: 32)",
    Parameter("N", group=_TOKENS, least=0, most=_MOST_TOKENS),
]
Depths = Annotated[
    Sequence[int],
    "tokens in the cache before decode; several show how it slows down (default: those of --prefill)",
    Parameter("N[,N...]", flag="--depth", group=_TOKENS, least=0, most=_MOST_TOKENS, commas=True),
]
Tokens = Annotated[
    OptionalPath, "what is read: a .npy of int64 token ids (default: random)", Parameter("FILE", "path", group=_TOKENS)
]
ExecuTorch = Annotated[
    str | Path | Sequence[str | Path] | None,
    "a release such as 1.5.0, whose wheel is fetched, or the install prefix of a build of your own (default: the "
    "installed release); several, as in 1.5.0,1.5.1, take turns and are compared",
    Parameter("VERSION|PATH[,...]", "release"),
]
BuildExecuTorch = Annotated[
    str | None,
    "a release such as 1.5.0, or the install prefix of a build of your own (default: the installed release)",
    Parameter("VERSION|PATH"),
]
Label = Annotated[
    str | None,
    "NAME: what this run is called, DIR@NAME for other commands (default: date and time); KEY=VALUE: what to find "
    "it by with `sme2-kit history`; may be repeated",
    Parameter("NAME|KEY=VALUE"),
]
Labels = Annotated[
    Mapping[str, str] | None,
    "what to find the run by later with `history`, each KEY=VALUE",
    Parameter("KEY=VALUE", "text", flag="--label"),
]
KeepProgram = Annotated[bool, "do not keep the .pte with the run for later comparisons", Parameter(flag="--no-history")]
Runtimes = Annotated[
    Sequence[str | Path],
    "measure the model in these, in turns with ExecuTorch on this machine: executorch, eager, compile "
    "(torch.compile), onnxruntime, litert, or files of your own (.onnx, .tflite)",
    Parameter("NAME[,NAME...]", "runtime"),
]
AnalyzePartial = Annotated[
    bool, "measure nothing; analyse what an interrupted run has measured so far, labelled as partial"
]
AnalysisOnly = Annotated[bool, "measure nothing; compute the results again"]
Demo = Annotated[
    bool, "instead of MODEL: toy_cnn, with a check of the set-up and of the results; takes only --dtype, --out, --label"
]
Tune = Annotated[bool, "then look for a faster program, as `tune` does, and keep it"]
MinSqnrDb = Annotated[
    float | None,
    "try every data type, and keep none whose outputs have less signal to noise than this against eager PyTorch in "
    "fp32 (default: 30, and right for its data type)",
    Parameter("DB", flag="--min-sqnr"),
]
Metric = Annotated[
    "Callable[[Any, list[Any]], float] | str | Path | None",
    "judge programs by your own metric, too: path/eval.py:score, called as score(predict, data), returns a number; "
    "predict(inputs) runs the program and answers as forward does",
    Parameter("FILE.py:NAME", "code"),
]
Data = Annotated[
    "Iterable[Any] | Callable[[], Iterable[Any]] | str | Path | None",
    "the samples of the metric: path/eval.py:samples, an iterable or a function that returns one, or a folder of .npz",
    Parameter("FILE.py:NAME|DIR", "code"),
]
MaxDrop = Annotated[
    float | None,
    "by how much the metric may be worse, with its whole interval, than in fp32 (tune, default: 0.01) or than in A "
    "(compare, which then ends with 1)",
    Parameter("X", least=0),
]
LowerIsBetter = Annotated[bool, "the metric is an error: what is larger is worse"]
WorstLayers = Annotated[
    int, "instead of all that: keep up to N of the layers that lose most accuracy in fp32", Parameter("N", least=0)
]
TuneTokens = Annotated[
    OptionalPath,
    "of a language model: a .npy of int64 ids; adds their perplexity",
    Parameter("FILE", "path", flag="--tokens"),
]
Trial = Annotated[
    bool, "do not export what would be recommended to see what it gives: remedies are predicted, and said to be"
]
Reproduce = Annotated[
    Path | None,
    "write a script that shows a wrong program with torch and executorch alone, for a report to them",
    Parameter("FILE.py", written=True),
]
LEVELS = ("neon", "sme1", "sme2")
Levels = Annotated[
    Sequence[str] | None,
    "only a CPU of this level; may be repeated (default: all, to compare their outputs)",
    Parameter(choices=LEVELS, flag="--level"),
]
MakeTable = Annotated[
    Path | None,
    "instead of a model: emulate all kinds of operators, and write the table of known kernels of this ExecuTorch, "
    "which every run is then compared with",
    Parameter("FILE", bare=Path(), written=True),
]

# Runs and what is asked of them.
RunDir = Annotated[Path, "a run directory (DIR@LABEL: an earlier run)", _RUN]
RunOrDump = Annotated[Path, "a run directory (DIR@LABEL: an earlier run), or an ETDump", _RUN]
RunsOrDumps = Annotated[Sequence[Path], "a run directory (DIR@LABEL: an earlier run), or .etdump files", _RUN]
ReportedRuns = Annotated[
    Sequence[Path], "a run directory (DIR@LABEL: an earlier run); several give one combined report", _RUN
]
ValidatedRun = Annotated[
    Sequence[Path],
    "the run directory, or DIR@LABEL; then reports or pictures elsewhere that should be of this run",
    Parameter("RUN", "run", earlier=("--results", "--run-dir")),
]
CheckedFiles = Annotated[
    Sequence[Path], "reports or pictures elsewhere that should be of this run, to check too", _INPUT
]
_SIDE = "run directory or DIR@LABEL, either with :EXPERIMENT or /EXPERIMENT, .etdump, or .pte to be measured now"
Before = Annotated["str | Path | Run | ExportResult", f"{_SIDE}; with --runtimes a model", Parameter("A", "side")]
After = Annotated[
    "str | Path | Run | ExportResult | None",
    f"{_SIDE}; of two whole runs, experiments of equal name are compared; none with two --executorch",
    Parameter("B", "side"),
]
OtherGraph = Annotated[
    str,
    "show the graph of both as one, RUN before and B now; each is what compare takes, two .pte among it",
    Parameter("B", "side"),
]
_PERCENT = "exit 1 if the whole 95 % interval is above the limit"
FailIfSlower = Annotated[float | None, f"{_PERCENT}: B is slower by more than PCT percent", _LIMIT]
FailIfStartupSlower = Annotated[
    float | None, "the same of the time from the start of a process to its first result", _LIMIT
]
FailIfMemoryAbove = Annotated[float | None, "the same of peak memory: B takes PCT percent more", _LIMIT]
Strict = Annotated[bool, "with a limit: also fail when that cannot be ruled out"]
AnyBaseline = Annotated[bool, "with a limit: accept a baseline A of another model, machine or setting"]
Junit = Annotated[Path | None, "write the result as JUnit XML, for CI systems", _WRITTEN]
Summary = Annotated[Path | None, "append a Markdown job summary, e.g. to $GITHUB_STEP_SUMMARY", _WRITTEN]
Categories = Annotated[
    OptionalPath, "a JSON file that extends or overrides the category table (`builtin`: the default)", _INPUT
]
WhatIf = Annotated[
    Mapping[str, float],
    "predict the time if categories or operators became so many times faster, e.g. CONV=3; may be repeated",
    Parameter("NAME=SPEEDUP", "text", flag="--what-if", least=_LEAST_SPEEDUP, most=_MOST_SPEEDUP),
]
Emulated = Annotated[
    "str | Path | Run | None",
    "the same model's kernels as proof (sme2-kit kernels), instead of the table of known kernels",
    Parameter("EMULATED", "run"),
]
Forecast = Annotated[
    Path | None,
    "also show what SME2 would change, from the kernels of an emulated run of the same model (sme2-kit kernels)",
    Parameter("EMULATED", "run", earlier=("forecast_from",)),
]
Measured = Annotated[
    "torch.nn.Module | str | Path | Run",
    "a run measured without SME2; or a .pte or a model, which is measured now",
    Parameter("RUN|MODEL", "run"),
]
Target = Annotated[
    OptionalPath,
    "the machine with SME2: a name that `sme2-kit targets` lists (default: apple_m4), all of them, or a file that "
    "`sme2-kit roofs` wrote on one",
    Parameter("NAME", "target"),
]
Speedups = Annotated[
    Sequence[float] | None,
    "assume this speedup of all operators that SME2 runs, instead of a target; may be repeated",
    Parameter("N", flag="--speedup"),
]
Experiment = Annotated[
    Sequence[str],
    "only this experiment and what it is compared with, in report_NAME.md; may be repeated",
    Parameter("NAME"),
]
Png = Annotated[
    str | None,
    "write only this picture, at print resolution",
    Parameter(choices=("shift", "modules", "latency", "operators", "threads", "roofline")),
]
Theme = Annotated[str | None, "colours of --png (default: light)", Parameter(choices=("light", "dark"))]
Width = Annotated[int | None, "width of --png in pixels, before scaling (default: 760)", Parameter("N")]
ModelExplorer = Annotated[
    bool, "write only what Google's Model Explorer shows: of a run overlays and a graph, of two into the folder --out"
]
Title = Annotated[str | None, "title of the report (default: the model and the platform)", Parameter("T", "text")]
Open = Annotated[bool, "write the page and show it in a browser"]

# Runs over time.
HistoryAction = Annotated[
    str,
    "what to ask, or to do (default: list)",
    Parameter(choices=("list", "runs", "trend", "regressions", "top", "coverage", "export", "bisect", "prune")),
]
HistoryQuestion = Annotated[
    str,
    "list: all runs; trend: latency over time of one model; regressions: steps of all models; top: operators over "
    "all models' latest runs; coverage: how much of each model runs on SME2",
    Parameter(choices=("list", "trend", "regressions", "top", "coverage")),
]
HistoryModel = Annotated[
    str,
    "of trend and bisect: the model, as `list` names it; of runs: the run directory (default: all out_*/runs)",
    Parameter("MODEL|DIR"),
]
_WHICH = "which runs"
Root = Annotated[
    Sequence[Path], "a folder to look in; may be repeated (default: here)", Parameter("DIR", "path", group=_WHICH)
]
OfModel = Annotated[
    str | None, "only this model; * stands for anything", Parameter("NAME", flag="--model", group=_WHICH)
]
OfDtype = Annotated[str | None, "only this data type", Parameter("NAME", group=_WHICH)]
OfPlatform = Annotated[str | None, "only runs of this platform, such as linux or android", Parameter("NAME")]
OfLabels = Annotated[
    Mapping[str, str] | None,
    "only with this label; also commit, branch",
    Parameter("KEY=VALUE", "text", flag="--label", group=_WHICH),
]
Since = Annotated[
    str | None, "only from this day on, or of the last days (d), hours (h)", Parameter("DATE|90d", group=_WHICH)
]
OfExperiment = Annotated[
    str | None, "trend, regressions, bisect: only this experiment", Parameter("NAME", group=_WHICH)
]
Most = Annotated[int | None, "how many entries to show", Parameter("N", least=1, most=1000)]
Confirm = Annotated[bool, "regressions: compare the programs around each candidate, side by side"]
Again = Annotated[bool, "confirm, bisect: measure also what was compared before"]
Below = Annotated[float | None, "coverage: only models with less on SME2", Parameter("PCT")]
Start = Annotated[str | None, "bisect: the first program, by label or commit", Parameter("REF", flag="--from")]
End = Annotated[str | None, "bisect: the last one", Parameter("REF", flag="--to")]
OlderThan = Annotated[str | None, "prune: earlier runs before this time", Parameter("90d")]
KeepLast = Annotated[int | None, "prune: keep so many runs of each kind", Parameter("N")]
Yes = Annotated[bool, "remove what is listed (default: only say what would go)"]
Outputs = Annotated[bool, "also the folders out_* here that hold results"]
Remove = Annotated[str | None, "runs: remove this earlier or interrupted run of DIR", Parameter("LABEL")]

# The machine.
RoofsAction = Annotated[str, "default: measure", Parameter(choices=("measure", "show"))]
RoofsFile = Annotated[
    str, "with show: a CPU's name, or a file (default: this machine's CPU)", Parameter("CPU|FILE", "path")
]
Dtypes = Annotated[Sequence[str], "may be repeated (default: all)", Parameter(choices=ARITHMETICS, flag="--dtype")]
ValidatedDtypes = Annotated[
    Sequence[str], "default: all", Parameter("DTYPE", flag="--dtypes", choices=ARITHMETICS, words="+")
]
RoofThreads = Annotated[Sequence[int], "may be repeated (default: 1)", _COUNT]
Picture = Annotated[Path | None, "also draw the rates by shape: .png or .svg", Parameter("FILE", written=True)]
Models = Annotated[
    Sequence[str | Path],
    "names, path/to/file.py:ClassName, or .pte (default: four small ones)",
    Parameter("MODEL", flag="--models", words="+"),
]
Essentials = Annotated[bool, "check only what exporting and running here need"]
Upstream = Annotated[bool, "show what the kit relies on and nobody promised, and what of it holds here"]
Zoo = Annotated[
    Sequence[str],
    "list those of timm, torchvision or hf (transformers) instead whose names fit: timm 'mobilenet*'",
    Parameter(words=2),
]
BuildTarget = Annotated[
    str | None,
    "linux-x86_64, linux-aarch64 or macos-arm64; default: this machine",
    Parameter("TARGET", flag="--target"),
]
TargetName = Annotated[str, "one of them, or a file like theirs", Parameter("NAME|FILE")]
NewModel = Annotated[str, "lower case, as a Python package: my_model", Parameter("NAME")]
SchemaName = Annotated[str, "config, sweep-file or a `kind`; without: list them", Parameter("NAME")]
Shell = Annotated[str, "bash, zsh, fish", Parameter("SHELL", choices=("bash", "zsh", "fish"))]
Workspace = Annotated[Path | None, "no path may leave it (default: .)", Parameter("DIR")]
SkillName = Annotated[str, "for example 03_export_model", Parameter("NAME", "skill")]
SkillModel = Annotated[
    str | None, "the model it worked on (default: toy_cnn, or the skill's own)", Parameter("NAME", flag="--model")
]
SkillDtype = Annotated[
    str | None, f"data type of the export (default: {DEFAULT_DTYPE})", Parameter("DTYPE", flag="--dtype")
]
SkillRun = Annotated[Sequence[Path], "its run directory (default: <out>/runs/<this machine's platform>)", _RUN]

# Sweeps.
SweepFile = Annotated["str | Path | Mapping[str, Any]", "what to sweep over", Parameter("FILE.json", "path")]
Cells = Annotated[Sequence[str], "only cells with this in their names; repeatable", Parameter("TEXT")]
Fresh = Annotated[bool, "measure all again; earlier results are kept and compared"]
DryRun = Annotated[bool, "list the jobs and which are finished; start nothing"]
Ray = Annotated[
    str | None, "run the jobs on a Ray cluster (HOST:PORT, or auto for one on this machine)", Parameter("ADDRESS")
]

# The tools of the learning path.
Dump = Annotated[
    Path, "an ETDump, or a timeline CSV (*_all_runs_timeline.csv)", Parameter("FILE", "path", earlier=("--etdump",))
]
TimelineCsv = Annotated[Path | None, "a timeline CSV instead (*_all_runs_timeline.csv)", _INPUT]
FirstTimeline = Annotated[Path, "a *_all_runs_timeline.csv", Parameter("A", "path", flag="--timeline-csv")]
OtherTimeline = Annotated[Path | None, "another timeline CSV, to compare with the first", Parameter("B", "path")]
FirstName = Annotated[
    str | None, "what to call the first CSV (default: A)", Parameter("NAME", flag="--name", earlier=("--name1",))
]
SecondName = Annotated[str | None, "what to call the second (default: B)", Parameter("NAME")]
GraphProgram = Annotated[
    Path | None, "the .pte with the graph (default: the model of the run directory)", Parameter("FILE.pte", "path")
]
RunOrTimeline = Annotated[
    str, "run directory, DIR:EXPERIMENT, .etdump or timeline CSV", Parameter("PATH", "side", earlier=("--run-dir",))
]
# NAME_robust_stats.json goes there.
OutputDir = Annotated[Path | None, Parameter("DIR", "path")]
StatsOut = Annotated[Path | None, "default: standard output", Parameter("FILE", "path", earlier=("--output", "-o"))]
TraceLog = Annotated[Path, "the log of a trace-enabled runner", Parameter("LOG", "path", earlier=("--xnntrace",))]
Sources = Annotated[
    Sequence[Path],
    "trace logs, kernel CSVs of xnntrace_to_kernels.py, or one run directory",
    Parameter("SOURCE", "path"),
]
OnLog = Annotated[Path | None, "the log or CSV with SME2", Parameter("FILE", "path", flag="--sme2-on")]
OffLog = Annotated[Path | None, "the log or CSV without", Parameter("FILE", "path", flag="--sme2-off")]

# How a command answers.
Json = Annotated[bool, "print the answer as JSON"]
Quiet = Annotated[bool, "print only where the results are"]
Verbose = Annotated[bool, "also print what the work consists of: of an export, what torch and ExecuTorch say"]
Html = Annotated[bool, "write the page, too (report.html)"]
NoHtml = Annotated[bool, "do not write the page (report.html)", Parameter(flag="--no-html")]
ComparePage = Annotated[
    str | None,
    "also write a page: the verdict, what the difference consists of, modules, both timelines (default: "
    "compare_A_B.html in this directory)",
    Parameter("FILE", flag="--html", bare=""),
]
