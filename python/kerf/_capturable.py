# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What no trace can hold, refused by name before one is tried, each with what to do instead."""

import torch
from torch.nn.utils.rnn import PackedSequence

from kerf._errors import ExportError
from kerf._placed_models import shared_parts


def check_model(model):
    """Raises ExportError for a model of a kind that torch.export does not take."""
    if isinstance(model, torch.jit.ScriptModule):
        _refuse(
            f"the model is a torch.jit module ({type(model).__name__})",
            "the Python module that it was made from",
            "trace that one; scripted modules inside a model may stay, each as one opaque block",
        )
    if _is_quantised(model) and is_packed(model):
        _refuse(
            f"the model is one quantised layer ({type(model).__name__})",
            "a model that contains such layers",
            "put it into an nn.Sequential",
        )
    if next(shared_parts(model), None) is not None:
        _refuse(
            "the model, or a module in it, is placed by kerf.place, whose hooks are in it",
            "the model alone",
            "call the handle's remove() first",
        )
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.layout is not torch.strided:
            _refuse(
                f"weight '{name}' is {_layout(tensor)}",
                "dense weights",
                "keep it as a dense tensor (`.to_dense()`), or as indices and values that forward "
                "puts together with index_add or embedding_bag",
            )


def check_call(args, kwargs):
    """Raises ExportError for arguments that are no dense tensors."""
    for name, value in [*((f"args.{i}", a) for i, a in enumerate(args)), *kwargs.items()]:
        if isinstance(value, PackedSequence):
            _refuse(
                f"{name} is a PackedSequence, whose sizes depend on the lengths inside it",
                "a padded tensor",
                "pass nn.utils.rnn.pad_packed_sequence(...)[0] and mask what is padding",
            )
        for tensor in torch.utils._pytree.tree_leaves(value):
            if isinstance(tensor, torch.Tensor) and tensor.layout is not torch.strided:
                _refuse(f"{name} is {_layout(tensor)}", "dense tensors", "pass `.to_dense()`")


def check_batch(batch, paths):
    """Raises ValueError for an example without samples."""
    empty = [paths[i] for i, dim in enumerate(batch.dims) if dim is not None]
    if empty and batch.size == 0:
        raise ValueError(
            f"[trace] the batch of {', '.join(empty)} is 0; expected an example of at least one "
            "sample; trace with one; an empty batch needs no pipeline"
        )


def closed_blocks(model):
    """Modules that no trace can look into, which run as they are: path -> why."""
    found = {}
    for path, module in model.named_modules():
        if not path or any(path.startswith(p + ".") for p in found):
            continue
        if isinstance(module, torch.jit.ScriptModule):
            found[path] = "it is a torch.jit module"
        elif _is_quantised(module) and is_packed(module):
            found[path] = "it is quantised, and its weights are packed"
    return found


def _is_quantised(module):
    return type(module).__module__.startswith(("torch.ao.nn.", "torch.nn.quantized."))


def is_packed(module):
    """Whether a module of Python holds objects of TorchScript, as quantised layers do."""
    if isinstance(module, torch.jit.ScriptModule):
        return False
    held = (v for m in module.modules() for v in vars(m).values())
    return any(isinstance(v, torch.ScriptObject) for v in held)


def _layout(tensor):
    return f"a {str(tensor.layout).removeprefix('torch.')} tensor"


def _refuse(found, expected, advice):
    raise ExportError(f"[trace] {found}; expected {expected}; {advice}")
