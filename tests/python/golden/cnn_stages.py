"""Cnn in 3 pipeline stages, written by kerf emit.

    Stage0  stem .. blocks.1.conv, on cpu:0.
    Stage1  blocks.1.bn .. blocks.1, on cpu:1.
    Stage2  fc, on cpu:2.

    stages = make_stages(model)  # with the weights of the model
    result = run(stages, ...)  # as the model is called

They have the model's train and eval modes.

To compare them with the model: python FILE --check package.module:make_case, a function that
gives the model, its positional and its named arguments.
"""

import argparse
import copy
import functools
import importlib
import os
import sys
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

MODES = (True, False)  # of `training` that the stages have
DRAWS_IN_ORDER = True  # random numbers, in the model's order


class Weight(NamedTuple):
    """A parameter or a buffer of the model, by its name there."""

    name: str
    shape: tuple
    dtype: torch.dtype
    kind: str = "parameter"
    trained: bool = True
    also: list = []  # its other names


class Holder(nn.Module):
    """Parameters, buffers and modules, under the names that they have in the model."""

    def __getitem__(self, name):
        return getattr(self, str(name))


def put(holder, path, thing, persistent=True):
    first, _, rest = path.partition(".")
    if rest:
        if first not in holder._modules:
            holder.add_module(first, Holder())
        put(holder._modules[first], rest, thing, persistent)
    elif isinstance(thing, nn.Module):
        holder.add_module(first, thing)
    elif isinstance(thing, nn.Parameter):
        holder.register_parameter(first, thing)
    else:
        holder.register_buffer(first, thing, persistent)


class Stage(Holder):
    """What all stages have in common. The weights are those of the model, not copies: an optimizer
    of the model trains the stages, and moving a stage moves its part of the model."""

    INPUTS = OUTPUTS = LAST_USES = ()
    WEIGHTS = []
    BLOCKS = []
    CONSTANTS = {}

    def __init__(self, model=None):
        super().__init__()
        self.training = MODES[0] if model is None or model.training not in MODES else model.training
        if self.BLOCKS and model is None:
            raise ValueError(f"[stages] {self.BLOCKS} run as they are in the model; give the model")
        for weight in self.WEIGHTS:
            tensor = new_weight(weight) if model is None else find_weight(model, weight)
            for name in (weight.name, *weight.also):
                put(self, name, tensor, weight.kind != "non-persistent buffer")
        for path in self.BLOCKS:
            put(self, path, model.get_submodule(path))
        tensors = [*self.parameters(), *self.buffers()]
        self.device = tensors[0].device if tensors else torch.device("cpu")
        self.CONSTANTS = {name: constant(model, t) for name, t in self.CONSTANTS.items()}
        self.constants = {name: t.to(self.device) for name, t in self.CONSTANTS.items()}

    def _apply(self, fn, recurse=True):
        for dtype in {t.dtype for t in (*self.parameters(), *self.buffers())}:
            if fn(torch.empty(0, dtype=dtype, device=self.device)).dtype != dtype:
                raise ValueError(
                    f"[stages] {dtype} would become another dtype; expected the dtypes of the "
                    "trace, which the code of the stages names; trace the model in the other one"
                )
        shared = [(m, name, b) for m in self.modules() for name, b in m._buffers.items()]
        super()._apply(fn, recurse)
        for module, name, buffer in shared:  # the model's own go along, as its parameters do
            moved = module._buffers[name]
            if moved is not buffer and torch._has_compatible_shallow_copy_type(buffer, moved):
                buffer.data = moved
                module._buffers[name] = buffer
        self.device = fn(torch.empty(0, device=self.device)).device
        self.constants = {name: t.to(self.device) for name, t in self.CONSTANTS.items()}
        return self

    def train(self, mode=True):
        if mode not in MODES:
            raise ValueError(
                f"[stages] {'train' if mode else 'eval'} mode, and the model was traced in the "
                "other one; write the stages from a trace in that mode, or from one in each"
            )
        return super().train(mode)

    def load_state_dict(self, state_dict, strict=True, assign=False):
        """Takes what this stage has out of the state of the whole model, or of a stage. Of the
        names of a tied weight one will do."""
        own = super().state_dict().keys()
        mine = {name: tensor for name, tensor in state_dict.items() if name in own}
        for weight in self.WEIGHTS:
            names = [name for name in (weight.name, *weight.also) if name in own]
            known = [name for name in names if name in mine]
            mine.update({name: mine[known[0]] for name in names if known and name not in mine})
        result = super().load_state_dict(mine, strict, assign)
        for weight in self.WEIGHTS if assign else []:
            for name in weight.also:  # tied as before
                put(self, name, find_tensor(self, weight.name), name in own)
        return result


def find_weight(model, weight):
    """The model's own tensor."""
    tensor, *others = [find_tensor(model, name) for name in (weight.name, *weight.also)]
    found = None if tensor is None else (tuple(tensor.shape), tensor.dtype)
    if found != (weight.shape, weight.dtype):
        raise ValueError(
            f"[stages] the model has {found} as '{weight.name}'; expected {weight.shape} "
            f"{weight.dtype}; give the model that was traced, or write the stages again"
        )
    for name, other in zip(weight.also, others, strict=True):
        if other is None or other.data_ptr() != tensor.data_ptr():
            raise ValueError(
                f"[stages] '{name}' and '{weight.name}' are two tensors in the model; expected one "
                "as when it was traced; tie them, or write the stages again"
            )
    return tensor


def find_tensor(model, path):
    owner, _, name = path.rpartition(".")
    try:
        module = model.get_submodule(owner)
    except AttributeError:
        return None
    tensor = getattr(module, name, None)
    return tensor if isinstance(tensor, torch.Tensor) else None


def constant(model, tensor):
    """A tensor of the code, or of the model, which has not registered it."""
    if isinstance(tensor, torch.Tensor):
        return tensor
    return new_weight(tensor) if model is None else find_weight(model, tensor)


def new_weight(weight):
    """Without numbers, to be loaded from a checkpoint."""
    if weight.kind in ("non-persistent buffer", "attribute"):
        raise ValueError(
            f"[stages] '{weight.name}' is in no checkpoint, the model computes it; give the model"
        )
    tensor = torch.empty(weight.shape, dtype=weight.dtype)
    return nn.Parameter(tensor, weight.trained) if weight.kind == "parameter" else tensor


class Stage0(Stage):
    """stem .. blocks.1.conv, on cpu:0."""

    INPUTS = ["x"]
    OUTPUTS = ["blocks_0", "conv_1"]
    LAST_USES = ["x"]
    WEIGHTS = [
        Weight("stem.weight", (8, 3, 3, 3), torch.float32),
        Weight("stem.bias", (8,), torch.float32),
        Weight("blocks.0.conv.weight", (8, 8, 3, 3), torch.float32),
        Weight("blocks.0.bn.weight", (8,), torch.float32),
        Weight("blocks.0.bn.bias", (8,), torch.float32),
        Weight("blocks.1.conv.weight", (8, 8, 3, 3), torch.float32),
        Weight("blocks.0.bn.running_mean", (8,), torch.float32, "buffer"),
        Weight("blocks.0.bn.running_var", (8,), torch.float32, "buffer"),
        Weight("blocks.0.bn.num_batches_tracked", (), torch.int64, "buffer"),
    ]

    def forward(self, x):
        # stem (Conv2d)
        stem = F.conv2d(x, self.stem.weight, self.stem.bias, stride=2, padding=1)
        del x
        # blocks.0.conv (Conv2d)
        conv = F.conv2d(stem, self.blocks[0].conv.weight, padding=1)
        if self.training:
            # blocks.0.bn (BatchNorm2d)
            self.blocks[0].bn.num_batches_tracked.add_(1)
        # blocks.0.bn (BatchNorm2d)
        bn = F.batch_norm(
            conv,
            self.blocks[0].bn.running_mean,
            self.blocks[0].bn.running_var,
            self.blocks[0].bn.weight,
            self.blocks[0].bn.bias,
            training=self.training,
            momentum=0.1,
            eps=1e-05,
        )
        del conv
        # blocks.0 (Residual)
        bn += stem
        del stem
        bn.relu_()
        # blocks.1.conv (Conv2d)
        conv_1 = F.conv2d(bn, self.blocks[1].conv.weight, padding=1)
        return bn, conv_1


class Stage1(Stage):
    """blocks.1.bn .. blocks.1, on cpu:1."""

    INPUTS = ["blocks_0", "conv_1"]
    OUTPUTS = ["mean"]
    LAST_USES = ["blocks_0", "conv_1"]
    WEIGHTS = [
        Weight("blocks.1.bn.weight", (8,), torch.float32),
        Weight("blocks.1.bn.bias", (8,), torch.float32),
        Weight("blocks.1.bn.running_mean", (8,), torch.float32, "buffer"),
        Weight("blocks.1.bn.running_var", (8,), torch.float32, "buffer"),
        Weight("blocks.1.bn.num_batches_tracked", (), torch.int64, "buffer"),
    ]

    def forward(self, blocks_0, conv_1):
        if self.training:
            # blocks.1.bn (BatchNorm2d)
            self.blocks[1].bn.num_batches_tracked.add_(1)
        # blocks.1.bn (BatchNorm2d)
        bn_1 = F.batch_norm(
            conv_1,
            self.blocks[1].bn.running_mean,
            self.blocks[1].bn.running_var,
            self.blocks[1].bn.weight,
            self.blocks[1].bn.bias,
            training=self.training,
            momentum=0.1,
            eps=1e-05,
        )
        del conv_1
        # blocks.1 (Residual)
        bn_1 += blocks_0
        del blocks_0
        bn_1.relu_()
        # the model (Cnn)
        mean = bn_1.mean((2, 3))
        del bn_1
        return mean


class Stage2(Stage):
    """fc, on cpu:2."""

    INPUTS = ["mean"]
    OUTPUTS = ["linear"]
    LAST_USES = ["mean"]
    WEIGHTS = [Weight("fc.weight", (10, 8), torch.float32), Weight("fc.bias", (10,), torch.float32)]

    def forward(self, mean):
        # fc (Linear)
        linear = F.linear(mean, self.fc.weight, self.fc.bias)
        del mean
        return linear


class Tensor(NamedTuple):
    """In a pattern: a tensor, by its name."""

    name: object


def refuse(path, found, expected):
    raise ValueError(
        f"[stages] {path} is {found}; expected {expected}, as when the model was traced; write the "
        "stages again from a trace of such a call"
    )


def unpack(pattern, value, path="the result", values=None):
    """The tensors of a value by name. Refuses values that do not look like the pattern."""
    values = {} if values is None else values
    if isinstance(pattern, Tensor):
        if not isinstance(value, torch.Tensor):
            refuse(path, f"a {type(value).__name__}", "a tensor")
        values[pattern.name] = value
    elif isinstance(pattern, dict):
        if type(value) is not dict or list(value) != list(pattern):
            refuse(path, f"a {type(value).__name__}", f"a dict of {list(pattern)}")
        for key, part in pattern.items():
            unpack(part, value[key], f"{path}.{key}", values)
    elif isinstance(pattern, (list, tuple)):
        if type(value) is not type(pattern):
            refuse(path, f"a {type(value).__name__}", f"a {type(pattern).__name__}")
        unpack_items(type(value), pattern, value, path, values)
    elif type(value) is not type(pattern) or not (value == pattern or value != value):
        refuse(path, repr(value), repr(pattern))
    return values


def unpack_items(kind, patterns, items, path, values):
    if len(items) != len(patterns):
        refuse(path, f"a {kind.__name__} of {len(items)}", f"{len(patterns)} items")
    for i, (pattern, item) in enumerate(zip(patterns, items, strict=True)):
        unpack(pattern, item, f"{path}.{i}", values)


def fill(pattern, values, made=None):
    """A value that looks like the pattern, made of tensors by name."""
    made = [] if made is None else made
    if isinstance(pattern, Tensor):
        return values[pattern.name]
    if isinstance(pattern, dict):
        return {fill(k, values, made): fill(v, values, made) for k, v in pattern.items()}
    if type(pattern) in (list, tuple):
        return type(pattern)(fill(part, values, made) for part in pattern)
    return pattern


STAGES = [Stage0, Stage1, Stage2]

# How the model is called, and what it gives.
PARAMETERS = ["x"]
DEFAULTS = {}
ARGUMENTS = {"x": Tensor("x")}
RESULT = Tensor("linear")
WRITTEN = []


def config(B=4):
    """What goes where, for a (micro-)batch of B samples; -1 is the caller."""
    return {
        "batch_dim": 0,
        "model_inputs": {
            "x": {
                "shape": [B, 3, 16, 16],
                "dtype": torch.float32,
                "is_batched": True,
                "used_by": [0],
            },
        },
        "model_outputs": {
            "linear": {
                "shape": [B, 10],
                "dtype": torch.float32,
                "is_batched": True,
                "created_by": 2,
            },
        },
        "stages": {
            0: {
                "class": Stage0,
                "inputs": {
                    "x": {
                        "shape": [B, 3, 16, 16],
                        "dtype": torch.float32,
                        "is_batched": True,
                        "req_grad": False,
                        "created_by": -1,
                    },
                },
                "outputs": {
                    "blocks_0": {
                        "shape": [B, 8, 8, 8],
                        "dtype": torch.float32,
                        "is_batched": True,
                        "req_grad": True,
                        "used_by": [1],
                    },
                    "conv_1": {
                        "shape": [B, 8, 8, 8],
                        "dtype": torch.float32,
                        "is_batched": True,
                        "req_grad": True,
                        "used_by": [1],
                    },
                },
                "devices": ["cpu:0"],
                "stage_depth": 2,
            },
            1: {
                "class": Stage1,
                "inputs": {
                    "blocks_0": {
                        "shape": [B, 8, 8, 8],
                        "dtype": torch.float32,
                        "is_batched": True,
                        "req_grad": True,
                        "created_by": 0,
                    },
                    "conv_1": {
                        "shape": [B, 8, 8, 8],
                        "dtype": torch.float32,
                        "is_batched": True,
                        "req_grad": True,
                        "created_by": 0,
                    },
                },
                "outputs": {
                    "mean": {
                        "shape": [B, 8],
                        "dtype": torch.float32,
                        "is_batched": True,
                        "req_grad": True,
                        "used_by": [2],
                    },
                },
                "devices": ["cpu:1"],
                "stage_depth": 1,
            },
            2: {
                "class": Stage2,
                "inputs": {
                    "mean": {
                        "shape": [B, 8],
                        "dtype": torch.float32,
                        "is_batched": True,
                        "req_grad": True,
                        "created_by": 1,
                    },
                },
                "outputs": {
                    "linear": {
                        "shape": [B, 10],
                        "dtype": torch.float32,
                        "is_batched": True,
                        "req_grad": True,
                        "used_by": [-1],
                    },
                },
                "devices": ["cpu:2"],
                "stage_depth": 0,
            },
        },
        "stage_to_device_map": [0, 1, 2],
    }


def batch_of(values):
    return values["x"].shape[0]


def check_inputs(values):
    for name, row in config()["model_inputs"].items():
        found = values[name].dim(), values[name].dtype
        if found != (len(row["shape"]), row["dtype"]):
            refuse(f"input '{name}'", found, (len(row["shape"]), row["dtype"]))
    B = batch_of(values)
    for name, row in config(B)["model_inputs"].items():
        if list(values[name].shape) != row["shape"]:
            refuse(f"input '{name}'", list(values[name].shape), row["shape"])


def inputs_of(args, kwargs):
    """The tensors of a call by name. Refuses calls of another form than the one that was traced."""
    extra = map(str, range(len(PARAMETERS), len(args)))
    given = dict(zip([*PARAMETERS, *extra], args))
    for name, value in kwargs.items():
        if name in given:
            raise TypeError(f"[stages] argument '{name}' is given twice; pass it once")
        given[name] = value
    for name in [name for name in given if name not in ARGUMENTS]:
        value = given.pop(name)
        if name not in DEFAULTS or repr(DEFAULTS[name]) != repr(value):
            refuse(f"argument '{name}'", "given", "none")
    values = {}
    for name, pattern in ARGUMENTS.items():
        if name not in given:
            refuse(f"argument '{name}'", "missing", "it")
        unpack(pattern, given[name], f"argument '{name}'", values)
    check_inputs(values)
    return values


def make_stages(model=None):
    """All stages. Their weights are the model's; without a model, load them from a checkpoint."""
    return [stage(model) for stage in STAGES]


def run(stages, *args, **kwargs):
    """What the model gives for these arguments: one stage after the other, each on its device."""
    if [stage.INPUTS for stage in stages] != [stage.INPUTS for stage in STAGES]:
        raise ValueError(
            f"[stages] run is given other stages than Stage0 to Stage{len(STAGES) - 1} in this "
            "order; give it what make_stages gives"
        )
    values = inputs_of(args, kwargs)
    for stage in stages:
        given = [on_device(name, values[name], stage) for name in stage.INPUTS]
        for name in stage.LAST_USES:
            del values[name]
        results = stage(*given)
        del given
        values.update(zip(stage.OUTPUTS, results if type(results) is tuple else (results,)))
    return fill(RESULT, values)


def on_device(name, value, stage):
    if not isinstance(value, torch.Tensor) or value.device == stage.device:
        return value
    if name in WRITTEN:
        raise ValueError(
            f"[stages] the model writes its input '{name}', which is on {value.device}; expected "
            f"it on {stage.device}, where it is written; move it there"
        )
    return value.to(stage.device)


def trial(call, model, args, kwargs, backward=True):
    """What a call gives: results, with the inputs that it writes; gradients; and buffers
    afterwards, which are then put back."""
    kept = [(buffer, buffer.clone()) for buffer in model.buffers()]
    args, kwargs = copy.deepcopy((args, kwargs))
    inputs = inputs_of(args, kwargs)
    model.zero_grad(set_to_none=True)
    torch.manual_seed(0)
    try:
        results = unpack(RESULT, call(*args, **kwargs))
        results = {name: torch.as_tensor(value) for name, value in results.items()}
        losses = [t.abs().square().mean() for t in results.values() if t.requires_grad]
        if losses and backward:
            sum(losses).backward()
        gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    finally:
        with torch.no_grad():
            for buffer, value in kept:
                buffer.copy_(value)
        model.zero_grad(set_to_none=True)
    results.update({f"input {name}": inputs[name] for name in WRITTEN})
    return {n: t.detach() for n, t in results.items()}, gradients, buffers


def difference(found, expected):
    """The largest difference of tensors by name, relative to the largest number of each, or to a
    tenth of the largest of all: what is zero but for rounding is no measure."""
    if found.keys() != expected.keys():
        return torch.inf
    worst = 0.0
    least = max((largest(tensor) for tensor in expected.values()), default=0.0) / 10
    for name, tensor in expected.items():
        other = found[name]
        if other.shape != tensor.shape or other.dtype != tensor.dtype:
            return torch.inf
        same = (other == tensor) | (other.isnan() & tensor.isnan())
        if bool(same.all()):
            continue
        wide = torch.complex128 if tensor.is_complex() else torch.float64
        apart = (other.to(wide) - tensor.to(wide)).masked_fill(same, 0).abs().max().item()
        scale = max(largest(tensor), least)
        worst = max(worst, apart / scale if scale > 0 and apart == apart else torch.inf)
    return worst


def largest(tensor):
    sizes = tensor.detach().abs() if tensor.is_complex() else tensor.detach().double().abs()
    finite = sizes.double().nan_to_num(0, 0, 0)
    return finite.max().item() if finite.numel() else 0.0


def check(make_case, tolerance=1e-5):
    """Runs the stages and the model; prints how they differ. False where that is too much."""
    case = make_case()
    if not (isinstance(case, tuple) and len(case) == 3 and isinstance(case[0], nn.Module)):
        raise ValueError(
            f"[stages] the function to check with gives a {type(case).__name__}; expected the "
            "model, its positional and its named arguments"
        )
    model, args, kwargs = case
    sound, compared = True, False
    for training in MODES:
        mode = "train" if training else "eval"
        if training and not DRAWS_IN_ORDER:
            print(f"{mode}: not compared, the stages draw random numbers in another order")
            continue
        model.train(training)
        stages = [stage.train(training) for stage in make_stages(model)]
        backward, compared = True, True
        try:
            expected = trial(model, model, args, kwargs)
        except RuntimeError as error:  # of its forward too: then it comes again
            backward = False
            expected = trial(model, model, args, kwargs, backward)
            print(f"{mode}: no gradients, the model's own backward fails: {error}")
        found = trial(functools.partial(run, stages), model, args, kwargs, backward)
        parts = []
        for what, a, b in zip(("results", "gradients", "buffers"), found, expected):
            worst = difference(a, b)
            sound = sound and worst <= tolerance
            parts.append(f"{len(b)} {what} {f'differ by {worst:.3g}' if worst else 'equal'}")
        print(f"{mode}: {', '.join(parts)}")
    if not compared:
        print("nothing was compared: write the stages from a trace in each mode")
        return False
    print("the stages are the model" if sound else f"the stages differ by more than {tolerance}")
    return sound


def find_case(given):
    """The function of that name."""
    expected = "expected package.module:make_case"
    module, _, name = given.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module) if module[:1].strip(".") else None
    except ImportError as error:
        text = f"[stages] --check {given} cannot be imported ({error}); {expected}"
        raise ValueError(text) from error
    make_case = getattr(found, name, None)
    if not callable(make_case):
        raise ValueError(f"[stages] --check {given} names no function; {expected}")
    return make_case


def main():
    parser = argparse.ArgumentParser(description="Compares the stages with their model.")
    parser.add_argument(
        "--check",
        required=True,
        metavar="package.module:make_case",
        help="a function that gives the model, its positional and its named arguments",
    )
    given = parser.parse_args().check
    try:
        sound = check(find_case(given))
    except (ValueError, ImportError) as error:
        if not str(error).startswith("[stages] "):
            raise  # of the model itself
        parser.error(str(error))
    sys.exit(0 if sound else 1)


if __name__ == "__main__":
    main()
