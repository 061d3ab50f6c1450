# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Models of real size with random weights, for benchmarks."""

import torch
import torch.nn as nn


def gpt2_small(batch, length=64):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config()).eval()
    return model, (), {"input_ids": torch.randint(0, 50257, (batch, length))}


def bert_base(batch, length=64):
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig()).eval()
    return model, (), {"input_ids": torch.randint(0, 30522, (batch, length))}


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        outside = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outside, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.body(x)
        y += self.shortcut(x)
        return self.relu(y)


class ResNet50(nn.Module):
    """The shape of ResNet-50: bottlenecks of 3, 4, 6, 3 blocks, in-place ReLU and addition."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks, inside = [], 64
        for stage, (width, count) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
            for i in range(count):
                blocks.append(Bottleneck(inside, width, 2 if i == 0 and stage > 0 else 1))
                inside = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inside, 1000)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def resnet50(batch, size=224):
    return ResNet50().eval(), (torch.randn(batch, 3, size, size),), {}


def _text(vocabulary, batch, length):
    return {"input_ids": torch.randint(3, vocabulary, (batch, length))}


def transformers_text(name, config, length=64, dtype=torch.float32, **sizes):
    """A factory for a model that takes token ids, from a configuration with random weights."""

    def make(batch, length=length):
        import transformers

        made = getattr(transformers, config)(**sizes)
        model = getattr(transformers, name)(made).eval().to(dtype)
        call = _text(made.vocab_size, batch, length)
        if made.is_encoder_decoder:
            call["decoder_input_ids"] = torch.randint(3, made.vocab_size, (batch, length // 2))
        return model, (), call

    return make


def transformers_image(name, config, size=224, **sizes):
    def make(batch):
        import transformers

        model = getattr(transformers, name)(getattr(transformers, config)(**sizes)).eval()
        return model, (), {"pixel_values": torch.randn(batch, 3, size, size)}

    return make


def torchvision_model(name, size=224):
    def make(batch):
        import torchvision

        model = getattr(torchvision.models, name)(weights=None).eval()
        return model, (torch.randn(batch, 3, size, size),), {}

    return make


def _decoder(layers, hidden, heads, groups, inner, vocabulary=32000):
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "intermediate_size": inner,
        "vocab_size": vocabulary,
    }


bf16 = torch.bfloat16
llama_like = transformers_text(
    "LlamaForCausalLM",
    "LlamaConfig",
    dtype=bf16,
    max_position_embeddings=8192,
    **_decoder(8, 2048, 16, 8, 5632),
)
qwen2_like = transformers_text(
    "Qwen2ForCausalLM",
    "Qwen2Config",
    dtype=bf16,
    max_position_embeddings=8192,
    **_decoder(12, 896, 14, 2, 4864, 50000),
)
bert_bf16 = transformers_text("BertModel", "BertConfig", dtype=bf16)
gpt2_bf16 = transformers_text("GPT2LMHeadModel", "GPT2Config", dtype=bf16)

MODELS = {"GPT-2 small": gpt2_small, "BERT base": bert_base, "ResNet-50-style": resnet50}

# What a stage at batch 1 is measured on.
LAUNCH_BOUND = {
    **MODELS,
    "Llama-like bf16": llama_like,
    "Qwen2-like bf16": qwen2_like,
    "RoBERTa base": transformers_text("RobertaModel", "RobertaConfig"),
    "DistilBERT": transformers_text("DistilBertModel", "DistilBertConfig"),
    "ALBERT base": transformers_text(
        "AlbertModel",
        "AlbertConfig",
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=3072,
    ),
    "ELECTRA small": transformers_text("ElectraModel", "ElectraConfig"),
    "OPT-125M-like": transformers_text("OPTForCausalLM", "OPTConfig"),
    "Mistral-like bf16": transformers_text(
        "MistralForCausalLM", "MistralConfig", dtype=bf16, **_decoder(8, 1024, 16, 8, 3584)
    ),
    "GPT-NeoX-like": transformers_text(
        "GPTNeoXForCausalLM",
        "GPTNeoXConfig",
        num_hidden_layers=12,
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=3072,
    ),
    "T5 small": transformers_text(
        "T5ForConditionalGeneration", "T5Config", decoder_start_token_id=0
    ),
    "BART base": transformers_text(
        "BartForConditionalGeneration",
        "BartConfig",
        d_model=768,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
    ),
    "ViT-B/16": transformers_image("ViTModel", "ViTConfig"),
    "Swin-T": transformers_image("SwinModel", "SwinConfig"),
    "ConvNeXt-T": transformers_image("ConvNextModel", "ConvNextConfig"),
}

# The same, for machines that have torchvision.
TORCHVISION = (
    "resnet18",
    "resnet50",
    "densenet121",
    "efficientnet_b0",
    "mobilenet_v3_large",
    "vit_b_16",
    "swin_t",
    "convnext_tiny",
    "googlenet",
    "inception_v3",
    "mnasnet1_0",
    "regnet_y_400mf",
    "resnext50_32x4d",
    "shufflenet_v2_x1_0",
    "squeezenet1_1",
    "vgg11",
)

# Long inputs: models with the length of one sequence.
LONG = {
    "BERT base bf16": (bert_bf16, 512),
    "GPT-2 small bf16": (gpt2_bf16, 1024),
    "Llama-like bf16": (llama_like, 2048),
    "Qwen2-like bf16": (qwen2_like, 2048),
}
