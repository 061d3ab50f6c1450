# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Small convolutional networks, one of each family, written for the tests. ``FAMILIES`` maps names
to classes without arguments; each takes images of 3 channels and 32 or more pixels a side."""

import torch
import torch.nn.functional as F
from torch import nn


def conv(inputs, outputs, size=3, stride=1, groups=1, act=nn.ReLU):
    layers = [nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)]
    layers.append(nn.BatchNorm2d(outputs))
    return nn.Sequential(*layers, act()) if act else nn.Sequential(*layers)


class Head(nn.Module):
    def __init__(self, channels, classes=10):
        super().__init__()
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride=1, groups=1):
        super().__init__()
        self.body = nn.Sequential(
            conv(inputs, outputs, 1),
            conv(outputs, outputs, 3, stride, groups),
            conv(outputs, outputs, 1, act=None),
        )
        same = inputs == outputs and stride == 1
        self.short = None if same else conv(inputs, outputs, 1, stride, act=None)

    def forward(self, x):
        identity = x if self.short is None else self.short(x)
        return F.relu(self.body(x) + identity, inplace=True)


class ResNet(nn.Sequential):
    def __init__(self, groups=1):
        blocks = Residual(16, 16), Residual(16, 32, 2, groups), Residual(32, 32, 1, groups)
        super().__init__(conv(3, 16, 7, 2), nn.MaxPool2d(3, 2, 1), *blocks, Head(32))


class ResNeXt(ResNet):
    def __init__(self):
        super().__init__(groups=8)


class InceptionCell(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.one = conv(inputs, 8, 1)
        self.three = nn.Sequential(conv(inputs, 8, 1), conv(8, 8))
        self.five = nn.Sequential(conv(inputs, 8, 1), conv(8, 8, 5))
        self.pool = conv(inputs, 8, 1)

    def forward(self, x):
        pooled = self.pool(F.avg_pool2d(x, 3, 1, 1))
        return torch.cat([self.one(x), self.three(x), self.five(x), pooled], 1)


class Inception(nn.Module):
    """With a second head that is there in training alone."""

    def __init__(self):
        super().__init__()
        self.stem, self.a, self.b = conv(3, 16, 3, 2), InceptionCell(16), InceptionCell(32)
        self.aux, self.head = Head(32), Head(32)

    def forward(self, x):
        x = self.a(self.stem(x))
        aux = self.aux(x) if self.training else None
        x = self.head(F.dropout(self.b(x), 0.4, self.training))
        return (x, aux) if aux is not None else x


class DenseLayer(nn.Module):
    def __init__(self, inputs, growth):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, growth, 3, padding=1)

    def forward(self, features):
        return self.conv(F.relu(self.norm(torch.cat(features, 1))))


class DenseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = conv(3, 16, 3, 2)
        self.layers = nn.ModuleList(DenseLayer(16 + 8 * i, 8) for i in range(4))
        self.head = Head(48)

    def forward(self, x):
        features = [self.stem(x)]
        for layer in self.layers:
            features.append(layer(features))
        return self.head(torch.cat(features, 1))


class Inverted(nn.Module):
    def __init__(self, inputs, outputs, stride=1, expand=4, act=nn.ReLU6, squeeze=False):
        super().__init__()
        hidden = inputs * expand
        self.use_short = stride == 1 and inputs == outputs
        self.expand = conv(inputs, hidden, 1, act=act)
        self.depth = conv(hidden, hidden, 3, stride, hidden, act)
        self.squeeze = nn.Conv2d(hidden, hidden, 1) if squeeze else None
        self.project = conv(hidden, outputs, 1, act=None)

    def forward(self, x):
        y = self.depth(self.expand(x))
        if self.squeeze is not None:
            y = y * torch.sigmoid(self.squeeze(y.mean((2, 3), keepdim=True)))
        y = self.project(y)
        return x + y if self.use_short else y


class MobileNet(nn.Sequential):
    def __init__(self):
        stages = Inverted(8, 8), Inverted(8, 16, 2), Inverted(16, 16)
        super().__init__(conv(3, 8, 3, 2, act=nn.ReLU6), *stages, nn.Dropout(0.2), Head(16))


class EfficientNet(nn.Sequential):
    def __init__(self):
        options = {"act": nn.SiLU, "squeeze": True}
        stages = Inverted(8, 8, **options), Inverted(8, 16, 2, **options)
        super().__init__(conv(3, 8, 3, 2, act=nn.SiLU), *stages, Head(16))


class ConvNeXtBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.depth = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x):
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 16, 4, 4), ConvNeXtBlock(16), ConvNeXtBlock(16), Head(16))


class ShuffleUnit(nn.Module):
    def __init__(self, channels):
        super().__init__()
        half = channels // 2
        depth = conv(half, half, 3, 1, half, None)
        self.branch = nn.Sequential(conv(half, half, 1), depth, conv(half, half, 1))

    def forward(self, x):
        left, right = x.chunk(2, dim=1)
        x = torch.cat((left, self.branch(right)), 1)
        batch, channels, height, width = x.size()
        x = x.view(batch, 2, channels // 2, height, width).transpose(1, 2).contiguous()
        return x.view(batch, -1, height, width)


class ShuffleNet(nn.Sequential):
    def __init__(self):
        super().__init__(conv(3, 16, 3, 2), ShuffleUnit(16), ShuffleUnit(16), Head(16))


FAMILIES = {
    cls.__name__: cls
    for cls in (
        ResNet,
        ResNeXt,
        Inception,
        DenseNet,
        MobileNet,
        EfficientNet,
        ConvNeXt,
        ShuffleNet,
    )
}
