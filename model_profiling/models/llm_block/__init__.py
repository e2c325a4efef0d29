from model_profiling.models import register_model

for phase, words in (("prefill", "128 tokens at once"), ("decode", "one token after 127 others")):
    register_model(
        f"llm_block_{phase}",
        f"model_profiling.models.llm_block.model:{phase.capitalize()}Model",
        f"one block of a small language model, {words}; random weights",
        parameters="6.3 M",
        dtypes=("fp32", "fp16", "int8-dynamic", "int4", "int4-channel"),
    )
