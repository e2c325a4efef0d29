"""The SME2 ExecuTorch Profiling Kit as a Python library; `docs/api.md` has the whole of it with examples.

    from model_profiling import api
    run = api.profile(module, example_inputs, dtype="fp16")   # export, run on and off, analyse
    run.categories, run.operators, run.latency, run.advice         # rows: .to_dicts(), .to_pandas()
    run.startup, run.memory                                        # until the first result; peak, growth, packing
    run.report("report.html")

Nothing here prints, ends the process or handles signals. What fails raises a `KitError`, with `message` and `hint`.
Importing this package imports neither torch nor executorch nor numpy: each function imports what it needs when called.

`out` is the directory for all files; without it they go to a temporary one that lives as long as the process.
`on_progress(label, done, total)` is called while work goes on, `total` 0 where that is not known; in a notebook a
progress bar is shown unless it is given. `runs`, `launches` and `budget_s` say how much to measure (timed executions
and processes per experiment, seconds for all of them); what is left out is chosen to fit the rest. `startup_launches`
are extra launches that measure start-up (0: none), with the .pte in the system's `page_cache` ("warm")
or dropped from it ("cold").
"""

import importlib
from typing import TYPE_CHECKING, Any

from model_profiling import __version__
from model_profiling.base.errors import GateError, InputError, InterruptionError, KitError, RunError, SetupError
from model_profiling.base.on_progress import OnProgress

if TYPE_CHECKING:
    from model_profiling.analysis.compare.runtime_comparison import RuntimeComparison
    from model_profiling.api.comparing import Compared, Comparisons
    from model_profiling.api.history_api import History
    from model_profiling.api.loaded_run import Run
    from model_profiling.api.records import Records
    from model_profiling.api.runtime_comparing import ComparedRuntimes
    from model_profiling.api.verbs import (
        compare,
        compare_runtimes,
        export,
        forecast,
        history,
        kernels,
        numerics,
        open_run,
        profile,
        roofs,
        run,
        sweep,
        tune,
        validate_forecast,
    )
    from model_profiling.export.request import ExportResult

__all__ = ["Compared", "ComparedRuntimes", "Comparisons", "ExportResult", "History", "Records", "Run"]
__all__ += ["GateError", "InputError", "InterruptionError", "KitError", "RunError", "SetupError"]
__all__ += ["OnProgress", "RuntimeComparison", "__version__", "compare", "compare_runtimes", "export", "forecast"]
__all__ += ["history", "kernels", "numerics", "open_run", "profile", "roofs", "run", "sweep", "tune"]
__all__ += ["validate_forecast"]

# What is imported when somebody asks for it: a command that reads a dump starts without all others. A name that is not
# here is a verb.
_OTHER = {
    "Compared": "api.comparing",
    "ComparedRuntimes": "api.runtime_comparing",
    "Comparisons": "api.comparing",
    "ExportResult": "export.request",
    "History": "api.history_api",
    "Records": "api.records",
    "Run": "api.loaded_run",
    "RuntimeComparison": "analysis.compare.runtime_comparison",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"model_profiling.{_OTHER.get(name, 'api.verbs')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
