# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The smallest models: one layer and a function that the test gives, or a few layers."""

import torch
from torch import nn


class Around(nn.Module):
    """``function(layer, x)``"""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)
        self.function = function
        self.eval()

    def forward(self, x):
        return self.function(self.layer, x)


class After(Around):
    """``function(layer(x))``"""

    def forward(self, x):
        return self.function(self.layer(x))


def mlp(layers=6, width=64):
    torch.manual_seed(0)
    body = [m for _ in range(layers) for m in (nn.Linear(width, width), nn.Tanh())]
    return nn.Sequential(*body).eval(), torch.randn(4, width)
