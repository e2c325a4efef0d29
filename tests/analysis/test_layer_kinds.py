"""Operators of a transformer are of a kind that their module, their name or what they feed tells, or of none."""

from model_profiling.analysis.llm.phases import kind_of, layer_kinds, of_module
from model_profiling.analysis.timing.breakdown import Breakdown, InstanceTime, SourceLine, Spread
from model_profiling.analysis.timing.profile import Where

# Of ExecuTorch's own transformer, Hugging Face, GPT-2, GPT-NeoX and BERT: `output` inside a block is no head.
PATHS: dict[str, tuple[str, ...]] = {
    "embedding": (
        "tok_embeddings",
        "model.embed_tokens",
        "transformer.wte",
    ),
    "attention": (
        *("layers.0.attention.wq", "layers.11.attention.rope.apply_rotary_emb"),
        *("model.layers.3.self_attn.q_proj", "model.rotary_emb", "transformer.h.0.attn.c_attn"),
        *("gpt_neox.layers.0.attention.dense", "encoder.layer.0.attention.output.dense"),
    ),
    "norm": (
        *("layers.0.attention.q_norm_fn", "layers.0.attention_norm", "layers.0.ffn_norm", "norm"),
        *("model.layers.3.self_attn.k_norm", "model.layers.3.input_layernorm"),
        *("model.layers.3.post_attention_layernorm", "model.norm", "transformer.h.0.ln_1", "transformer.ln_f"),
    ),
    "cache": ("layers.0.attention.kv_cache",),
    "MLP": (
        *("layers.0.feed_forward.w2", "model.layers.3.mlp.gate_proj", "model.layers.3.mlp.act_fn"),
        *("transformer.h.0.mlp.c_fc", "block_sparse_moe.experts.3.w1"),
    ),
    "other": (
        "layers.0",
        "encoder.layer.0.output.dense",
        "",
    ),
    "head": (
        "output",
        "lm_head",
        "model.lm_head",
        "embed_out",
    ),
}


def test_a_module_path_tells_the_kind_from_the_inside_out() -> None:
    for kind, paths in PATHS.items():
        assert {path: of_module(path) for path in paths} == dict.fromkeys(paths, kind)


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
