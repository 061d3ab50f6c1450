# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Forms of operator calls on three tensors of 16 x 8 numbers between 0.5 and 2.5, each of which has
a rule that says what it keeps for backward: test_saved_forms.py."""

import math

import torch
from torch import nn

F = nn.functional


def idx(*shape, high=4):
    return torch.arange(math.prod(shape)).view(*shape) % high


def img(x):
    return x.view(2, 2, 4, 8)


def square(x):
    return x[:8] + 8 * torch.eye(8, dtype=x.dtype)


def attention(x, y, z, shape, **options):
    return F.scaled_dot_product_attention(*(t.view(*shape) for t in (x, y, z)), **options)


UNARY = """
abs acos asin atan celu cos cosh erf erfc exp exp2 expm1 floor ceil round trunc sign gelu
hardsigmoid hardswish hardtanh leaky_relu lgamma log log10 log1p log2 logsigmoid mish neg
reciprocal relu relu6 rsqrt selu elu sigmoid silu sin sinh softplus softshrink sqrt square tan
tanh
special_expit
""".split()

IN_PLACE = """
abs_ acos_ asin_ atan_ cos_ cosh_ erf_ erfc_ exp_ exp2_ expm1_ floor_ lgamma_ log_ log10_ log1p_
log2_ neg_ reciprocal_ relu_ rsqrt_ sigmoid_ sin_ sinh_ sqrt_ square_ tan_ tanh_
""".split()

REDUCED = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")

# Of the reduction, too.
LOSSES = {
    "soft_margin_loss": lambda x, y, z, r: F.soft_margin_loss(x, y.detach(), reduction=r),
    "multi_margin_loss": lambda x, y, z, r: F.multi_margin_loss(
        x, idx(16), weight=z.detach()[0], reduction=r
    ),
    "bce": lambda x, y, z, r: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction=r),
    "bce logits": lambda x, y, z, r: F.binary_cross_entropy_with_logits(x, y, reduction=r),
    "bce logits weight": lambda x, y, z, r: F.binary_cross_entropy_with_logits(
        x, y, z.detach(), pos_weight=z.detach()[0], reduction=r
    ),
    "nll_loss": lambda x, y, z, r: F.nll_loss(x, idx(16), reduction=r),
    "nll_loss weight": lambda x, y, z, r: F.nll_loss(x, idx(16), z.detach()[0], reduction=r),
    "cross_entropy": lambda x, y, z, r: F.cross_entropy(x, idx(16), reduction=r),
    "cross_entropy smooth": lambda x, y, z, r: F.cross_entropy(
        x, idx(16), label_smoothing=0.1, reduction=r
    ),
    "cross_entropy weight": lambda x, y, z, r: F.cross_entropy(
        x, idx(16), z.detach()[0], reduction=r
    ),
    "cross_entropy smooth weight": lambda x, y, z, r: F.cross_entropy(
        x, idx(16), z.detach()[0], label_smoothing=0.1, reduction=r
    ),
    "cross_entropy ignore": lambda x, y, z, r: F.cross_entropy(
        x, idx(16), ignore_index=0, reduction=r
    ),
    "cross_entropy soft": lambda x, y, z, r: F.cross_entropy(x, y, reduction=r),
    "cross_entropy soft weight": lambda x, y, z, r: F.cross_entropy(
        x, y, z.detach()[0], reduction=r
    ),
    "cross_entropy soft smooth": lambda x, y, z, r: F.cross_entropy(
        x, y, reduction=r, label_smoothing=0.1
    ),
    "cross_entropy 3": lambda x, y, z, r: F.cross_entropy(x.view(4, 8, 4), idx(4, 4), reduction=r),
    "cross_entropy 3 smooth": lambda x, y, z, r: F.cross_entropy(
        x.view(4, 8, 4), idx(4, 4), label_smoothing=0.1, reduction=r
    ),
    "cross_entropy 1": lambda x, y, z, r: F.cross_entropy(x[0], torch.tensor(3), reduction=r),
    "cross_entropy turned": lambda x, y, z, r: F.cross_entropy(
        x.view(4, 4, 8).transpose(1, 2), idx(4, 4), reduction=r
    ),
}

FORMS = {
    "gelu tanh": lambda x, y, z: F.gelu(x, approximate="tanh"),
    "threshold": lambda x, y, z: F.threshold(x, 0.1, 0.2),
    "clamp both": lambda x, y, z: x.clamp(0.1, 0.9),
    "clamp max": lambda x, y, z: x.clamp(max=0.9),
    "clamp tensor min": lambda x, y, z: x.clamp(min=y),
    "clamp tensor max": lambda x, y, z: x.clamp(max=y),
    "clamp tensors": lambda x, y, z: x.clamp(y, z),
    "clamp tensor spread": lambda x, y, z: x.clamp(y[:1], z),
    "clamp_min": lambda x, y, z: x.clamp_min(0.5),
    "clamp_min tensor": lambda x, y, z: x.clamp_min(y),
    "clamp_max": lambda x, y, z: x.clamp_max(0.5),
    "clamp_max tensor": lambda x, y, z: x.clamp_max(y),
    "clip": lambda x, y, z: x.clip(0.1, 0.9),
    "clip tensor": lambda x, y, z: x.clip(y, z),
    "clamp_": lambda x, y, z: x.clamp_(0.1, 0.9),
    "clamp_ tensor": lambda x, y, z: x.clamp_(y, z),
    "clamp_min_": lambda x, y, z: x.clamp_min_(0.5),
    "glu": lambda x, y, z: F.glu(x),
    "prelu": lambda x, y, z: F.prelu(x, y[0]),
    "prelu1": lambda x, y, z: F.prelu(x, y[0, :1]),
    "mul": lambda x, y, z: x * y,
    "mul spread": lambda x, y, z: x[:1] * y,
    "mul number": lambda x, y, z: x * 2.0,
    "mul self": lambda x, y, z: x * x,
    "mul 0-dim": lambda x, y, z: x * y.sum(),
    "mul_": lambda x, y, z: x.mul_(y),
    "mul_ number": lambda x, y, z: x.mul_(2.0),
    "mul bool": lambda x, y, z: x * (y > 1),
    "div": lambda x, y, z: x / y,
    "div spread": lambda x, y, z: x / y[:1],
    "div number": lambda x, y, z: x / 3.0,
    "div of number": lambda x, y, z: 3.0 / x,
    "div_": lambda x, y, z: x.div_(y),
    "div floor": lambda x, y, z: torch.div(x, y, rounding_mode="floor"),
    "div trunc": lambda x, y, z: torch.div(x, y, rounding_mode="trunc"),
    "div trunc number": lambda x, y, z: torch.div(x, 2.0, rounding_mode="trunc"),
    "floor_divide": lambda x, y, z: x // y,
    "pow 2": lambda x, y, z: x**2,
    "pow 1": lambda x, y, z: x**1,
    "pow 0": lambda x, y, z: x**0,
    "pow .5": lambda x, y, z: x**0.5,
    "pow -1": lambda x, y, z: x ** (-1),
    "pow 3": lambda x, y, z: x**3,
    "pow tensor": lambda x, y, z: x**y,
    "pow of number": lambda x, y, z: 2.0**x,
    "pow_": lambda x, y, z: x.pow_(2),
    "pow_ tensor": lambda x, y, z: x.pow_(y),
    "pow spread": lambda x, y, z: x[:1] ** y,
    "add": lambda x, y, z: x + y,
    "add alpha": lambda x, y, z: torch.add(x, y, alpha=2),
    "sub": lambda x, y, z: x - y[:1],
    "rsub": lambda x, y, z: 1 - x,
    "add_": lambda x, y, z: x.add_(y),
    "maximum": lambda x, y, z: torch.maximum(x, y),
    "minimum": lambda x, y, z: torch.minimum(x, y[:1]),
    "fmax": lambda x, y, z: torch.fmax(x, y),
    "fmin": lambda x, y, z: torch.fmin(x, y),
    "atan2": lambda x, y, z: torch.atan2(x, y),
    "atan2_": lambda x, y, z: x.atan2_(y),
    "max": lambda x, y, z: x.max(),
    "max dim": lambda x, y, z: x.max(1).values,
    "max dim both": lambda x, y, z: x.max(1),
    "max other": lambda x, y, z: torch.max(x, y),
    "min": lambda x, y, z: x.min(),
    "min dim": lambda x, y, z: x.min(0).values,
    "min other": lambda x, y, z: torch.min(x, y),
    "amax": lambda x, y, z: x.amax(1),
    "amin": lambda x, y, z: x.amin((0, 1)),
    "amax keep": lambda x, y, z: x.amax(1, keepdim=True),
    "addcmul": lambda x, y, z: torch.addcmul(x, y, z, value=0.5),
    "addcdiv": lambda x, y, z: torch.addcdiv(x, y, z, value=0.5),
    "addcmul_": lambda x, y, z: x.addcmul_(y, z),
    "addcdiv_": lambda x, y, z: x.addcdiv_(y, z),
    "lerp": lambda x, y, z: torch.lerp(x, y, 0.3),
    "lerp tensor": lambda x, y, z: torch.lerp(x, y, z),
    "lerp_": lambda x, y, z: x.lerp_(y, z),
    "dropout": lambda x, y, z: F.dropout(x, 0.3),
    "dropout 0": lambda x, y, z: F.dropout(x, 0.0),
    "dropout 1": lambda x, y, z: F.dropout(x, 1.0),
    "dropout eval": lambda x, y, z: F.dropout(x, 0.3, False),
    "dropout in place": lambda x, y, z: F.dropout(x, 0.3, inplace=True),
    "native_dropout": lambda x, y, z: torch.native_dropout(x, 0.3, True)[0],
    "where": lambda x, y, z: torch.where(x > 1, y, z),
    "where number": lambda x, y, z: torch.where(x > 1, y, 0.0),
    "where spread": lambda x, y, z: torch.where(x[:1] > 1, y, z[:, :1]),
    "masked_fill": lambda x, y, z: x.masked_fill(y > 1, 0.0),
    "masked_fill tensor": lambda x, y, z: x.masked_fill(y > 1, z.sum()),
    "masked_fill_": lambda x, y, z: x.masked_fill_(y > 1, 0.0),
    "masked_fill spread": lambda x, y, z: x.masked_fill(y[:1] > 1, 0.0),
    "softmax": lambda x, y, z: x.softmax(-1),
    "softmax dtype": lambda x, y, z: F.softmax(x, -1, dtype=torch.float32),
    "log_softmax": lambda x, y, z: x.log_softmax(0),
    "log_softmax dtype": lambda x, y, z: F.log_softmax(x, -1, dtype=torch.float64),
    "mm": lambda x, y, z: torch.mm(x, y.t()),
    "bmm": lambda x, y, z: torch.bmm(x.view(2, 8, 8), y.view(2, 8, 8)),
    "mv": lambda x, y, z: torch.mv(x, y[0]),
    "dot": lambda x, y, z: torch.dot(x[0], y[0]),
    "addmm": lambda x, y, z: torch.addmm(z[0], x, y[:8]),
    "baddbmm": lambda x, y, z: torch.baddbmm(z.view(2, 8, 8), x.view(2, 8, 8), y.view(2, 8, 8)),
    "addmm 0": lambda x, y, z: torch.addmm(z[0], x, y[:8], beta=0.0),
    "addmm alpha": lambda x, y, z: torch.addmm(z[0], x, y[:8], beta=0.5, alpha=0.5),
    "linear": lambda x, y, z: F.linear(x, y, z[:, 0]),
    "linear no bias": lambda x, y, z: F.linear(x, y),
    "linear 3": lambda x, y, z: F.linear(x.view(4, 4, 8), y, z[:, 0]),
    "linear 3 turned": lambda x, y, z: F.linear(x.view(4, 4, 8).transpose(0, 1), y, z[:, 0]),
    "linear 1": lambda x, y, z: F.linear(x[0], y, z[:, 0]),
    "matmul 1 2": lambda x, y, z: x[0] @ y.t(),
    "matmul 2 1": lambda x, y, z: x @ y[0],
    "matmul 1 1": lambda x, y, z: x[0] @ y[0],
    "matmul 3 2": lambda x, y, z: x.view(4, 4, 8) @ y.t(),
    "matmul 2 3": lambda x, y, z: x[:4, :4] @ y.view(4, 4, 8),
    "matmul 3 3": lambda x, y, z: x.view(2, 8, 8) @ y.view(2, 8, 8),
    "matmul 3 3 spread": lambda x, y, z: x.view(2, 8, 8) @ y.view(2, 8, 8)[:1],
    "matmul 4 4": lambda x, y, z: x.view(2, 2, 4, 8) @ y.view(2, 2, 4, 8).transpose(-1, -2),
    "matmul 3 1": lambda x, y, z: x.view(2, 8, 8) @ y[0],
    "matmul 1 3": lambda x, y, z: x[0] @ y.view(2, 8, 8),
    "matmul 4 3": lambda x, y, z: x.view(2, 2, 4, 8) @ y.view(2, 8, 8),
    "matmul turned": lambda x, y, z: (
        x.view(2, 4, 2, 8).transpose(1, 2) @ y.view(2, 4, 2, 8).transpose(1, 2).transpose(-1, -2)
    ),
    "sum": lambda x, y, z: x.sum(),
    "sum dims": lambda x, y, z: x.sum((0, 1)),
    "mean": lambda x, y, z: x.mean(),
    "mean dim": lambda x, y, z: x.mean(1),
    "cumsum": lambda x, y, z: x.cumsum(1),
    "var": lambda x, y, z: x.var(),
    "var dim": lambda x, y, z: x.var(1),
    "std": lambda x, y, z: x.std(),
    "std dim": lambda x, y, z: x.std(1, keepdim=True),
    "std unbiased": lambda x, y, z: x.std(1, correction=0),
    "logsumexp": lambda x, y, z: x.logsumexp(1),
    "prod": lambda x, y, z: x.prod(),
    "prod dim": lambda x, y, z: x.prod(1),
    "norm": lambda x, y, z: x.norm(),
    "norm 1": lambda x, y, z: x.norm(1),
    "norm dim": lambda x, y, z: x.norm(dim=1),
    "norm inf": lambda x, y, z: torch.linalg.vector_norm(x, float("inf")),
    "vector_norm": lambda x, y, z: torch.linalg.vector_norm(x, dim=1),
    "vector_norm 3": lambda x, y, z: torch.linalg.vector_norm(x, 3, dim=1),
    "vector_norm 1": lambda x, y, z: torch.linalg.vector_norm(x, 1, dim=1),
    "vector_norm 0": lambda x, y, z: torch.linalg.vector_norm(x, 0, dim=1),
    "layer_norm": lambda x, y, z: F.layer_norm(x, (8,)),
    "layer_norm affine": lambda x, y, z: F.layer_norm(x, (8,), y[0], z[0]),
    "layer_norm weight": lambda x, y, z: F.layer_norm(x, (8,), y[0]),
    "layer_norm 2": lambda x, y, z: F.layer_norm(x.view(4, 4, 8), (4, 8)),
    "layer_norm turned": lambda x, y, z: F.layer_norm(x.view(4, 4, 8).transpose(0, 1), (8,)),
    "rms_norm": lambda x, y, z: F.rms_norm(x, (8,)),
    "rms_norm weight": lambda x, y, z: F.rms_norm(x, (8,), y[0]),
    "rms_norm 2": lambda x, y, z: F.rms_norm(x.view(4, 4, 8), (4, 8)),
    "rms_norm eps": lambda x, y, z: F.rms_norm(x, (8,), y[0], 1e-05),
    "rms_norm turned": lambda x, y, z: F.rms_norm(x.view(4, 4, 8).transpose(0, 1), (8,), y[0]),
    "group_norm": lambda x, y, z: F.group_norm(img(x), 2),
    "group_norm affine": lambda x, y, z: F.group_norm(img(x), 2, y[0, :2], z[0, :2]),
    "batch_norm": lambda x, y, z: F.batch_norm(x, None, None, training=True),
    "batch_norm affine": lambda x, y, z: F.batch_norm(
        img(x), None, None, y[0, :2], z[0, :2], training=True
    ),
    "batch_norm running": lambda x, y, z: F.batch_norm(
        x, y.detach()[0].clone(), z.detach()[0].clone(), training=True
    ),
    "batch_norm eval": lambda x, y, z: F.batch_norm(
        x, y.detach()[0], z.detach()[0], training=False
    ),
    "conv1d": lambda x, y, z: F.conv1d(x.view(2, 8, 8), y.view(8, 8, 2)),
    "conv2d": lambda x, y, z: F.conv2d(img(x), y.reshape(8, 2, 2, 4)[:, :, :, :2], z[0]),
    "conv3d": lambda x, y, z: F.conv3d(x.view(1, 2, 2, 4, 8), y.view(8, 2, 2, 2, 2)),
    "conv_transpose1d": lambda x, y, z: F.conv_transpose1d(x.view(2, 8, 8), y.view(8, 8, 2)),
    "conv_transpose2d": lambda x, y, z: F.conv_transpose2d(img(x), y.view(2, 16, 2, 2)),
    "conv same": lambda x, y, z: F.conv2d(img(x), y.view(16, 2, 2, 2), padding="same"),
    "conv pad": lambda x, y, z: F.conv2d(img(x), y.view(16, 2, 2, 2), padding=1),
    "conv groups": lambda x, y, z: F.conv2d(img(x), y[:2, :4].reshape(2, 1, 2, 2), groups=2),
    "conv turned": lambda x, y, z: F.conv1d(x.view(2, 8, 8).transpose(1, 2), y.view(8, 8, 2)),
    "max_pool1d": lambda x, y, z: F.max_pool1d(x.view(2, 8, 8), 2),
    "max_pool2d": lambda x, y, z: F.max_pool2d(img(x), 2),
    "max_pool3d": lambda x, y, z: F.max_pool3d(x.view(1, 2, 2, 4, 8), 2),
    "max_pool2d indices": lambda x, y, z: F.max_pool2d(img(x), 2, return_indices=True)[0],
    "max_pool1d indices": lambda x, y, z: F.max_pool1d(x.view(2, 8, 8), 2, return_indices=True)[0],
    "adaptive_max_pool1d": lambda x, y, z: F.adaptive_max_pool1d(x.view(2, 8, 8), 2),
    "adaptive_max_pool2d": lambda x, y, z: F.adaptive_max_pool2d(img(x), 2),
    "adaptive_max_pool2d 1": lambda x, y, z: F.adaptive_max_pool2d(img(x), 1),
    "adaptive_max_pool3d": lambda x, y, z: F.adaptive_max_pool3d(x.view(1, 2, 2, 4, 8), 2),
    "avg_pool1d": lambda x, y, z: F.avg_pool1d(x.view(2, 8, 8), 2),
    "avg_pool2d": lambda x, y, z: F.avg_pool2d(img(x), 2),
    "avg_pool3d": lambda x, y, z: F.avg_pool3d(x.view(1, 2, 2, 4, 8), 2),
    "adaptive_avg_pool1d": lambda x, y, z: F.adaptive_avg_pool1d(x.view(2, 8, 8), 2),
    "adaptive_avg_pool1d 1": lambda x, y, z: F.adaptive_avg_pool1d(x.view(2, 8, 8), 1),
    "adaptive_avg_pool2d": lambda x, y, z: F.adaptive_avg_pool2d(img(x), 2),
    "adaptive_avg_pool2d 1": lambda x, y, z: F.adaptive_avg_pool2d(img(x), 1),
    "adaptive_avg_pool2d 1 2": lambda x, y, z: F.adaptive_avg_pool2d(img(x), (1, 2)),
    "adaptive_avg_pool3d": lambda x, y, z: F.adaptive_avg_pool3d(x.view(1, 2, 2, 4, 8), 2),
    "adaptive_avg_pool3d 1": lambda x, y, z: F.adaptive_avg_pool3d(x.view(1, 2, 2, 4, 8), 1),
    "adaptive_avg_pool2d unbatched": lambda x, y, z: F.adaptive_avg_pool2d(img(x)[0], 1),
    "fold": lambda x, y, z: F.fold(x.view(1, 16, 8), (3, 5), (2, 2)),
    "unfold": lambda x, y, z: F.unfold(img(x), 2),
    "tensor unfold": lambda x, y, z: x.unfold(1, 2, 2),
    "pixel_shuffle": lambda x, y, z: F.pixel_shuffle(x.view(2, 4, 4, 4), 2),
    "channel_shuffle": lambda x, y, z: F.channel_shuffle(x.view(2, 4, 4, 4), 2),
    "affine_grid": lambda x, y, z: F.affine_grid(
        x[:2, :6].reshape(2, 2, 3), (2, 1, 4, 4), align_corners=False
    ),
    "interpolate aa": lambda x, y, z: F.interpolate(
        img(x), scale_factor=0.5, mode="bilinear", antialias=True
    ),
    "interpolate linear": lambda x, y, z: F.interpolate(
        x.view(2, 8, 8), scale_factor=2, mode="linear"
    ),
    "interpolate nearest1": lambda x, y, z: F.interpolate(x.view(2, 8, 8), scale_factor=2),
    "interpolate tri": lambda x, y, z: F.interpolate(
        x.view(1, 2, 2, 4, 8), scale_factor=2, mode="trilinear"
    ),
    "interpolate nearest3": lambda x, y, z: F.interpolate(x.view(1, 2, 2, 4, 8), scale_factor=2),
    "interpolate exact1": lambda x, y, z: F.interpolate(
        x.view(2, 8, 8), scale_factor=2, mode="nearest-exact"
    ),
    "embedding": lambda x, y, z: F.embedding(idx(5), x),
    "embedding pad": lambda x, y, z: F.embedding(idx(5), x, padding_idx=0),
    "embedding scale": lambda x, y, z: F.embedding(idx(5), x, scale_grad_by_freq=True),
    "gather": lambda x, y, z: x.gather(1, idx(16, 2)),
    "index_select": lambda x, y, z: x.index_select(0, idx(5)),
    "index": lambda x, y, z: x[idx(5)],
    "index two": lambda x, y, z: x[idx(5), idx(5)],
    "index none": lambda x, y, z: x[:, idx(5)],
    "index_put": lambda x, y, z: x.index_put((idx(5, high=16),), y[:5]),
    "index_put acc": lambda x, y, z: x.index_put((idx(5, high=16),), y[:5], accumulate=True),
    "index_put number": lambda x, y, z: x.index_put(
        (idx(5, high=16),), torch.tensor(0.0, dtype=x.dtype)
    ),
    "index_fill": lambda x, y, z: x.index_fill(0, idx(5), 0.0),
    "index_copy": lambda x, y, z: x.index_copy(0, idx(4), y[:4]),
    "index_add": lambda x, y, z: x.index_add(0, idx(4), y[:4]),
    "index_add alpha": lambda x, y, z: x.index_add(0, idx(4), y[:4], alpha=2),
    "scatter": lambda x, y, z: x.scatter(0, idx(2, 8), y[:2]),
    "scatter number": lambda x, y, z: x.scatter(0, idx(2, 8), 1.0),
    "scatter_add": lambda x, y, z: x.scatter_add(0, idx(2, 8), y[:2]),
    "scatter_": lambda x, y, z: x.scatter_(0, idx(2, 8), y[:2]),
    "copy_": lambda x, y, z: x.copy_(y),
    "fill_": lambda x, y, z: x.fill_(1.0) + y,
    "zero_": lambda x, y, z: x.zero_() + y,
    "sort": lambda x, y, z: x.sort(1).values,
    "topk": lambda x, y, z: x.topk(3, 1).values,
    "kthvalue": lambda x, y, z: x.kthvalue(3, 1).values,
    "median": lambda x, y, z: x.median(),
    "median dim": lambda x, y, z: x.median(1).values,
    "cummax": lambda x, y, z: x.cummax(1).values,
    "cummin": lambda x, y, z: x.cummin(1).values,
    "cummax both": lambda x, y, z: x.cummax(1),
    "sort both": lambda x, y, z: x.sort(1),
    "nanmedian": lambda x, y, z: x.nanmedian(),
    "cat": lambda x, y, z: torch.cat([x, y]),
    "stack": lambda x, y, z: torch.stack([x, y, z]),
    "chunk": lambda x, y, z: x.chunk(2)[0],
    "split": lambda x, y, z: x.split(4)[1],
    "unbind": lambda x, y, z: x.unbind()[0],
    "tril": lambda x, y, z: x.tril(),
    "triu": lambda x, y, z: x.triu(1),
    "tril_": lambda x, y, z: x.tril_(),
    "roll": lambda x, y, z: x.roll(1, 0),
    "flip": lambda x, y, z: x.flip(0),
    "repeat": lambda x, y, z: x.repeat(2, 1),
    "repeat_interleave": lambda x, y, z: x.repeat_interleave(2, 0),
    "expand": lambda x, y, z: x[:1].expand(4, 8),
    "contiguous": lambda x, y, z: x.t().contiguous(),
    "clone": lambda x, y, z: x.clone(),
    "to": lambda x, y, z: x.to(torch.float64),
    "diagonal": lambda x, y, z: x.diagonal(),
    "diag_embed": lambda x, y, z: x.diag_embed(),
    "diag": lambda x, y, z: x.diag(),
    "as_strided": lambda x, y, z: x.as_strided((4, 4), (8, 1)),
    "tile": lambda x, y, z: x.tile(2),
    "rot90": lambda x, y, z: x.rot90(),
    "meshgrid": lambda x, y, z: torch.meshgrid(x[0], y[0], indexing="ij")[0],
    "select": lambda x, y, z: x.select(0, 1),
    "squeeze": lambda x, y, z: x[:1].squeeze(0),
    "real": lambda x, y, z: torch.view_as_real(torch.view_as_complex(x.float().view(16, 4, 2))),
    "complex mul": lambda x, y, z: torch.view_as_real(
        torch.view_as_complex(x.float().view(16, 4, 2))
        * torch.view_as_complex(y.float().view(16, 4, 2))
    ),
    "trace": lambda x, y, z: x.trace(),
    "bfloat16": lambda x, y, z: x.bfloat16(),
    "type_as": lambda x, y, z: x.type_as(torch.zeros(1, dtype=torch.float64)),
    "nan_to_num": lambda x, y, z: x.nan_to_num(),
    "sinc": lambda x, y, z: x.sinc(),
    "softsign": lambda x, y, z: F.softsign(x),
    "tanhshrink": lambda x, y, z: F.tanhshrink(x),
    "hardshrink": lambda x, y, z: F.hardshrink(x),
    "erfinv": lambda x, y, z: (x * 0.1).erfinv(),
    "digamma": lambda x, y, z: x.digamma(),
    "logit": lambda x, y, z: (x * 0.1).logit(0.1),
    "frac": lambda x, y, z: x.frac(),
    "asinh": lambda x, y, z: x.asinh(),
    "acosh": lambda x, y, z: (x + 1).acosh(),
    "atanh": lambda x, y, z: (x * 0.1).atanh(),
    "deg2rad": lambda x, y, z: x.deg2rad(),
    "diff": lambda x, y, z: x.diff(),
    "celu alpha": lambda x, y, z: F.celu(x, 0.5),
    "elu alpha": lambda x, y, z: F.elu(x, 0.5),
    "softplus beta": lambda x, y, z: F.softplus(x, 2.0),
    "complex": lambda x, y, z: torch.view_as_real(torch.complex(x.float(), y.float())),
    "polar": lambda x, y, z: torch.view_as_real(torch.polar(x.float(), y.float())),
    "std_mean": lambda x, y, z: torch.std_mean(x, 1),
    "var_mean": lambda x, y, z: torch.var_mean(x, 1),
    "cumprod": lambda x, y, z: x.cumprod(1),
    "cumprod_": lambda x, y, z: x.cumprod_(1),
    "copysign": lambda x, y, z: x.copysign(y),
    "cross": lambda x, y, z: torch.linalg.cross(x[:, :3], y[:, :3]),
    "vdot": lambda x, y, z: torch.vdot(x[0], y[0]),
    "dist": lambda x, y, z: torch.dist(x, y),
    "aminmax": lambda x, y, z: x.aminmax(dim=1),
    "angle": lambda x, y, z: torch.view_as_complex(x.float().view(16, 4, 2)).angle(),
    "conj": lambda x, y, z: torch.view_as_complex(x.float().view(16, 4, 2)).conj().abs(),
    "slice_scatter": lambda x, y, z: x.slice_scatter(y[:4], 0, 2, 6),
    "select_scatter": lambda x, y, z: x.select_scatter(y[0], 0, 1),
    "diagonal_scatter": lambda x, y, z: x.diagonal_scatter(y[0]),
    "native_layer_norm": lambda x, y, z: torch.native_layer_norm(x, (8,), y[0], z[0], 1e-5),
    "native_group_norm": lambda x, y, z: torch.native_group_norm(
        img(x), y[0, :2], z[0, :2], 2, 2, 32, 2, 1e-5
    ),
    "logcumsumexp": lambda x, y, z: x.logcumsumexp(1),
    "nansum": lambda x, y, z: x.nansum(),
    "remainder": lambda x, y, z: x.remainder(y),
    "remainder number": lambda x, y, z: x % 0.3,
    "fmod": lambda x, y, z: x.fmod(y),
    "xlogy": lambda x, y, z: x.xlogy(y),
    "xlog1py": lambda x, y, z: torch.special.xlog1py(x, y),
    "logaddexp": lambda x, y, z: x.logaddexp(y),
    "logaddexp2": lambda x, y, z: x.logaddexp2(y),
    "hypot": lambda x, y, z: x.hypot(y),
    "entr": lambda x, y, z: torch.special.entr(x),
    "i0": lambda x, y, z: x.i0(),
    "polygamma": lambda x, y, z: x.polygamma(1),
    "addmv": lambda x, y, z: torch.addmv(x[:, 0], y, z[0]),
    "addr": lambda x, y, z: torch.addr(x, y[:, 0], z[0]),
    "addbmm": lambda x, y, z: torch.addbmm(x[:4, :4], y.view(2, 4, 16), z.view(2, 16, 4)),
    "take": lambda x, y, z: x.take(idx(5)),
    "masked_scatter": lambda x, y, z: x.masked_scatter(x > 1, y),
    "scatter_reduce": lambda x, y, z: x.scatter_reduce(0, idx(2, 8), y[:2], "amax"),
    "max_unpool": lambda x, y, z: F.max_unpool2d(
        img(x), idx(2, 2, 4, 8, high=64), 2, output_size=(8, 16)
    ),
    "fractional_max_pool": lambda x, y, z: F.fractional_max_pool2d(
        img(x), 2, output_size=2, _random_samples=torch.full((2, 2, 2), 0.5, dtype=x.dtype)
    ),
    "grid_sample": lambda x, y, z: F.grid_sample(img(x), y.view(2, 4, 8, 2), align_corners=False),
    "solve_triangular": lambda x, y, z: torch.linalg.solve_triangular(square(x), y[:8], upper=True),
    "qr": lambda x, y, z: torch.linalg.qr(x)[1],
    "matrix_exp": lambda x, y, z: torch.linalg.matrix_exp(square(x)),
    "sdpa": lambda x, y, z: attention(x, y, z, (2, 2, 4, 8)),
    "sdpa causal": lambda x, y, z: attention(x, y, z, (2, 2, 4, 8), is_causal=True),
    "sdpa dropout": lambda x, y, z: attention(x, y, z, (2, 2, 4, 8), dropout_p=0.2),
    "sdpa 3": lambda x, y, z: attention(x, y, z, (4, 4, 8)),
    "sdpa scale": lambda x, y, z: attention(x, y, z, (2, 2, 4, 8), scale=0.3),
    "sdpa 3 causal": lambda x, y, z: attention(x, y, z, (4, 4, 8), is_causal=True),
    "sdpa causal dropout": lambda x, y, z: attention(
        x, y, z, (2, 2, 4, 8), is_causal=True, dropout_p=0.2
    ),
}

for name in UNARY:
    function = getattr(torch, name, None) or getattr(F, name, None) or torch.special.expit
    FORMS[name] = lambda x, y, z, f=function: f(x)
for name in IN_PLACE:
    FORMS[name] = lambda x, y, z, name=name: getattr(x, name)()
for name in ("celu_", "elu_", "hardtanh_", "leaky_relu_", "selu_"):
    FORMS[name] = lambda x, y, z, n=name: getattr(F, n)(x)
for name in ("hardsigmoid", "hardswish", "mish", "silu", "relu6"):
    FORMS[name + " in place"] = lambda x, y, z, n=name: getattr(F, n)(x, inplace=True)
for mode in ("constant", "reflect", "replicate", "circular"):
    FORMS["pad1 " + mode] = lambda x, y, z, m=mode: F.pad(x[None], (1, 1), mode=m)
    FORMS["pad2 " + mode] = lambda x, y, z, m=mode: F.pad(img(x), (1, 1, 1, 0), mode=m)
for mode in ("nearest", "bilinear", "bicubic", "area", "nearest-exact"):
    FORMS["interpolate " + mode] = lambda x, y, z, m=mode: F.interpolate(
        img(x), scale_factor=2, mode=m
    )
for reduction in ("mean", "sum", "none"):
    for name in REDUCED:
        FORMS[f"{name} {reduction}"] = lambda x, y, z, n=name, r=reduction: getattr(F, n)(
            x, y, reduction=r
        )
    for name, loss in LOSSES.items():
        FORMS[f"{name} {reduction}"] = lambda x, y, z, f=loss, r=reduction: f(x, y, z, r)
