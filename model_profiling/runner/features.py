"""The one table of CPU features: how to prove each, what builds on it, which one is switched.

XNNPACK chooses its kernels from cpuinfo's private table. The runner clears bytes of that table, so where each feature
has its byte (`upstream/libraries.py`) must be right; the `proof` of each feature names the independent source that the
runner compares with the table before it trusts it, on Arm Linux with what is to be masked hidden in that source.
`build.py` turns this table into a C++ header, so the runner and the kit cannot disagree.
"""

from dataclasses import dataclass
from enum import Enum

from model_profiling.base.dtypes import dtype_of


class FeatureAgreement(Enum):
    """How far cpuinfo's table must agree with the independent source."""

    EXACT = "exact"
    # cpuinfo also believes a list of known cores, because old kernels do not report these: more is fine.
    AT_LEAST = "at_least"
    # cpuinfo asks for more conditions than the instruction set does: less is fine.
    AT_MOST = "at_most"


@dataclass(frozen=True)
class HwCap:
    """A bit of AT_HWCAP (word 1) or AT_HWCAP2 (word 2), and macOS' `hw.optional.arm.<sysctl>` for the same feature.

    `also` are bits of the same word from which cpuinfo concludes the feature as well.
    """

    word: int
    bit: int
    sysctl: str
    also: tuple[int, ...] = ()


@dataclass(frozen=True)
class CpuId:
    """A bit of one CPUID leaf, and the vector registers the operating system must have enabled for it."""

    leaf: int
    subleaf: int
    register: str
    bit: int
    registers_enabled: str = "avx512"


@dataclass(frozen=True)
class Feature:
    name: str
    proof: HwCap | CpuId
    requires: tuple[str, ...] = ()
    agreement: FeatureAgreement = FeatureAgreement.EXACT


def _avx512(name: str, register: str, bit: int, subleaf: int = 0) -> Feature:
    return Feature(name, CpuId(7, subleaf, register, bit), ("avx512f",))


AARCH64 = (
    Feature("atomics", HwCap(1, 8, "FEAT_LSE")),
    Feature("bf16", HwCap(2, 14, "FEAT_BF16", also=(12,))),
    Feature("sve", HwCap(1, 22, "FEAT_SVE")),
    Feature("sve2", HwCap(2, 1, "FEAT_SVE2"), ("sve",)),
    Feature("i8mm", HwCap(2, 13, "FEAT_I8MM", also=(9,))),
    Feature("sme", HwCap(2, 23, "FEAT_SME")),
    Feature("sme2", HwCap(2, 37, "FEAT_SME2"), ("sme",)),
    Feature("sme2p1", HwCap(2, 38, "FEAT_SME2p1"), ("sme2",)),
    Feature("sme_i16i32", HwCap(2, 39, "SME_I16I32"), ("sme2",)),
    Feature("sme_bi32i32", HwCap(2, 40, "SME_BI32I32"), ("sme2",)),
    Feature("sme_b16b16", HwCap(2, 41, "FEAT_SME_B16B16"), ("sme2",)),
    Feature("sme_f16f16", HwCap(2, 42, "FEAT_SME_F16F16"), ("sme2",)),
    Feature("rdm", HwCap(1, 12, "FEAT_RDM"), agreement=FeatureAgreement.AT_LEAST),
    Feature("fp16arith", HwCap(1, 10, "FEAT_FP16"), agreement=FeatureAgreement.AT_LEAST),
    Feature("dot", HwCap(1, 20, "FEAT_DotProd"), agreement=FeatureAgreement.AT_LEAST),
)

X86_64 = (
    Feature("ssse3", CpuId(1, 0, "ecx", 9, "sse")),
    Feature("sse4_1", CpuId(1, 0, "ecx", 19, "sse"), ("ssse3",)),
    Feature("avx", CpuId(1, 0, "ecx", 28, "avx"), ("sse4_1",)),
    Feature("avxvnni", CpuId(7, 1, "eax", 4, "avx"), ("avx2",)),
    Feature("fma3", CpuId(1, 0, "ecx", 12, "avx"), ("avx",)),
    Feature("f16c", CpuId(1, 0, "ecx", 29, "avx"), ("avx",)),
    Feature("avx2", CpuId(7, 0, "ebx", 5, "avx"), ("avx",)),
    Feature("avx512f", CpuId(7, 0, "ebx", 16), ("avx2", "fma3")),
    _avx512("avx512cd", "ebx", 28),
    _avx512("avx512dq", "ebx", 17),
    _avx512("avx512bw", "ebx", 30),
    _avx512("avx512vl", "ebx", 31),
    _avx512("avx512ifma", "ebx", 21),
    _avx512("avx512vbmi", "ecx", 1),
    _avx512("avx512vbmi2", "ecx", 6),
    _avx512("avx512bitalg", "ecx", 12),
    _avx512("avx512vpopcntdq", "ecx", 14),
    _avx512("avx512vnni", "ecx", 11),
    _avx512("avx512bf16", "eax", 5, subleaf=1),
    _avx512("avx512fp16", "edx", 23),
    # XNNPACK prefers AMX to AVX-512, so what AMX would replace cannot be switched off while AMX stays on.
    Feature("amx_bf16", CpuId(7, 0, "edx", 22), ("amx_tile", "avx512bf16"), FeatureAgreement.AT_MOST),
    Feature("amx_tile", CpuId(7, 0, "edx", 24), ("avx512f",), FeatureAgreement.AT_MOST),
    Feature("amx_int8", CpuId(7, 0, "edx", 25), ("amx_tile", "avx512vnni"), FeatureAgreement.AT_MOST),
)

TABLES: dict[str, tuple[Feature, ...]] = {"aarch64": AARCH64, "x86_64": X86_64}

# What people call a family of features: the member on which the rest of the family builds.
ALIASES: dict[str, dict[str, str]] = {"aarch64": {"dotprod": "dot"}, "x86_64": {"avx512": "avx512f", "amx": "amx_tile"}}

_MACHINES = {"arm64": "aarch64", "amd64": "x86_64"}


def architecture(machine: str) -> str:
    """Return the name of `machine` (as `uname -m` says it) in the tables above."""
    return _MACHINES.get(machine.lower(), machine.lower())


def expand(arch: str, names: list[str]) -> set[str]:
    """Return all features that go when `names` go: these, and what builds on them. Unknown names raise KeyError."""
    table = {feature.name: feature for feature in TABLES[arch]}
    gone = {table[ALIASES[arch].get(name, name)].name for name in names}
    while more := {f.name for f in table.values() if f.name not in gone and gone & set(f.requires)}:
        gone |= more
    return gone


def default_accelerator(arch: str, present: set[str], dtype: str) -> str | None:
    """Return the accelerator to switch off for a before/after of `dtype`; None if this CPU has none that can be."""
    return next((name for name in dtype_of(dtype).accelerators[arch] if name in present), None)


# How people call a feature that a before/after switches, and what it does.
_WORDS = {
    "sme2": ("SME2", "Arm's second Scalable Matrix Extension, a matrix unit for fp32, fp16 and int8"),
    "sme": ("SME", "Arm's Scalable Matrix Extension, a matrix unit"),
    "i8mm": ("int8 matrix multiply", "Arm NEON instructions (FEAT_I8MM) that multiply 2x8 by 8x2 blocks of int8"),
    "dot": ("dot product", "Arm NEON instructions (FEAT_DotProd) that multiply and add four int8 values at once"),
    "fp16arith": ("fp16 arithmetic", "Arm NEON instructions (FEAT_FP16) that compute in fp16; without them in fp32"),
    "bf16": ("bf16", "Arm NEON instructions (FEAT_BF16) for products of bfloat16 matrices"),
    "sve": ("SVE", "Arm's Scalable Vector Extension"),
    "sve2": ("SVE2", "Arm's second Scalable Vector Extension"),
    "avx": ("AVX", "x86 vectors of 256 bits"),
    "avx2": ("AVX2", "x86 integer vectors of 256 bits"),
    "fma3": ("FMA3", "x86 instructions that multiply and add at once"),
    "avx512f": ("AVX-512", "x86 vectors of 512 bits, and what builds on them"),
    "avx512fp16": ("AVX-512 FP16", "x86 instructions that compute in fp16; without them in fp32"),
    "avx512vnni": ("AVX-512 VNNI", "x86 dot products of int8 values, in vectors of 512 bits"),
    "avxvnni": ("AVX-VNNI", "x86 dot products of int8 values, in vectors of 256 bits"),
    "amx_tile": ("AMX", "x86 matrix tiles"),
}


def feature_label(feature: str) -> str:
    """Return what people call a feature: `fp16 arithmetic` for `fp16arith`."""
    return _WORDS[feature][0] if feature in _WORDS else feature


def meaning(feature: str) -> str:
    """Return what a feature does, in a few words; empty where nobody wrote it down."""
    return _WORDS[feature][1] if feature in _WORDS else ""
