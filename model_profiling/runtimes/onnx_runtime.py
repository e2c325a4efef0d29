"""ONNX Runtime with its CPU provider: an .onnx that the kit made of the model, or the user's own."""

import re
from pathlib import Path
from typing import Any

import onnxruntime

from model_profiling.runner.protocol import Exit
from model_profiling.runtimes.program import LaunchOptions, LoadedProgram, ProcessError, WantedInput, arranged_inputs
from model_profiling.runtimes.runtime_table import optimized_file

_MOST_OPTIMIZED = 1 << 30
_PROVIDER = "CPUExecutionProvider"
# What ONNX calls the types that NumPy has; others are refused.
_TYPES = {"float": "float32", "double": "float64"} | {
    name: name for name in ("float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
}
# Its exceptions have no class in common but RuntimeError; each kind has a name.
_CODES = {"NotImplemented": Exit.OPERATOR_MISSING, "NoSuchFile": Exit.MODEL_UNREADABLE}
# What it begins a message with, and where in its own source it was.
_PREAMBLE = re.compile(r"\[ONNXRuntimeError\] : \d+ : (\w+) : (Load model from .*? failed:)?", re.DOTALL)
_OWN_SOURCE = re.compile(r"/onnxruntime_src/\S+:\d+ .*?\) (?=[A-Z])", re.DOTALL)
# Of a file that is whole and yet refused, which these kinds are.
_REFUSALS = ("Fail", "InvalidGraph", "NotImplemented")
_REFUSED = (
    "Files of weights have to lie beside the .onnx under their names; operators and opset have to be some that "
    f"onnxruntime {onnxruntime.__version__} has."
)


class OnnxProgram(LoadedProgram):
    """A session and the arrays that it is called with."""

    def __init__(self, options: LaunchOptions) -> None:
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads, settings.inter_op_num_threads = options.threads, 1
        if options.profile is not None:
            settings.enable_profiling = True
            # It adds the time of day and .json.
            settings.profile_file_prefix = str(options.profile.absolute())
            _keep_optimized(settings, options)
        try:
            self._session = onnxruntime.InferenceSession(str(options.model), settings, providers=[_PROVIDER])
        except Exception as error:
            kind = type(error).__name__
            said = _OWN_SOURCE.sub("", _PREAMBLE.sub("", str(error)))
            raise ProcessError(
                _CODES.get(kind, Exit.MODEL_INVALID),
                f"ONNX Runtime cannot load {options.model.name}: {said}",
                _REFUSED if kind in _REFUSALS else "",
            ) from error
        wanted = [
            WantedInput(each.name, _type(each), tuple(n if isinstance(n, int) and n >= 0 else -1 for n in each.shape))
            for each in self._session.get_inputs()
        ]
        given = arranged_inputs(options.inputs, wanted)
        self.inputs = given.arrays
        self._feeds = {each.name: array for each, array in zip(wanted, given.arrays, strict=True)}
        self._answer: list[Any] = []
        self.backends = list(self._session.get_providers())
        self.settings = {
            "threads": f"intra-op {options.threads}, inter-op 1",
            "graph optimizations": str(settings.graph_optimization_level).rpartition(".")[2],
            "execution": str(settings.execution_mode).rpartition(".")[2],
            "spinning": "session.intra_op.allow_spinning as by default (on)",
            "call": "InferenceSession.run with NumPy arrays",
            **given.notes,
        }

    def run(self) -> None:
        self._answer = self._session.run(None, self._feeds)

    def outputs(self) -> list[Any]:
        import numpy as np

        return [np.asarray(each) for each in self._answer]

    def write_profile(self, path: Path) -> None:
        """Put ONNX Runtime's profile, JSON for Chrome's tracing, where it was asked for."""
        Path(self._session.end_profiling()).replace(path)


def _keep_optimized(settings: Any, options: LaunchOptions) -> None:
    """Have the first profiled launch write what the optimizer makes of the model: which nodes became which.

    It holds the weights, and a file may not be larger than 2 GiB.
    """
    assert options.profile is not None
    target = optimized_file(options.profile)
    beside = [*options.model.parent.glob(f"{options.model.name}*")]
    if not target.exists() and sum(path.stat().st_size for path in beside) < _MOST_OPTIMIZED:
        settings.optimized_model_filepath = str(target.absolute())
        # It warns that the file fits this machine only, which is where it is read.
        settings.log_severity_level = 3


def _type(value: Any) -> str:
    name = str(value.type).removeprefix("tensor(").removesuffix(")")
    if name not in _TYPES:
        raise ProcessError(Exit.INPUTS_WRONG, f"input {value.name} is a {value.type}, which the kit cannot pass")
    return _TYPES[name]


load = OnnxProgram
