"""The runner's feature masking on CPUs that nobody here has: all features, none, each single one missing."""

import itertools
import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from model_profiling.runner import features
from model_profiling.runner.build import NATIVE, PRIVATE_SYMBOLS, generate_tables, host_compiler
from model_profiling.runner.features import FeatureAgreement
from model_profiling.runner.protocol import Exit
from model_profiling.runner.sdk import TARGETS
from tests.conftest import ROOT

STATED = ROOT / "tests" / "helpers" / "stated_cpu"
# What the independent source says, what cpuinfo's table says, what is to be disabled, whether it can be hidden.
Case = tuple[Iterable[str], Iterable[str], Iterable[str], bool]
Answers = Callable[[Sequence[Case]], tuple[list[dict[str, Any]], str]]
ARCHITECTURES = {target.arch: target for target in TARGETS.values() if target.name.startswith("linux")}


@pytest.fixture(scope="module", params=ARCHITECTURES)
def arch(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def masked(arch: str, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The runner's own code, compiled with a CPU that is read from its input."""
    home = tmp_path_factory.mktemp(arch)
    for path in NATIVE.glob("*.h"):
        shutil.copy(path, home)
    shutil.copytree(STATED, home, dirs_exist_ok=True)
    (home / "kit_tables.h").write_text(generate_tables(ARCHITECTURES[arch]))
    command = [*host_compiler(), "-std=c++17", f"-I{PRIVATE_SYMBOLS}", str(home / "main.cpp"), "-o", str(home / "mask")]
    subprocess.run(command, check=True)

    def answers(cases: Sequence[Case]) -> tuple[list[dict[str, Any]], str]:
        lines = [f"{' '.join(a)};{' '.join(b)};{' '.join(c)};{'hides' if hides else ''}" for a, b, c, hides in cases]
        text = "\n".join(lines) + "\n"
        done = subprocess.run([home / "mask"], input=text, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    return answers


def cpus(arch: str) -> list[list[str]]:
    names = [feature.name for feature in features.TABLES[arch]]
    return [names, [], *([other for other in names if other != name] for name in names)]


def test_what_goes_stays_and_was_never_there_is_said_on_every_cpu(arch: str, masked: Answers) -> None:
    names = ["", *(feature.name for feature in features.TABLES[arch]), *features.ALIASES[arch]]
    cases = [
        (cpu, cpu, name.split(), hides) for cpu, name, hides in itertools.product(cpus(arch), names, (False, True))
    ]
    said, notes = masked(cases)
    assert len(said) == len(cases)
    for (cpu, _, disabled, hides), report in zip(cases, said, strict=True):
        gone = features.expand(arch, list(disabled))
        targets = [features.ALIASES[arch].get(name, name) for name in disabled]
        assert report["present"] == list(cpu) and not report["unproven"]
        assert report["disabled"] == [name for name in cpu if name in gone]
        assert report["active"] == [name for name in cpu if name not in gone]
        assert report["absent"] == [name for name, target in zip(disabled, targets, strict=True) if target not in cpu]
        assert ("masked where cpuinfo reads it" in report["proof"]) == hides
    assert notes.count("note: this CPU does not have '") == sum(len(report["absent"]) for report in said)


def test_a_table_that_says_something_else_than_the_system_is_not_trusted(arch: str, masked: Answers) -> None:
    """As far as each feature allows: cpuinfo may know more of some, and ask for more of others."""
    for feature, cpu, hides in itertools.product(features.TABLES[arch], cpus(arch)[:2], (False, True)):
        more, less = {*cpu, feature.name}, {*cpu} - {feature.name}
        for known, table, accepted in (
            (less, more, feature.agreement is FeatureAgreement.AT_LEAST),
            (more, less, feature.agreement is FeatureAgreement.AT_MOST),
        ):
            other = next(each.name for each in features.TABLES[arch] if each.name != feature.name)
            (listed, refused), _ = masked([(known, table, [], hides), (known, table, [other], hides)])
            if accepted:
                assert not listed["unproven"] and refused["event"] == "features"
                assert listed["present"] == [each.name for each in features.TABLES[arch] if each.name in table]
            elif not (hides and feature.name in features.expand(arch, [other])):
                assert f"'{feature.name}'" in listed["unproven"] and not listed["present"]
                assert (refused["event"], refused["code"]) == ("failure", Exit.FEATURES_UNPROVEN.value)


def test_an_unknown_feature_is_named_with_all_that_there_are(arch: str, masked: Answers) -> None:
    (said,), _ = masked([([], [], ["sme3"], False)])
    assert said["code"] == Exit.UNKNOWN_FEATURE.value and "unknown CPU feature 'sme3'" in said["message"]
    assert all(feature.name in said["message"] for feature in features.TABLES[arch])
