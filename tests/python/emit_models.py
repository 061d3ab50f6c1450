# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Models whose stages are written into files: `make_*` give a model and the arguments of a call."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        dropout = 0.1 if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, 4)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1)
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Decoder(nn.Module):
    """A small GPT; the head has the weight of the embedding."""

    def __init__(self, width=32, blocks=2, words=50, length=16):
        super().__init__()
        self.wte = nn.Embedding(words, width)
        self.wpe = nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width) for _ in range(blocks))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids, targets=None):
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.wte(ids) + self.wpe(places)
        for block in self.h:
            x = block(x)
        logits = self.head(self.ln_f(x))
        if targets is None:
            return logits
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_decoder():
    torch.manual_seed(0)
    return Decoder().eval(), (torch.randint(50, (2, 8)),), {}


def make_decoder_with_loss():
    torch.manual_seed(0)
    ids = torch.randint(50, (2, 8))
    return Decoder().eval(), (ids,), {"targets": ids.clone()}


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)

    def forward(self, x):
        y = self.bn(self.conv(x))
        y += x
        return F.relu(y, inplace=True)


class Cnn(nn.Module):
    """Batch norms and operators in place."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(Residual(8), Residual(8))
        self.fc = nn.Linear(8, 10)

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x)).mean((2, 3)))


def make_cnn():
    torch.manual_seed(0)
    return Cnn().eval(), (torch.randn(4, 3, 16, 16),), {}


class Router(nn.Module):
    """Looks at its numbers: no trace can hold it."""

    def __init__(self):
        super().__init__()
        self.low = nn.Linear(8, 8)
        self.high = nn.Linear(8, 8)

    def forward(self, x):
        return self.high(x) if x.sum() > 0 else self.low(x)


class Packed(nn.Module):
    """An LSTM between packing and unpacking."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 8, batch_first=True)

    def forward(self, x):
        lengths = torch.full((x.shape[0],), x.shape[1])
        pack = nn.utils.rnn.pack_padded_sequence
        packed = pack(x, lengths, batch_first=True, enforce_sorted=False)
        packed, (state, _) = self.lstm(packed)
        return nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)[0], state


class Mixed(nn.Module):
    """Modules that run as they are, between others."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.router = Router()
        self.packed = Packed()
        self.down = nn.Linear(8, 2)

    def forward(self, x):
        x, state = self.packed(self.router(self.up(x)))
        return {"y": self.down(x), "state": state}


def make_mixed():
    torch.manual_seed(0)
    return Mixed().eval(), (torch.randn(3, 5, 4),), {}
