"""One table of CPU features: what goes together, and what a before/after switches on which machine."""

import pytest

from model_profiling.base.dtypes import EXPORTED
from model_profiling.runner import features
from model_profiling.upstream.libraries import OFFSETS

pytestmark = pytest.mark.fast


def test_switching_a_feature_off_takes_what_builds_on_it() -> None:
    more = {"sme2p1", "sme_i16i32", "sme_bi32i32", "sme_b16b16", "sme_f16f16"}
    assert features.expand("aarch64", ["sme2"]) == {"sme2", *more}
    assert features.expand("aarch64", ["sme"]) == features.expand("aarch64", ["sme2"]) | {"sme"}
    assert "avx512fp16" in features.expand("x86_64", ["avx512"])
    assert features.expand("x86_64", ["avx512vnni"]) == {"avx512vnni", "amx_int8"}
    assert features.expand("x86_64", ["amx"]) == {"amx_tile", "amx_int8", "amx_bf16"}
    with pytest.raises(KeyError):
        features.expand("aarch64", ["sme3"])


@pytest.mark.parametrize(
    ("arch", "present", "dtype", "expected"),
    [
        ("aarch64", {"sme2", "sme", "dot", "fp16arith"}, "fp16", "sme2"),
        ("aarch64", {"sme", "dot", "fp16arith"}, "fp32", "sme"),
        ("aarch64", {"dot", "fp16arith"}, "fp16", "fp16arith"),
        ("aarch64", {"dot", "fp16arith", "i8mm"}, "int8", "i8mm"),
        ("aarch64", {"dot", "fp16arith"}, "fp32", None),
        ("x86_64", {"avx512f", "avx512vnni", "avx512fp16", "avx2"}, "fp16", "avx512fp16"),
        ("x86_64", {"avx512f", "avx512vnni", "avx512fp16", "avx2"}, "int8", "avx512vnni"),
        ("x86_64", {"avx512f", "avx512vnni", "avx512fp16", "avx2"}, "fp32", "avx512f"),
        ("x86_64", {"avx", "avx2", "fma3"}, "fp32", "fma3"),
        ("x86_64", {"avx", "avx2", "fma3"}, "a dtype from the future", "avx2"),
    ],
)
def test_the_default_accelerator_is_the_best_the_machine_has_for_the_dtype(
    arch: str, present: set[str], dtype: str, expected: str | None
) -> None:
    assert features.default_accelerator(arch, present, dtype) == expected


@pytest.mark.parametrize("arch", features.TABLES)
def test_no_two_features_share_a_byte_and_all_requirements_exist(arch: str) -> None:
    table = features.TABLES[arch]
    offsets = OFFSETS[arch]
    assert offsets.keys() == {feature.name for feature in table}
    assert len(set(offsets.values())) == len(offsets)
    names = {feature.name for feature in table}
    assert all(set(feature.requires) <= names and len(feature.requires) <= 2 for feature in table)
    assert set(features.ALIASES[arch].values()) <= names
    assert {name for row in EXPORTED for name in row.accelerators[arch]} <= names
