# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The models of `times.py cpu`: transformers' architectures from configs, nothing downloaded.

Weights are random (seed 0). Between them they are bound by arithmetic (ResNet, BERT at batch 8), by
memory (GPT-2 and LLaMA at batch 1, where each weight is read for a few rows) and by the number of
operators (Mamba's scan, T5 at batch 1).
"""

import torch
import transformers as t

VOCABULARY = 8192


def _text(config, model, **more):
    return model(config(vocab_size=VOCABULARY, use_cache=False, **more))


def _bert(**more):
    return t.BertForMaskedLM(t.BertConfig(vocab_size=VOCABULARY, **more))


LAYERS = {"num_hidden_layers": 4}
DECODER = {**LAYERS, "hidden_size": 768, "intermediate_size": 2048, "num_attention_heads": 12}

BUILD = {
    "gpt2": lambda: _text(t.GPT2Config, t.GPT2LMHeadModel, n_layer=6),
    "bert": lambda: _bert(**LAYERS),
    "bert_small": lambda: _bert(
        **LAYERS, hidden_size=256, intermediate_size=1024, num_attention_heads=4
    ),
    "llama": lambda: _text(t.LlamaConfig, t.LlamaForCausalLM, **DECODER, num_key_value_heads=4),
    "t5": lambda: t.T5ForConditionalGeneration(
        t.T5Config(vocab_size=VOCABULARY, num_layers=3, use_cache=False)
    ),
    "mamba": lambda: _text(t.MambaConfig, t.MambaForCausalLM, hidden_size=256, num_hidden_layers=4),
    "resnet18": lambda: t.ResNetForImageClassification(
        t.ResNetConfig(layer_type="basic", hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2])
    ),
    "mobilenet_v2": lambda: t.MobileNetV2ForImageClassification(t.MobileNetV2Config()),
    "convnext": lambda: t.ConvNextForImageClassification(t.ConvNextConfig(depths=[2, 2, 4, 2])),
    "vit": lambda: t.ViTForImageClassification(t.ViTConfig(num_hidden_layers=6)),
    "swin": lambda: t.SwinForImageClassification(t.SwinConfig(depths=[2, 2, 2, 2])),
}
IMAGES = ("resnet18", "mobilenet_v2", "convnext", "vit", "swin")

# Model, batch, tokens of a sequence (or the side of an image).
CASES = (
    ("gpt2", 1, 16),
    ("gpt2", 8, 32),
    ("bert", 1, 256),
    ("bert", 8, 64),
    ("bert_small", 32, 32),
    ("llama", 1, 128),
    ("llama", 8, 32),
    ("t5", 1, 32),
    ("t5", 8, 32),
    ("mamba", 8, 16),
    ("resnet18", 8, 128),
    ("resnet18", 32, 64),
    ("mobilenet_v2", 8, 128),
    ("convnext", 8, 96),
    ("vit", 1, 224),
    ("swin", 1, 224),
)


def label(name, batch, size):
    return f"{name} {batch}x{size}"


def make(name):
    torch.manual_seed(0)
    return BUILD[name]().eval()


def inputs_of(name, batch, size):
    """A model's keyword arguments."""
    torch.manual_seed(1)
    if name in IMAGES:
        return {"pixel_values": torch.randn(batch, 3, size, size)}
    ids = torch.randint(0, VOCABULARY, (batch, size))
    return {"input_ids": ids, "decoder_input_ids": ids} if name == "t5" else {"input_ids": ids}
