# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""How long does it take to know what a training step computes and keeps? See README.md."""

import argparse
import gc
import inspect
import statistics
import sys
import time
import warnings
from pathlib import Path

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from symbolic_profile.models import MODELS
from timing import geomean, machine, table

import kerf
from kerf import _core
from kerf.symbolic._registry import current_registry
from kerf.symbolic._run import Run

BATCH = 4
# PyTorch's counter does not divide a weight's gradient by the groups of its convolution.
GROUPED = {"MobileNetV2", "ConvNeXt-T"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="models; all by default")
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows, ratios = [], []
    for name in options.names or MODELS:
        case = Case(name)
        case.check()
        row, ratio = case.measure(options.pairs)
        ratios.append(ratio)
        rows.append(row)
        print(name, f"{ratio:.1f}x", file=sys.stderr, flush=True)
        gc.collect()
    print(machine())
    head = ["model", "operators", "trace", "profile", "after capture", "a node", "PyTorch", "ratio"]
    print(table(head, rows))
    print(f"\ngeomean {geomean(ratios):.2f}x")


class Case:
    """One model, without data for both contenders before any clock runs."""

    def __init__(self, name):
        self.name = name
        with kerf.MetaTensorMode():
            self.model, _, _ = MODELS[name](BATCH)
        self.model.train()
        real, args, kwargs = MODELS[name](BATCH)
        names = inspect.signature(real.forward).parameters
        call = dict(zip(names, args, strict=False)) | kwargs
        self.call = {key: value.to("meta") for key, value in call.items()}
        self.mode = FakeTensorMode()
        self.fake = faked(real.train(), self.mode)
        self.fake_call = {key: self.mode.from_tensor(value) for key, value in call.items()}

    def ours(self):
        gm = kerf.symbolic_trace(self.model, meta_args=self.call)
        return kerf.symbolic_profile(gm, kwargs=self.call)

    def theirs(self):
        """Flops and the peak of memory, in one run of forward and backward."""
        counter, tracker = FlopCounterMode(display=False), MemTracker()
        tracker.track_external(self.fake)
        with self.mode, counter, tracker:
            loss_of(self.fake(**self.fake_call)).backward()
        self.fake.zero_grad(set_to_none=True)
        return counter, tracker

    def check(self):
        """Both must say the same where both say something."""
        gm = kerf.symbolic_trace(self.model, meta_args=self.call)
        kerf.symbolic_profile(gm, kwargs=self.call, device_kind="cpu")
        totals = kerf.profile_table(gm).totals
        # Fused attention of the host is unknown to the counter; forward's products are the same.
        with self.mode, sdpa_kernel(SDPBackend.MATH):
            with FlopCounterMode(display=False) as counter:
                loss = loss_of(self.fake(**self.fake_call))
            equal(self.name, "forward flops", 2 * totals["fwd_mac"], counter.get_total_flops())
            with FlopCounterMode(display=False) as counter:
                loss.backward()
        uses_attention = "aten.scaled_dot_product_attention.default" in {
            node["op"] for node in kerf.graph_of(gm).nodes
        }
        if self.name not in GROUPED and not uses_attention:
            equal(self.name, "backward flops", 2 * totals["bwd_mac"], counter.get_total_flops())
        equal(self.name, "saved bytes", totals["saved"], self.saved())

    def saved(self):
        """Bytes of the distinct storages that autograd packs."""
        own = {memory(t) for t in (*self.fake.parameters(), *self.fake.buffers())}
        kept = {}

        def pack(tensor):
            kept[memory(tensor)] = tensor
            return tensor

        with self.mode, torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            result = self.fake(**self.fake_call)
        del result
        return sum(t.untyped_storage().nbytes() for key, t in kept.items() if key not in own)

    def measure(self, pairs):
        gm = self.ours()
        run = Run(gm, (), self.call, current_registry()).run()

        def after_capture():
            return _core.profile_spans(run.graph, run.spans, "cuda", "as_traced", run.flops, {})

        self.theirs()
        trace, profile, theirs, ratios = [], [], [], []
        for _ in range(pairs):
            start = time.perf_counter()
            gm = kerf.symbolic_trace(self.model, meta_args=self.call)
            middle = time.perf_counter()
            kerf.symbolic_profile(gm, kwargs=self.call)
            end = time.perf_counter()
            self.theirs()
            trace.append(middle - start)
            profile.append(end - middle)
            theirs.append(time.perf_counter() - end)
            ratios.append(theirs[-1] / (end - start))
        alone = statistics.median(timed(after_capture) for _ in range(30))
        nodes = run.graph.num_nodes
        ratio = statistics.median(ratios)
        row = [self.name, nodes, *map(milliseconds, map(statistics.median, (trace, profile)))]
        row += [f"{alone * 1e3:.2f} ms", f"{alone / nodes * 1e6:.2f} us"]
        return [*row, milliseconds(statistics.median(theirs)), f"{ratio:.1f}"], ratio


def faked(model, mode):
    """Its weights without data, in place; weights that are shared stay shared."""
    made = {}
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    if id(tensor) not in made:
                        made[id(tensor)] = tensor, mode.from_tensor(tensor)
                    tensors[name] = made[id(tensor)][1]
    return model


def loss_of(result):
    if hasattr(result, "loss_type") or not isinstance(result, torch.Tensor):
        values = result.values() if isinstance(result, dict) else result
        result = next(v for v in values if isinstance(v, torch.Tensor) and v.requires_grad)
    return result.float().mean()


def memory(tensor):
    return tensor.untyped_storage()._cdata


def equal(name, what, ours, theirs):
    if ours != theirs:
        raise SystemExit(f"{name}: {what} are {ours:.0f} here and {theirs:.0f} by PyTorch")


def timed(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def milliseconds(seconds):
    return f"{seconds * 1e3:.0f} ms"


if __name__ == "__main__":
    main()
