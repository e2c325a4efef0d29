"""What the kit relies on holds with what is installed, and doctor says so: this imports torch."""

import json

import pytest

from model_profiling.upstream.all_reliances import ALL
from model_profiling.upstream.reliance import (
    FAILS_VARIABLE,
    PROVEN_EXECUTORCH,
    PROVEN_TORCH,
    NotCheckable,
    Reliance,
    check_reliance,
    installed_version,
)
from tests.conftest import kit


@pytest.mark.parametrize("reliance", ALL, ids=lambda each: each.name)
def test_it_holds_with_the_versions_it_was_proven_with(reliance: Reliance) -> None:
    for package, proven in (("executorch", PROVEN_EXECUTORCH), ("torch", PROVEN_TORCH)):
        try:
            version = installed_version(package)
        except NotCheckable:
            continue
        assert version in proven, f"{package} {version} is new: `make prove`"
    found = check_reliance(reliance)
    assert found.state != "fails", found.reason


def test_doctor_prints_the_list_and_what_fails() -> None:
    listed = kit("doctor", "--upstream")
    assert listed.returncode == 0 and f"none of {len(ALL)} fails" in listed.stdout, listed.stderr
    assert all(each.name in listed.stdout for each in ALL)
    name = next(each.name for each in ALL if not each.essential)
    said = json.loads(kit("doctor", "--upstream", "--json", env={FAILS_VARIABLE: name}).stdout)
    assert [each["name"] for each in said if each["state"] == "fails"] == [name]
    assert all(each["instead"] and each["proven"] for each in said)
