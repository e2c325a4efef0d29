"""torch.compile with its defaults (Inductor). Compiling is a part of loading, and so of start-up."""

import os

import torch

from model_profiling.runtimes import eager
from model_profiling.runtimes.program import LaunchOptions


def load(options: LaunchOptions) -> eager.TorchProgram:
    """Build the model and compile it by calling it once; what was compiled stays for the next launch of it."""
    if options.cache is not None:
        # Inductor reads it when it compiles.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(options.cache.absolute())
    program = eager.load(options)
    program.module = torch.compile(program.module)
    program.backends = ["inductor"]
    program.settings |= {"compile": "torch.compile(module), backend inductor, default mode"}
    program.run()
    return program
