# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Twelve models of real size in train mode: those of benchmarks/real_models.py, and three CNNs."""

import sys
from pathlib import Path

import torch
import torch.nn as nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from real_models import LAUNCH_BOUND


class DenseLayer(nn.Module):
    def __init__(self, inputs, growth):
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(inputs, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(inplace=True),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, features):
        return self.body(torch.cat(features, 1))


class DenseBlock(nn.Module):
    def __init__(self, count, inputs, growth):
        super().__init__()
        layers = (DenseLayer(inputs + i * growth, growth) for i in range(count))
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


class DenseNet121(nn.Module):
    """The shape of DenseNet-121: blocks of 6, 12, 24 and 16 layers that see all before them."""

    def __init__(self, growth=32):
        super().__init__()
        width = 64
        parts = [
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        ]
        for number, count in enumerate((6, 12, 24, 16)):
            parts.append(DenseBlock(count, width, growth))
            width += count * growth
            parts += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            if number < 3:
                parts += [nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
                width //= 2
        self.features = nn.Sequential(*parts)
        self.head = nn.Linear(width, 1000)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


class InvertedResidual(nn.Module):
    def __init__(self, inputs, outputs, stride, expand):
        super().__init__()
        inside = inputs * expand
        parts = [] if expand == 1 else _conv(inputs, inside, 1)
        parts += _conv(inside, inside, 3, stride, inside)
        parts += [nn.Conv2d(inside, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.body, self.adds = nn.Sequential(*parts), stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.body(x) if self.adds else self.body(x)


def _conv(inputs, outputs, size, stride=1, groups=1):
    return [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    ]


def mobilenet_v2():
    rows = (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1)
    parts, width = _conv(3, 32, 3, 2), 32
    for expand, outputs, count, stride in (*rows, (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(count):
            parts.append(InvertedResidual(width, outputs, stride if i == 0 else 1, expand))
            width = outputs
    parts += _conv(width, 1280, 1)
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, 1000)]
    return nn.Sequential(*parts, *head)


def vgg16():
    parts, width = [], 3
    for outputs in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
        if outputs:
            parts += [nn.Conv2d(width, outputs, 3, padding=1), nn.ReLU(inplace=True)]
            width = outputs
        else:
            parts.append(nn.MaxPool2d(2))
    head = [nn.Linear(512 * 49, 4096), nn.ReLU(True), nn.Dropout()]
    head += [nn.Linear(4096, 4096), nn.ReLU(True), nn.Dropout(), nn.Linear(4096, 1000)]
    return nn.Sequential(*parts, nn.Flatten(), *head)


def _image(make):
    return lambda batch: (make(), (torch.randn(batch, 3, 224, 224),), {})


NAMES = (
    *("ResNet-50-style", "ConvNeXt-T", "ViT-B/16", "Swin-T"),
    *("GPT-2 small", "BERT base", "Llama-like bf16", "T5 small", "ALBERT base"),
)
MODELS = {
    "DenseNet-121": _image(DenseNet121),
    "MobileNetV2": _image(mobilenet_v2),
    "VGG-16": _image(vgg16),
    **{name: LAUNCH_BOUND[name] for name in NAMES},
}
