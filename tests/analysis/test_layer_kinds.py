"""Operators of a transformer are of a kind that their module, their name or what they feed tells, or of none."""

import pytest

from model_profiling.analysis.llm.layer_kinds import kind_of, layer_kinds, of_module
from model_profiling.analysis.timing.breakdown import Breakdown, InstanceTime, SourceLine, Spread
from model_profiling.analysis.timing.profile import Where

PATHS = {
    # ExecuTorch's own transformer
    "tok_embeddings": "embedding",
    "layers.0.attention.wq": "attention",
    "layers.11.attention.rope.apply_rotary_emb": "attention",
    "layers.0.attention.q_norm_fn": "norm",
    "layers.0.attention.kv_cache": "cache",
    "layers.0.attention_norm": "norm",
    "layers.0.ffn_norm": "norm",
    "layers.0.feed_forward.w2": "MLP",
    "layers.0": "other",
    "norm": "norm",
    "output": "head",
    # Hugging Face
    "model.embed_tokens": "embedding",
    "model.layers.3.self_attn.q_proj": "attention",
    "model.layers.3.self_attn.k_norm": "norm",
    "model.layers.3.mlp.gate_proj": "MLP",
    "model.layers.3.mlp.act_fn": "MLP",
    "model.layers.3.input_layernorm": "norm",
    "model.layers.3.post_attention_layernorm": "norm",
    "model.rotary_emb": "attention",
    "model.norm": "norm",
    "lm_head": "head",
    "model.lm_head": "head",
    # GPT-2, GPT-NeoX and BERT: `output` inside a block is no head
    "transformer.wte": "embedding",
    "transformer.h.0.attn.c_attn": "attention",
    "transformer.h.0.ln_1": "norm",
    "transformer.h.0.mlp.c_fc": "MLP",
    "transformer.ln_f": "norm",
    "gpt_neox.layers.0.attention.dense": "attention",
    "embed_out": "head",
    "encoder.layer.0.attention.output.dense": "attention",
    "encoder.layer.0.output.dense": "other",
    "block_sparse_moe.experts.3.w1": "MLP",
    "": "other",
}


@pytest.mark.parametrize(("path", "kind"), PATHS.items())
def test_a_module_path_tells_the_kind_from_the_inside_out(path: str, kind: str) -> None:
    assert of_module(path) == kind


def operator(name: str, ms: float, module: str = "", where: Where = "portable") -> InstanceTime:
    source = SourceLine(module, "model.py", 1, "", name) if module else None
    none = Spread(ms, 0.0, ms)
    return InstanceTime(name, name, "Other", "", where, "", "", 0, 0, ms, 0.0, none, source)


def test_what_no_module_tells_the_operator_does_or_nobody() -> None:
    assert kind_of(operator("llama::update_cache.out", 1)) == "cache"
    assert kind_of(operator("llama::custom_sdpa.out", 1)) == "attention"
    assert kind_of(operator("quantized_decomposed::embedding_4bit.out", 1)) == "embedding"
    assert kind_of(operator("index_put.out", 1, "layers.0.attention")) == "cache"
    assert kind_of(operator("index_put.out", 1)) is None
    assert kind_of(operator("Multiply (ND) #1", 1, where="delegated")) is None


def test_kinds_add_up_to_the_whole_with_runtime_and_unknown() -> None:
    rows = [
        operator("llama::custom_sdpa.out", 3.0, "layers.0.attention"),
        operator("Fully Connected (NC, F32) GEMM #1", 4.0, "layers.0.feed_forward.w1", "delegated"),
        operator("delegate call", 2.0, where="runtime"),
        operator("Add (ND) #1", 0.5, where="delegated"),
    ]
    found = layer_kinds(Breakdown(1, 9.5, [], {}, [], rows))
    assert found == {"attention": 3.0, "MLP": 4.0, "runtime": 2.0, "unknown": 0.5}
