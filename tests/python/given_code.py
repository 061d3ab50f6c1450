# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Symbolic traces of code that a test gives."""

import torch
from torch import nn

from kerf.symbolic import symbolic_trace


class Model(nn.Module):
    """A linear layer and a forward that a test gives."""

    def __init__(self, forward, **attributes):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.code = forward
        for name, item in attributes.items():
            setattr(self, name, item)

    def forward(self, x):
        return self.code(self, x)


def x(batch=4):
    return torch.randn(batch, 8)


def trace(forward, **attributes):
    return symbolic_trace(Model(forward, **attributes), meta_args={"x": x()})
