"""LiteRT (TensorFlow Lite) with XNNPACK, its default delegate on a CPU: a .tflite of the user's."""

from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from model_profiling.base import files
from model_profiling.runner.protocol import Exit
from model_profiling.runtimes.program import LaunchOptions, LoadedProgram, ProcessError, WantedInput, arranged_inputs

# The identifier of a .tflite, from its fifth byte on.
_IDENTIFIER = b"TFL3"


class LiteRtProgram(LoadedProgram):
    """An interpreter with its inputs in place."""

    def __init__(self, options: LaunchOptions) -> None:
        with files.open_file(options.model) as file:
            if file.read(8)[4:] != _IDENTIFIER:
                raise ProcessError(
                    Exit.MODEL_INVALID, f"{options.model.name} is not a .tflite: {_IDENTIFIER!r} is missing"
                )
        try:
            self._interpreter = Interpreter(model_path=str(options.model), num_threads=options.threads)
            details = self._interpreter.get_input_details()
            wanted = [WantedInput(each["name"], np.dtype(each["dtype"]).name, _sizes(each)) for each in details]
            given = arranged_inputs(options.inputs, wanted)
            for each, array in zip(details, given.arrays, strict=True):
                if tuple(each["shape"]) != array.shape:
                    self._interpreter.resize_tensor_input(each["index"], array.shape)
            self._interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            raise ProcessError(Exit.MODEL_INVALID, f"LiteRT cannot load {options.model.name}: {error}") from error
        for each, array in zip(details, given.arrays, strict=True):
            self._interpreter.set_tensor(each["index"], array)
        self._outputs = [each["index"] for each in self._interpreter.get_output_details()]
        self.inputs = given.arrays
        self.backends = ["XNNPACK (its default delegate)"]
        self.settings = {
            "threads": str(options.threads),
            "delegate": "XNNPACK, as by default",
            "call": "Interpreter.invoke, inputs set before",
            **given.notes,
        }

    def run(self) -> None:
        self._interpreter.invoke()

    def outputs(self) -> list[Any]:
        return [self._interpreter.get_tensor(index) for index in self._outputs]


def _sizes(details: Any) -> tuple[int, ...]:
    signature = details.get("shape_signature")
    return tuple(int(size) for size in (signature if signature is not None and len(signature) else details["shape"]))


load = LiteRtProgram
