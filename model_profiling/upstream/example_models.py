"""ExecuTorch's example models, which its wheel contains and its documentation calls examples."""

import importlib
from typing import Any

from model_profiling.upstream.reliance import holds, installed_version, lacking, reliance, require

ZOO_PACKAGE = "executorch.examples.models"
_LLAMA = f"{ZOO_PACKAGE}.llama"
_SAM = f"{ZOO_PACKAGE}.efficient_sam"
LLAMA_ARGUMENTS = (
    *("dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "head_dim", "vocab_size", "norm_eps", "rope_theta"),
    *("use_hf_rope", "use_qk_norm", "qk_norm_before_rope", "max_seq_len", "max_context_len", "use_kv_cache"),
    *("use_sdpa_with_kv_cache_op", "enable_dynamic_shape"),
)


def zoo_table() -> dict[str, tuple[str, str]]:
    """Map names of ExecuTorch's example models to a module and a class; empty where they are not known."""
    try:
        # Holds only a table: importing it brings in neither torch nor the models.
        return dict(importlib.import_module(ZOO_PACKAGE).MODEL_NAME_TO_MODEL) if holds(ZOO) else {}
    except (ImportError, AttributeError):
        return {}


def llama_transformer(arguments: dict[str, Any]) -> Any:
    """Build ExecuTorch's transformer as `export_llm` builds it."""
    require(LLAMA)
    model_args, transformer = _module(_LLAMA, "model_args"), _module(_LLAMA, "llama_transformer")
    return transformer.construct_transformer(model_args.ModelArgs(**arguments))


def with_llama_operators(model: Any) -> Any:
    """Replace operators by ExecuTorch's own in the order of export_llm: attention first, then the cache."""
    require(LLAMA)
    cache, attention = (_module(_LLAMA, f"source_transformation.{name}") for name in ("custom_kv_cache", "sdpa"))
    return cache.replace_kv_cache_with_custom_kv_cache(attention.replace_sdpa_with_custom_op(model))


def efficient_sam(**arguments: int) -> Any:
    """Build ExecuTorch's EfficientSAM, without downloading weights."""
    require(EFFICIENT_SAM)
    return _module(_SAM, "efficient_sam_core.efficient_sam").build_efficient_sam(**arguments)


def efficient_sam_inputs() -> tuple[Any, ...]:
    """Return the example inputs of ExecuTorch's EfficientSAM."""
    require(EFFICIENT_SAM)
    inputs: tuple[Any, ...] = _module(_SAM, "model").EfficientSAM().get_example_inputs()
    return inputs


def _module(package: str, name: str) -> Any:
    return importlib.import_module(f"{package}.{name}")


def _check_zoo() -> str:
    installed_version("executorch")
    table = importlib.import_module(ZOO_PACKAGE).MODEL_NAME_TO_MODEL
    pairs = all(isinstance(text, str) for name, entry in table.items() for text in (name, *entry))
    same = bool(table) and pairs and all(len(entry) == 2 for entry in table.values())
    return "" if same else f"{ZOO_PACKAGE}.MODEL_NAME_TO_MODEL is no table of modules and classes"


ZOO = reliance("example-models", _check_zoo)
LLAMA = reliance(
    "example-llama",
    lambda: lacking(
        f"{_LLAMA}.model_args:ModelArgs({', '.join(LLAMA_ARGUMENTS)})",
        f"{_LLAMA}.llama_transformer:construct_transformer",
        f"{_LLAMA}.source_transformation.custom_kv_cache:replace_kv_cache_with_custom_kv_cache",
        f"{_LLAMA}.source_transformation.sdpa:replace_sdpa_with_custom_op",
    ),
)
EFFICIENT_SAM = reliance(
    "example-efficient-sam",
    lambda: lacking(
        f"{_SAM}.efficient_sam_core.efficient_sam:build_efficient_sam(encoder_patch_embed_dim, encoder_num_heads)",
        f"{_SAM}.model:EfficientSAM",
    ),
)
