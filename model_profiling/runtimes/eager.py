"""PyTorch, eager or compiled: the model itself, built again as the export built it, with the same weights."""

import os
from pathlib import Path
from typing import Any

import torch

from model_profiling.base import files
from model_profiling.base.directories import working_directory
from model_profiling.base.dtypes import dtype_of
from model_profiling.export.request import recorded_in
from model_profiling.models.loading import load_model
from model_profiling.runner.protocol import Exit
from model_profiling.runtimes.program import LaunchOptions, LoadedProgram, ProcessError, WantedInput, arranged_inputs
from model_profiling.store.artifacts import ExportMeta, ExportPaths, ExportRecord
from model_profiling.upstream.captured_graphs import Call, tensors_of, with_tensors


class TorchProgram(LoadedProgram):
    """A module and what it is called with."""

    def __init__(self, module: Any, call: Call, threads: int) -> None:
        self.module = module
        self.backends = ["torch"]
        self._positional, self._keywords = call
        self._answer: Any = None
        # For as long as this object lives.
        self._mode = torch.inference_mode(True)
        self._mode.__enter__()
        self.inputs = [tensor.numpy() for tensor in tensors_of(call)]
        self.settings = {
            "threads": f"intra-op {threads}, inter-op 1",
            "mode": "eval, torch.inference_mode",
            "call": "module(*inputs)",
        }

    def run(self) -> None:
        self._answer = self.module(*self._positional, **self._keywords)

    def outputs(self) -> list[Any]:
        return [each.detach().contiguous().numpy() for each in tensors_of(self._answer)]


def load(options: LaunchOptions) -> TorchProgram:
    """Build the model of a .pte again and bring it to the dtype of the export."""
    torch.set_num_interop_threads(1)
    paths = ExportPaths(options.model)
    record = files.read_json(paths.meta, ExportMeta, "export record").exports.get(paths.stem)
    if record is None or record.request is None or record.request.origin == "memory":
        raise ProcessError(
            Exit.MODEL_UNREADABLE, f"nothing says how {options.model.name} was made", "Give the model itself."
        )
    request = recorded_in(record, record.request, working_directory())
    loaded = load_model(request.target or request.model, request.seed, request.options)
    module = loaded.module
    if dtype_of(record.dtype).halves:
        module = module.half()
    # From here on; what was built before is the same for any number of threads.
    torch.set_num_threads(options.threads)
    return TorchProgram(module, _with_files(loaded.call, options.inputs, record), options.threads)


def load_compiled(options: LaunchOptions) -> TorchProgram:
    """Build the model and compile it by calling it once; what was compiled stays for the next launch of it.

    With the defaults of torch.compile (Inductor). Compiling is a part of loading, and so of start-up.
    """
    if options.cache is not None:
        # Inductor reads it when it compiles.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(options.cache.absolute())
    program = load(options)
    program.module = torch.compile(program.module)
    program.backends = ["inductor"]
    program.settings |= {"compile": "torch.compile(module), backend inductor, default mode"}
    program.run()
    return program


def _with_files(call: Call, inputs: tuple[Path, ...], record: ExportRecord) -> Call:
    """Return the example inputs with the values of the files that all runtimes read, in the layout of the export."""
    taken = [WantedInput(f"input {i}", each.dtype, tuple(each.shape)) for i, each in enumerate(record.inputs)]
    read = []
    for array, entry in zip(arranged_inputs(inputs, taken).arrays, record.inputs, strict=True):
        last = torch.channels_last if entry.layout == "channels_last" else torch.contiguous_format
        read.append(torch.from_numpy(array).contiguous(memory_format=last))
    if len(read) != len(tensors_of(call)):
        raise ProcessError(Exit.INPUTS_WRONG, "the model takes another number of tensors than when it was exported")
    positional, keywords = with_tensors(call, read)
    return positional, keywords
