"""Prove the faster lowering with the installed torch and ExecuTorch: `make prove` adds them to upstream/proven.json.

The tests of the faster lowering run with the installed releases as if these were proven. If they fail, each saving is
tried alone, what fails then is left out, and the rest is tried again. Only what passes stays in the table.
"""

import os
import subprocess
import sys
from importlib.util import find_spec

import msgspec

from model_profiling.base.printing import tell
from model_profiling.upstream.all_reliances import reliance_states
from model_profiling.upstream.faster_lowering import PARTS, STOCK_VARIABLE, functions_of
from model_profiling.upstream.reliance import FAILS_VARIABLE, PROVEN_PATH, ProvenPair, installed_version, source_digest
from tests.conftest import ROOT

_SAME_PROGRAMS = (
    "tests/export/test_stock_ways.py::test_the_program_of_every_dtype_is_the_same_in_both_ways",
    "tests/export/test_stock_ways.py::test_programs_of_the_zoo_are_the_same_in_both_ways",
    "tests/export/test_faster_lowering.py::test_the_program_is_what_executorch_makes_by_itself",
)
_ALL = (
    *(*_SAME_PROGRAMS, "tests/export/test_faster_lowering.py", "tests/upstream/test_patching.py"),
    *("tests/upstream/test_late_compilation.py", "tests/upstream/test_other_threads.py"),
)
# Of the zoo, where torchvision and timm are not installed: for the newest torch there may be none yet.
_WITHOUT_EXTRAS = "not mobilenet_v3_small and not deit_tiny"


def main() -> int:
    """Prove what is installed and write the table; returns 1, with the table as it was, if too little holds."""
    before = PROVEN_PATH.read_bytes()
    torch, executorch = installed_version("torch"), installed_version("executorch")
    failing = [each for each in reliance_states() if each.state == "fails" and each.name not in PARTS]
    for each in failing:
        tell(f"does not hold: {each.name}: {each.reason}")
    if failing:
        return 1
    proven = False
    try:
        savings = dict(filter(None, map(_recorded, PARTS)))
        _write(before, ProvenPair(torch, executorch, savings))
        proven = _passes(*_ALL)
        if not proven:
            savings = {name: hashes for name, hashes in savings.items() if _holds_alone(name)}
            _write(before, ProvenPair(torch, executorch, savings))
            proven = bool(savings) and _passes(*_ALL)
    finally:
        if not proven:
            PROVEN_PATH.write_bytes(before)
    left = ", ".join(name for name in PARTS if name not in savings)
    tell(
        f"torch {torch} with executorch {executorch}: {'proven' if proven else 'NOT proven'}"
        + f", without {left}" * bool(left)
    )
    return int(not proven)


def _recorded(saving: str) -> tuple[str, str] | None:
    try:
        return saving, source_digest(functions_of(saving).values())
    except (ImportError, AttributeError) as error:
        tell(f"left out: {saving}: {error}")
        return None


def _holds_alone(saving: str) -> bool:
    others = ",".join(name for name in PARTS if name != saving)
    return _passes(*_SAME_PROGRAMS, fails=others)


def _passes(*tests: str, fails: str = "") -> bool:
    environment = {name: value for name, value in os.environ.items() if name not in (STOCK_VARIABLE, FAILS_VARIABLE)}
    chosen = [] if find_spec("torchvision") and find_spec("timm") else ["-k", _WITHOUT_EXTRAS]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not measures", *chosen, *tests]
    return subprocess.run(command, cwd=ROOT, env={**environment, FAILS_VARIABLE: fails}, check=False).returncode == 0


def _write(before: bytes, pair: ProvenPair) -> None:
    """Write the table with a pair, in place of what it said of it."""
    pairs = msgspec.json.decode(before, type=list[ProvenPair])
    others = [each for each in pairs if (each.torch, each.executorch) != (pair.torch, pair.executorch)]
    ordered = sorted([*others, pair], key=lambda each: (each.torch, each.executorch))
    PROVEN_PATH.write_bytes(b"[\n  " + b",\n  ".join(map(msgspec.json.encode, ordered)) + b"\n]\n")


if __name__ == "__main__":
    sys.exit(main())
