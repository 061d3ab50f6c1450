# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What are measured blocks worth: do their times add up, and what do twins save? See README.md."""

import contextlib
import os
import statistics
import sys
import time
from pathlib import Path

import torch
import transformers as t

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from real_models import bert_base, gpt2_small, resnet50, transformers_image, transformers_text
from targets import seconds, unless
from timing import timed

import kerf
from kerf._profile import _Blocks, measure

FASTER = 10  # times, measuring one of 48 twins instead of all
WITHIN = 0.05  # of the whole model's time, in the median of the models
PER_BLOCK = 0.25  # seconds of measuring for a block, at most

SUMS = {
    "GPT-2 small": (gpt2_small, 4),
    "BERT base": (bert_base, 4),
    "DistilBERT": (transformers_text("DistilBertModel", "DistilBertConfig"), 4),
    "OPT-125M-like": (transformers_text("OPTForCausalLM", "OPTConfig"), 2),
    "T5 small": (
        transformers_text("T5ForConditionalGeneration", "T5Config", decoder_start_token_id=0),
        4,
    ),
    "ResNet-50-style": (resnet50, 4),
    "ViT-B/16": (transformers_image("ViTModel", "ViTConfig"), 2),
    "ConvNeXt-T": (transformers_image("ConvNextModel", "ConvNextConfig"), 4),
}


@contextlib.contextmanager
def all_cores(device):
    """Eager PyTorch with the threads that the device's blocks are measured with."""
    before = torch.get_num_threads()
    if device.startswith("cpu"):
        torch.set_num_threads(len(os.sched_getaffinity(0)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


# Twins


def forty_eight_blocks():
    torch.manual_seed(0)
    config = t.GPT2Config(n_layer=48, n_embd=384, n_head=6, vocab_size=8192, use_cache=False)
    return t.GPT2LMHeadModel(config).train(), {"input_ids": torch.randint(0, 8192, (4, 64))}


def measured(model, graph, kwargs, device, blocks, every_block=False):
    """A profile with the same time to measure each block, and how long it took."""
    start = time.perf_counter()
    profile = measure(
        model,
        graph,
        (),
        kwargs,
        batch=None,
        devices=[device],
        budget_seconds=PER_BLOCK * blocks,
        training=True,
        blocks=_Blocks(False, "", every_block),
    )
    return profile, time.perf_counter() - start


def twins(verdicts, device):
    verdicts.table = "twins"
    model, kwargs = forty_eight_blocks()
    model.to(device)
    kwargs = {name: tensor.to(device) for name, tensor in kwargs.items()}
    graph = kerf.coarsen(kerf.trace(model, (), kwargs), basic_blocks=["GPT2Block"])
    found, _ = measured(model, graph, kwargs, device, 0)
    num_kinds = len({block.kind for block in found.blocks})
    with all_cores(device):
        once, short = measured(model, graph, kwargs, device, num_kinds)
        every, long = measured(model, graph, kwargs, device, len(found.blocks), every_block=True)
        again, _ = measured(model, graph, kwargs, device, num_kinds)
    names = [block.name for block in once.blocks]
    assert names == [block.name for block in every.blocks] and names.count("GPT2Block") == 48
    assert len({b.kind for b in once.blocks if b.name == "GPT2Block"}) == 1
    rows = []
    ratio = long / short
    verdict = verdicts.verdict(device, unless(ratio >= FASTER, f"{ratio:.1f}x"))
    layers = [i for i, name in enumerate(names) if name == "GPT2Block"]
    for phase in ("forward", "backward"):
        twin, other = (getattr(p.blocks[layers[0]], phase) for p in (once, again))
        apart = [getattr(every.blocks[i], phase) for i in layers]
        spread = statistics.median(getattr(every.blocks[i], f"{phase}_spread") for i in layers)
        low, middle, high = statistics.quantiles(apart, n=4)
        rows.append(
            [
                phase,
                ms(middle),
                f"{ms(low)} to {ms(high)}",
                ms(spread),
                f"{ms(twin)}, {ms(other)}",
                "yes" if abs(twin - middle) <= max(spread, high - low) else "no",
            ]
        )
    head = ["48 blocks", "each by itself", "middle half of them", "spread of one", "once, again"]
    times = [
        len(names),
        num_kinds,
        seconds(long),
        seconds(short),
        f"{ratio:.1f}",
        verdict,
    ]
    return times, [*head, "within the spread"], rows


def ms(value):
    return f"{value * 1e3:.2f} ms"


# Sums


def step_of(model, args, kwargs, training, device):
    """One step of the whole model: what the blocks' times are to add up to. Gradients of one are
    there before it, and its own are dropped after it, as in a block's backward."""
    synchronize = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    ones = []

    def infer():
        with torch.no_grad():
            model(*args, **kwargs)

    def train():
        out = model(*args, **kwargs)
        tensors = [
            tensor
            for tensor in torch.utils._pytree.tree_leaves(
                dict(out) if isinstance(out, dict) else out
            )
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad
        ]
        if not ones:
            ones.extend(torch.ones_like(tensor) for tensor in tensors)
        torch.autograd.backward(tensors, ones)

    def step():
        took = timed(train if training else infer, synchronize)
        for parameter in model.parameters():
            parameter.grad = None
        return took

    return step


def sums(verdicts, device, only=None):
    verdicts.table = "sums"
    rows, errors = [], {False: [], True: []}
    for name, (make, batch) in SUMS.items():
        if only and name not in only:
            continue
        row = [name]
        for training in (False, True):
            torch.manual_seed(0)
            model, args, kwargs = make(batch)
            model.train(training).to(device)
            if hasattr(model, "config"):
                model.config.use_cache = False
            args = tuple(arg.to(device) for arg in args)
            kwargs = {key: tensor.to(device) for key, tensor in kwargs.items()}
            graph = kerf.trace(model, args, kwargs)
            with all_cores(device):
                total, whole, alone, stage = turns(model, graph, args, kwargs, training, device)
            error = total / whole - 1
            errors[training].append(abs(error))
            row += [ms(alone), ms(whole), *([] if training else [ms(stage)]), ms(total)]
            row += [f"{error:+.1%}"]
        rows.append(row)
    for training, name in ((False, "inference"), (True, "training")):
        if errors[training]:
            middle = statistics.median(errors[training])
            met = unless(middle <= WITHIN, f"{middle:.1%}")
            rows.append([f"median, {name}", f"{middle:.1%}", verdicts.verdict(name, met)])
    return rows


@contextlib.contextmanager
def kept_memory():
    """Memory stays with the process, as where pipelines run and where blocks are measured: on the
    host, pages that come anew in every step take a tenth of it."""
    model, x = torch.nn.Linear(1, 1), torch.ones(2, 1)
    with kerf.Pipeline(model, kerf.plan(kerf.trace(model, (x,)), ["cpu:0"])):
        yield


def turns(model, graph, args, kwargs, training, device, rounds=3):
    """Medians of the sum and of the whole step, with memory kept and as PyTorch alone, and in
    inference of the graph as one stage, without Python between operators; taken in turns on a
    machine with other work."""
    step = step_of(model, args, kwargs, training, device)
    ratios, wholes, alone, stages = [], [], [], []

    def five(step=step):
        step()
        return [step() for _ in range(5)]

    for _ in range(rounds):
        alone += five()
        with kept_memory():
            before = five()
            if not training:
                with kerf.Pipeline(model, kerf.plan(graph, [device])) as pipe:
                    stages += five(lambda: timed(lambda: pipe(*args, **kwargs)))
            profile = kerf.profile(
                model,
                graph,
                args,
                kwargs,
                devices=[device],
                training=training,
                isolate=True,
                cache=False,
                budget_seconds=5,
            )
            whole = statistics.median(before + five())
        total = profile.total_forward + (profile.total_backward if training else 0)
        ratios.append(total / whole)
        wholes.append(whole)
    whole = statistics.median(wholes)
    stage = statistics.median(stages) if stages else None
    return statistics.median(ratios) * whole, whole, statistics.median(alone), stage
