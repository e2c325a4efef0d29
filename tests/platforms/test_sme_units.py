"""Which CPUs share an SME unit, from what Linux and macOS say."""

from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from model_profiling.platforms.cpus import REGISTER, apple_units, linux_units, sme_units, units

# Arm's implementer and a revision: what else stands in the register.
_ARM = 0x41 << 24 | 0x10 << 16


def sysfs(home: Path, registers: dict[int, int]) -> Path:
    for cpu, value in registers.items():
        file = home / f"cpu{cpu}" / REGISTER
        file.parent.mkdir(parents=True)
        file.write_text(f"0x{value:016x}\n")
    (home / "cpufreq").mkdir()
    return home


@pytest.mark.parametrize(
    ("registers", "shared_by", "cpus"),
    [
        ({}, None, None),
        # The first edition of the register: an affinity of zero is a unit of one's own.
        ({0: _ARM, 1: _ARM}, [1, 1], ["0", "1"]),
        ({n: _ARM | (0x100 if n < 6 else 0x200) for n in range(8)}, [6, 2], ["0-5", "6-7"]),
        ({10: _ARM | 1, 2: _ARM | 1, 3: _ARM | 1}, [3], ["2-3,10"]),
        # Now: SH says whether it is shared, and the affinity has upper bits.
        (dict.fromkeys(range(4), _ARM | 3 << 13), [4], ["0-3"]),
        (dict.fromkeys(range(2), _ARM | 2 << 13 | 7), [1, 1], ["0", "1"]),
        ({n: _ARM | 0b11 << 13 | n // 2 << 32 for n in range(4)}, [2, 2], ["0-1", "2-3"]),
        # Priorities and other fields do not tell units apart.
        ({0: _ARM | 1, 1: _ARM | 1 | 1 << 15 | 3 << 60}, [2], ["0-1"]),
        # NSMC: CPUs of one affinity share several units, no more than there are CPUs.
        (dict.fromkeys(range(4), _ARM | 3 << 13 | 1 << 56), [2, 2], ["0-3", "0-3"]),
        (dict.fromkeys(range(3), _ARM | 3 << 13 | 1 << 56), [2, 1], ["0-2", "0-2"]),
        (dict.fromkeys(range(2), _ARM | 1 | 7 << 56), [1, 1], ["0-1", "0-1"]),
    ],
)
def test_cpus_of_one_affinity_share_a_unit(
    tmp_path: Path, registers: dict[int, int], shared_by: list[int] | None, cpus: list[str] | None
) -> None:
    found = linux_units(sysfs(tmp_path, registers))
    expected = {} if shared_by is None else {"shared_by": shared_by, "cpus": cpus, "source": "smidr_el1"}
    # Where several CPUs are said to share one unit, there may be more: the field may not be told.
    least = any(value >> 56 & 15 for value in registers.values()) is False and max(shared_by or [1]) > 1
    assert found == expected | ({"at_least": True} if least else {})


def test_what_is_no_register_says_nothing(tmp_path: Path) -> None:
    home = sysfs(tmp_path, {0: _ARM | 1, 1: _ARM | 1})
    (home / "cpu1" / REGISTER).write_text("")
    assert linux_units(home) == linux_units(tmp_path / "nowhere") == {}
    for name, text in (("cpu", "0x1"), ("cpu0", "1"), ("cpu0 ", "0x1"), ("cpu00000", "0x1"), ("cpu0", "0x" + "1" * 17)):
        assert units({name: text}) == {}


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=12))
def test_every_cpu_is_in_one_unit(values: list[int]) -> None:
    found = units({f"cpu{n}": f"0x{value:x}\n" for n, value in enumerate(values)})
    assert isinstance(found["shared_by"], list) and sum(found["shared_by"]) == len(values)


def test_a_phone_says_it_line_by_line() -> None:
    lines = [f"/sys/devices/system/cpu/cpu{n}/{REGISTER}|0x{_ARM | 1 + n // 2:016x}" for n in range(4)]
    assert sme_units("\n".join(lines) + "\n")["shared_by"] == [2, 2]
    assert sme_units("") == {} and sme_units("sh: no such file\n") == {}


@pytest.mark.parametrize(
    ("values", "shared_by"),
    [
        ({}, None),
        ({"hw.optional.arm.FEAT_SME2": "0", "hw.perflevel0.physicalcpu": "8", "hw.perflevel0.cpusperl2": "4"}, None),
        # M4: 4 performance cores and 6 efficiency cores, each a cluster.
        ({"0": "4/4", "1": "6/6"}, [4, 6]),
        # M4 Pro and Max: two clusters of performance cores.
        ({"0": "10/5", "1": "4/4"}, [5, 5, 4]),
        ({"0": "12/5"}, [5, 5, 2]),
        ({"0": "4/0"}, None),
    ],
)
def test_apples_clusters_have_a_unit_each(values: dict[str, str], shared_by: list[int] | None) -> None:
    told = {key: value for key, value in values.items() if "." in key}
    for level, value in values.items():
        if "." not in level:
            cores, together = value.split("/")
            told |= {f"hw.perflevel{level}.physicalcpu": cores, f"hw.perflevel{level}.cpusperl2": together}
            told["hw.optional.arm.FEAT_SME2"] = "1"
    assert apple_units(lambda name: told.get(name, "")).get("shared_by") == shared_by
