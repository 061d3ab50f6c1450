# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Architectures of transformers that generate text, six layers each, from small configs.

``build(name)`` gives a model in eval mode and the arguments of a ``generate`` call. What they are
between them: learned, rotary, ALiBi, relative, sinusoidal and no positions; tied and untied heads;
multi-head, grouped and multi-query attention, latent attention, sliding windows; dense and routed;
state spaces, linear recurrences and hybrids; decoders alone, and with encoders of text and sound.
"""

import torch

_SMALL = dict(
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=6,
    num_attention_heads=4,
    vocab_size=64,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
_GROUPED = dict(num_key_value_heads=2)
_HEADS = dict(num_key_value_heads=2, head_dim=8)
_GPT = dict(n_embd=32, n_layer=6, n_head=4, n_positions=64, n_inner=64)
_SEQ2SEQ = dict(
    d_model=32,
    encoder_layers=4,
    decoder_layers=4,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=64,
    decoder_ffn_dim=64,
    decoder_start_token_id=2,
    forced_eos_token_id=None,
)
_T5 = dict(d_model=32, d_ff=64, d_kv=8, num_layers=4, num_heads=4, decoder_start_token_id=0)
_MIXED = ["linear_attention", "linear_attention", "full_attention"] * 2

# Class names without "Config" and "ForCausalLM"; what the config has besides.
DECODERS = {
    "gpt2": ("GPT2", "GPT2LMHeadModel", _GPT),
    "gpt_neo": (
        "GPTNeo",
        "",
        dict(num_layers=6, num_heads=4, attention_types=[[["global", "local"], 3]], window_size=4),
    ),
    "gpt_neox": ("GPTNeoX", "", {}),
    "gptj": ("GPTJ", "", {**_GPT, "rotary_dim": 4}),
    "gpt_bigcode": ("GPTBigCode", "", {**_GPT, "multi_query": True}),
    "codegen": ("CodeGen", "", {**_GPT, "rotary_dim": 4}),
    "openai_gpt": ("OpenAIGPT", "OpenAIGPTLMHeadModel", _GPT),
    "ctrl": ("CTRL", "CTRLLMHeadModel", {**_GPT, "dff": 64}),
    "opt": ("OPT", "", dict(ffn_dim=64, word_embed_proj_dim=32)),
    "bloom": ("Bloom", "", dict(n_layer=6, n_head=4)),
    "mpt": ("Mpt", "", dict(d_model=32, n_layers=6, n_heads=4, max_seq_len=64, expansion_ratio=2)),
    "falcon": ("Falcon", "", {}),
    "falcon_alibi": ("Falcon", "", dict(alibi=True, multi_query=False)),
    "biogpt": ("BioGpt", "", {}),
    "xglm": ("XGLM", "", dict(d_model=32, ffn_dim=64, num_layers=6, attention_heads=4)),
    "llama": ("Llama", "", {**_GROUPED, "tie_word_embeddings": True}),
    "llama_untied": ("Llama", "", {**_GROUPED, "attention_bias": True}),
    "mistral": ("Mistral", "", {**_GROUPED, "sliding_window": 4}),
    "qwen2": ("Qwen2", "", _GROUPED),
    "qwen3": ("Qwen3", "", _HEADS),
    "gemma": ("Gemma", "", {**_HEADS, "num_key_value_heads": 1}),
    "gemma2": ("Gemma2", "", {**_HEADS, "sliding_window": 4}),
    "gemma3": ("Gemma3Text", "Gemma3ForCausalLM", {**_HEADS, "sliding_window": 4}),
    "phi": ("Phi", "", {}),
    "phi3": ("Phi3", "", _GROUPED),
    "stablelm": ("StableLm", "", dict(num_key_value_heads=4)),
    "starcoder2": ("Starcoder2", "", _GROUPED),
    "olmo2": ("Olmo2", "", _GROUPED),
    "cohere": ("Cohere", "", _GROUPED),
    "granite": ("Granite", "", _GROUPED),
    "nemotron": ("Nemotron", "", _HEADS),
    "persimmon": ("Persimmon", "", {}),
    "glm": ("Glm", "", _HEADS),
    "smollm3": ("SmolLM3", "", _GROUPED),
    "helium": ("Helium", "", _HEADS),
    "mixtral": ("Mixtral", "", {**_GROUPED, "num_local_experts": 4}),
    "olmoe": ("Olmoe", "", {**_GROUPED, "num_experts": 4, "num_experts_per_tok": 2}),
    "qwen2_moe": (
        "Qwen2Moe",
        "",
        {
            **_GROUPED,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 32,
        },
    ),
    "gpt_oss": (
        "GptOss",
        "",
        {**_HEADS, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4},
    ),
    "deepseek_v3": (
        "DeepseekV3",
        "",
        dict(
            q_lora_rank=16,
            kv_lora_rank=16,
            qk_nope_head_dim=8,
            qk_rope_head_dim=8,
            v_head_dim=8,
            n_routed_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            n_group=1,
            topk_group=1,
            first_k_dense_replace=2,
            num_key_value_heads=4,
        ),
    ),
    "mamba": ("Mamba", "", dict(state_size=4, expand=2, time_step_rank=2)),
    "mamba2": (
        "Mamba2",
        "",
        dict(state_size=8, expand=2, num_heads=8, head_dim=8, n_groups=1, chunk_size=4),
    ),
    "falcon_mamba": ("FalconMamba", "", dict(state_size=4, expand=2, time_step_rank=2)),
    "recurrent_gemma": (
        "RecurrentGemma",
        "",
        {**_HEADS, "num_key_value_heads": 1, "lru_width": 32, "attention_window_size": 8},
    ),
    "jamba": (
        "Jamba",
        "",
        {
            **_GROUPED,
            "num_experts": 2,
            "attn_layer_period": 3,
            "attn_layer_offset": 1,
            "expert_layer_period": 3,
            "expert_layer_offset": 2,
            "mamba_d_state": 4,
            "mamba_dt_rank": 2,
            "use_mamba_kernels": False,
        },
    ),
    "qwen3_next": (
        "Qwen3Next",
        "",
        {
            **_HEADS,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 32,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "layer_types": _MIXED,
        },
    ),
}
ENCODER_DECODERS = {
    "t5": ("T5", "T5ForConditionalGeneration", _T5),
    "t5_gated": (
        "T5",
        "T5ForConditionalGeneration",
        {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    "umt5": ("UMT5", "UMT5ForConditionalGeneration", _T5),
    "long_t5": ("LongT5", "LongT5ForConditionalGeneration", {**_T5, "local_radius": 4}),
    "switch": (
        "SwitchTransformers",
        "SwitchTransformersForConditionalGeneration",
        {
            **_T5,
            "num_experts": 2,
            "num_sparse_encoder_layers": 2,
            "num_sparse_decoder_layers": 2,
            "num_decoder_layers": 4,
        },
    ),
    "bart": ("Bart", "BartForConditionalGeneration", _SEQ2SEQ),
    "mbart": ("MBart", "MBartForConditionalGeneration", _SEQ2SEQ),
    "pegasus": ("Pegasus", "PegasusForConditionalGeneration", _SEQ2SEQ),
    "marian": ("Marian", "MarianMTModel", _SEQ2SEQ),
    "m2m_100": ("M2M100", "M2M100ForConditionalGeneration", _SEQ2SEQ),
    "blenderbot": ("Blenderbot", "BlenderbotForConditionalGeneration", _SEQ2SEQ),
    "led": (
        "LED",
        "LEDForConditionalGeneration",
        {
            **_SEQ2SEQ,
            "attention_window": 4,
            "max_encoder_position_embeddings": 64,
            "max_decoder_position_embeddings": 64,
        },
    ),
    "prophetnet": (
        "ProphetNet",
        "ProphetNetForConditionalGeneration",
        dict(
            num_encoder_layers=4,
            num_decoder_layers=4,
            num_encoder_attention_heads=4,
            num_decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            decoder_start_token_id=2,
            num_hidden_layers=...,  # it has none
        ),
    ),
    "whisper": (
        "Whisper",
        "WhisperForConditionalGeneration",
        {
            **_SEQ2SEQ,
            "num_mel_bins": 16,
            "max_source_positions": 20,
            "max_target_positions": 32,
            "suppress_tokens": None,
            "begin_suppress_tokens": None,
        },
    ),
}
ALL = [*DECODERS, *ENCODER_DECODERS]


def build(name, seed=0):
    """A model, and the arguments of its ``generate``."""
    import transformers

    torch.manual_seed(seed)
    prefix, cls, more = {**DECODERS, **ENCODER_DECODERS}[name]
    fields = {key: value for key, value in {**_SMALL, **more}.items() if value is not ...}
    config = getattr(transformers, f"{prefix}Config")(**fields)
    model = getattr(transformers, cls or f"{prefix}ForCausalLM")(config).eval()
    torch.manual_seed(seed)
    if name == "whisper":
        return model, {"input_features": torch.randn(2, 16, 40)}
    ids = torch.randint(3, 64, (2, 9))
    ids[1, :3] = 0  # a shorter text, as tokenizers pad it
    return model, {"input_ids": ids, "attention_mask": (ids != 0).long()}
