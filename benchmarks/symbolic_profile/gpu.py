#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Holds symbolic profiles to what a GPU takes, for models of torchvision. See README.md.

    python benchmarks/symbolic_profile/gpu.py [resnet18 vit_b_16 ...] [--batch 16]

A row a model: what forward leaves allocated, and the peak of a training step with SGD, allocated
and reserved. Exit status 1 when a figure is off by more than its target, or a model failed.
"""

import argparse
import gc
import sys
import time
import traceback
import warnings

import torch

import kerf

NAMES = (
    "resnet18 resnet50 densenet121 vgg16 alexnet googlenet mobilenet_v2 mobilenet_v3_large "
    "efficientnet_b0 convnext_tiny vit_b_16 swin_t shufflenet_v2_x1_0 regnet_y_400mf"
).split()
TARGETS = {"forward": 0.005, "peak": 0.01, "reserved": 0.05}


def make(name):
    import torchvision  # here, so that tests may import this file without it

    extra = {"aux_logits": False, "init_weights": False} if name == "googlenet" else {}
    with torch.device("cuda"):
        return getattr(torchvision.models, name)(weights=None, **extra).train()


def predicted(model, x):
    """{figure: bytes}, and the seconds that a trace and a profile took."""
    start = time.perf_counter()
    gm = kerf.symbolic_trace(model, meta_args={"x": x})
    traced = time.perf_counter()
    kerf.symbolic_profile(gm, x, device_kind="cuda")
    seconds = traced - start, time.perf_counter() - traced
    memory = kerf.memory(gm, optimizer="sgd", device_kind="cuda")
    unknown = memory.ops_without_rule
    figures = {
        "forward": memory.added_by_forward,
        "peak": memory.peak,
        "reserved": memory.reserved,
    }
    return figures, seconds, unknown


def measured(model, x):
    """The same of the third training step, on the device."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = model(x)
        forward = torch.cuda.memory_allocated() - before
        result.float().mean().backward()
        del result
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return {"forward": forward, "peak": peak[0], "reserved": peak[1]}


def free():
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def warm_up():
    """Libraries take their workspaces, which stay: the first model would be alone with them."""
    layer = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(8, 8))
    layer.cuda()(torch.randn(2, 3, 3, 3, device="cuda")).sum().backward()


def compare(name, batch):
    """({figure: (predicted, measured)}, seconds, operators whose memory is a guess)"""
    free()
    model = make(name)
    x = torch.randn(batch, 3, 224, 224, device="cuda")
    free()
    ours, seconds, unknown = predicted(model, x)
    free()
    theirs = measured(model, x)
    return {key: (ours[key], theirs[key]) for key in TARGETS}, seconds, unknown


def within(figures):
    return all(abs(a - b) <= TARGETS[key] * b for key, (a, b) in figures.items())


def row(name, figures, seconds, unknown):
    cells = [f"{name:20s}"]
    for key, (ours, theirs) in figures.items():
        off = 100 * (ours - theirs) / theirs
        mark = " " if abs(off) <= 100 * TARGETS[key] else "!"
        cells.append(f"{ours / 1e6:9.2f} {theirs / 1e6:9.2f} {off:+6.2f} %{mark}")
    cells.append(f"{seconds[0] * 1e3:6.0f} {seconds[1] * 1e3:6.0f} ms")
    return " | ".join([*cells, *([f"guessed: {', '.join(unknown)}"] if unknown else [])])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("gpu.py: no CUDA device; it measures what one takes")
    warnings.simplefilter("ignore")
    print("torch", torch.__version__, torch.cuda.get_device_name(), "batch", options.batch)
    heads = (f"{key}, MB: predicted, measured" for key in TARGETS)
    print(" | ".join([f"{'model':20s}", *(f"{head:30s}" for head in heads), "trace, profile"]))
    warm_up()
    good = True
    for name in options.names:
        try:
            figures, seconds, unknown = compare(name, options.batch)
        except Exception:
            print(f"{name:20s} | failed", flush=True)
            traceback.print_exc(limit=6)
            good = False
            continue
        print(row(name, figures, seconds, unknown), flush=True)
        good = good and within(figures)
    print("every figure is within its target" if good else "some figures are off, marked !")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
