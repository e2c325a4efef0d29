"""Exports a network of a Python file to .onnx and profiles it with ONNX Runtime, in as many sessions as asked for.

`python ort_profile.py NET.py OUT LAUNCHES RUNS LEVEL...` writes net.onnx, optimized.onnx and launch-<n>.json to
OUT/LEVEL of each of ONNX Runtime's levels of optimization.
"""

import importlib.util
import sys
from pathlib import Path
from typing import Any


def main(source: Path, out: Path, launches: int, runs: int, levels: list[str]) -> None:
    import torch

    spec = importlib.util.spec_from_file_location(source.stem, source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[source.stem] = module
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    net = module.Net().eval()
    inputs = net.get_example_inputs()
    program = torch.onnx.export(net, inputs, dynamo=True, verbose=False)
    for level in levels:
        (out / level).mkdir()
        program.save(out / level / "net.onnx")
        for launch in range(launches):
            profile(out / level, level, launch, runs, [value.numpy() for value in inputs])


def profile(out: Path, level: str, launch: int, runs: int, inputs: list[Any]) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.enable_profiling, options.profile_file_prefix = True, str(out / f"part-{launch}")
    if launch == 0:
        options.optimized_model_filepath = str(out / "optimized.onnx")
    session = onnxruntime.InferenceSession(out / "net.onnx", options, providers=["CPUExecutionProvider"])
    named = {given.name: value for given, value in zip(session.get_inputs(), inputs, strict=True)}
    for _ in range(runs + 1):
        session.run(None, named)
    Path(session.end_profiling()).replace(out / f"launch-{launch}.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
