"""A skill's text where pip installed the kit: the texts are written for a clone, and name its scripts and its .venv."""

import re

from model_profiling.base.installation import PACKAGE, install_command

_INSTALL = install_command("export")
# In this order. A test installs the wheel and holds every skill to naming nothing that only a clone has.
_RULES = (
    # Commands.
    (r"bash model_profiling/scripts/setup_repo\.sh", _INSTALL),
    (r"bash model_profiling/scripts/build_runners\.sh", "sme2-kit build"),
    (
        r"python model_profiling/scripts/\w+_pipeline\.py --config model_profiling/configs/examples/\w+\.json",
        "sme2-kit run out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte",
    ),
    (r"python model_profiling/(\w+)/(\w+)\.py", r"python -m model_profiling.\1.\2"),
    (r"pip install -e '\.\[(\w+)\]'", r"pip install 'executorch-sme2-kit[\1]'"),
    (r'make setup PIP_ARGS="(.*?)"', rf"{_INSTALL} \1"),
    (r"`make clean`, then `make setup PYTHON=(\S+)`", r"use a new virtual environment with \1"),
    (r"`make clean`, `make setup`", f"`{_INSTALL}`"),
    # Places.
    (r"model_profiling/(configs/my_\w+\.json)", r"my_experiment.json"),
    (r"model_profiling/out_", "out_"),
    (r"model_profiling/(configs|models|scripts)/", f"{PACKAGE}/\\1/"),
    # The environment is the user's own.
    (r"2\. Use it in this shell\.\n\n *```bash\n *source \.venv/bin/activate\n *```\n\n3\.", "2."),
    (r"(?m)^ *source \.venv/bin/activate\n", ""),
    (r"1\. Create `\.venv` and install", "1. Install"),
    (r"`\.venv/bin/sme2-kit` exists", "`sme2-kit` is in PATH"),
    (r"into `\.venv`", "into the environment"),
    (r"the repository was just cloned, \.venv is missing, or", "the kit was just installed, or"),
    (
        r"A clone of this repository; the working directory is its root\.",
        "Results are written to the working directory.",
    ),
    (r"3\.14, `make`, a C", "3.14, a C"),
    (r"put the clone elsewhere", "put the environment elsewhere"),
)


def without_clone(text: str) -> str:
    """Name commands and places that exist where the kit is a package."""
    for pattern, replacement in _RULES:
        text = re.sub(pattern, replacement, text)
    return text
