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


MODELS = {"GPT-2 small": gpt2_small, "BERT base": bert_base, "ResNet-50-style": resnet50}
