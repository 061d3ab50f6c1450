# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The smallest models: one layer, and a function that the test gives."""

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
