"""What a config may say: the keys of an experiment and of a config, with their types and limits."""

from typing import Annotated, Literal

import msgspec

from model_profiling.store.run_directory import Phase

# What may become a folder name and part of a file name on any device.
NAME_PATTERN = r"^(\{accelerator\}|[A-Za-z0-9])(\{accelerator\}|[A-Za-z0-9_.-]){0,63}$(?!\n)"
FEATURE_PATTERN = r"^(\{accelerator\}|[A-Za-z0-9_.]+)$(?!\n)"
# Methods have Python names.
METHOD_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$(?!\n)"
# Stands for the CPU's best feature for the model's dtype, in names and in `disable_features` (see axes.py).
ACCELERATOR = "{accelerator}"
MOST_LAUNCHES = 1000
PageCache = Literal["warm", "cold"]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
# A path on this machine: whoever serves others finds them all by this mark in the schema (`named_paths`).
PATH_FORMAT = "path"
FilePath = Annotated[str, msgspec.Meta(extra_json_schema={"format": PATH_FORMAT})]
MOST_THREADS = 1024
# Each is a process that is alive while the others take their turns, on and off.
MOST_COUNTS = 16


class Experiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way to run the model. Without `runner_path` the kit's own runner is used."""

    name: Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
    runner_path: FilePath | None = None
    mode: str = "timing"
    # Timed executions in all, over all launches; null: as many as the budget allows.
    num_runs: Count | None = 10
    traced_runs: Count | None = None
    # How often a process is started for them; without a number, as often as the budget allows.
    launches: Annotated[int, msgspec.Meta(ge=1, le=MOST_LAUNCHES)] | None = None
    warmup: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 3
    # In a file also a list: then there is an experiment for each (axes.py).
    num_threads: Annotated[int, msgspec.Meta(ge=1, le=MOST_THREADS)] = 1
    disable_features: list[Annotated[str, msgspec.Meta(pattern=FEATURE_PATTERN)]] = []
    # How often a process is started only to see how it starts; 0: never; without a number, as the budget allows.
    startup_launches: Annotated[int, msgspec.Meta(ge=0, le=MOST_LAUNCHES)] | None = None
    # For these: whether the system has the .pte in its page cache, as after an earlier start, or must read it.
    page_cache: PageCache = "warm"
    # XNNPACK's memory for intermediate values: each delegate its own, one for the model, or one for all models; and
    # whether delegates share packed weights. Without a value, as ExecuTorch does it.
    workspace: Literal["disabled", "model", "global"] | None = None
    weight_cache: bool | None = None
    # The method of the program; without one, `forward`. Of a language model, the phase: then the kit chooses.
    method: Annotated[str, msgspec.Meta(pattern=METHOD_PATTERN)] | None = None
    phase: Phase | None = None
    # A command prefix for the runner, for example ["taskset", "80"].
    launch_prefix: list[Annotated[str, msgspec.Meta(min_length=1)]] = []
    # Android: the cores to run on, as a cluster's name or a hexadecimal mask.
    affinity: Annotated[str, msgspec.Meta(pattern=r"^(big|mid|little|(0x)?[0-9a-fA-F]{1,32})$")] | None = None
    # The ExecuTorch that the kit's runner is built against: a release such as "1.5.0", or the install prefix of a build
    # of one's own; without one, the installed release. In a file also a list: then there is an experiment for each
    # (axes.py).
    executorch: FilePath | None = None


class Analysis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which experiments to compare: [before, after]."""

    compare_pairs: list[tuple[str, str]] = []


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: FilePath
    output_root: FilePath
    experiments: Annotated[list[Experiment], msgspec.Meta(min_length=1)]
    analysis: Analysis = Analysis()
    inputs: list[FilePath] = []
    # What a language model reads: a .npy of int64 token ids; without one, random tokens.
    token_file: FilePath | None = None
    seed: int = 0
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 600.0
    # Seconds that experiments which are compared may take together; what is not numbered is chosen to fit.
    budget_s: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    # What this run is called among those of its output_root; without one, when it was made.
    label: str | None = None
    # What else is to be remembered of it, by key: `sme2-kit history` finds runs by them.
    labels: dict[str, str] = {}
    # Whether the .pte is kept with the run, so that later ones can be compared with it.
    keep_program: bool = True
    comment: str = ""
