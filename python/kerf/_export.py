# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Running ``torch.export`` on a model of any form.

The model is exported inside a wrapper whose inputs and outputs are plain tuples of tensors: the
wrapper nests them for the model and takes its result apart. So nothing has to be registered with
torch, whatever the model takes and returns, and the batch dimension is named tensor by tensor.
"""

import contextlib
import threading
import time

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kerf import _pytree
from kerf._call import describe_call
from kerf._checkpoint import marked_regions
from kerf._decisions import Decisions
from kerf._flatten import modes_in_line
from kerf._lower import MODEL
from kerf._quiet import quiet
from kerf._reads import symbolic_in
from kerf._restore import attributes_restored
from kerf._strides import strides_left_open

# A trace changes things that belong to all threads (hooks of modules, the checkpoint function).
_one_at_a_time = threading.RLock()


class Exporter:
    """Exports one model for one form of call. ``result`` is set by ``run``."""

    def __init__(self, model, signature, blocks, device):
        self.model = model
        self.signature = signature
        self.blocks = blocks
        self.device = device
        self.result = None  # Description of what the model returned
        self.lost = []  # paths of arguments that the model changes in a way no pipeline can
        self.seconds = 0.0  # spent in torch.export so far
        self.decisions = Decisions()  # of the last run
        self.around = contextlib.nullcontext  # entered for the length of the model's own call
        self.learning = contextlib.nullcontext  # the same, in train mode
        self._batch = 0
        self._calls = 1
        self._modules = {id(m): path for path, m in model.named_modules()}

    def run(self, examples, batch):
        """The ExportedProgram for these example tensors."""
        auto = torch.export.Dim.AUTO
        dims = tuple({} if d is None else {d: auto} for d in batch.dims)
        self.decisions = Decisions()
        wrapper = _Flat(self, batch)
        with (
            _one_at_a_time,
            quiet(),
            _no_inference_mode(),
            attributes_restored(self.model, _left_by_trace),
            _plain_attention(),
            self.decisions.watched(),
            marked_regions(),
            modes_in_line(),
            strides_left_open(),
            self.blocks.installed(lambda: self._batch),
            _on_fake_device(self.model, self.device),
        ):
            started = time.perf_counter()
            try:
                return torch.export.export(
                    wrapper,
                    tuple(examples),
                    dynamic_shapes=(dims,) if dims else None,
                    strict=False,
                )
            finally:
                self.seconds += time.perf_counter() - started

    def second_call(self, examples, batch, around):
        """Traces two calls, one after the other, and enters ``around()`` for the second."""
        before, self.around, self._calls = self.around, around, 2
        try:
            self.run(examples, batch)
        finally:
            self.around, self._calls = before, 1

    def call(self, tensors, batch):
        """What the wrapper's forward does, with fake tensors."""
        self._batch = _batch_size(tensors, batch)
        args, kwargs = self.signature.arguments_of(
            tensors, device=self.device, module=self.model.get_submodule
        )
        # Symbols get their texts later, when it is known which of them is the batch.
        self.result, self.lost = describe_call(
            self.signature,
            args,
            kwargs,
            lambda: self._call_model(args, kwargs),
            device=self.device,
            modules=self._modules,
            symbol=lambda size: size,
        )
        for tensor in self.result.tensors:
            if _memory(tensor) in self._replaced:
                raise NotImplementedError(
                    f"forward replaces buffer '{self._replaced[_memory(tensor)]}' and returns the "
                    "tensor that it held; write into the buffer (copy_), and return a clone"
                )
        return tuple(self.result.tensors)

    def _call_model(self, args, kwargs):
        buffers = _buffers(self.model)
        for _ in range(self._calls - 1):
            self.model(*args, **kwargs)
        with self.learning(), self.around():
            value = self.model(*args, **kwargs)
        self._write_back(buffers)
        return value

    def _write_back(self, before):
        """``self.count = self.count + 1`` leaves a new tensor in the buffer's place, which export
        forgets. What the buffer held is overwritten instead: the same for whoever looks into the
        model, and not for whoever has the old tensor."""
        self._replaced = {}  # memory -> path
        others = {_memory(t) for t in [*self.model.parameters(), *before.values()]}
        for (module, name), old in before.items():
            new = module._buffers.get(name)
            if new is old:
                continue
            path = _pytree.join(self._modules[id(module)], name)
            if new is None or new.shape != old.shape or new.dtype != old.dtype:
                raise NotImplementedError(
                    f"buffer '{path}' gets another shape or dtype in forward; keep both fixed"
                )
            if _memory(new) in others:
                raise NotImplementedError(
                    f"forward replaces buffer '{path}' by another tensor of the model, or a view "
                    "of one; write into the buffer instead (copy_)"
                )
            self._replaced[_memory(old)] = path
            old.copy_(new)
            module._buffers[name] = old


def _memory(tensor):
    """One number for all tensors that lie in one memory."""
    return tensor.untyped_storage()._cdata


def _batch_size(tensors, batch):
    for tensor, dim in zip(tensors, batch.dims, strict=True):
        if dim is not None:
            return tensor.shape[dim]
    return 0


def _buffers(model):
    return {
        (module, name): buffer
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    }


class _Flat(torch.nn.Module):
    def __init__(self, exporter, batch):
        super().__init__()
        self.add_module(MODEL, exporter.model)
        self.training = exporter.model.training
        # Not attributes: export looks through those for tensors.
        self._call = lambda tensors: exporter.call(tensors, batch)

    def forward(self, *tensors):
        return self._call(tensors)


@contextlib.contextmanager
def _no_inference_mode():
    if not torch.is_inference_mode_enabled():
        yield
        return
    with torch.inference_mode(False), torch.no_grad():
        yield


@contextlib.contextmanager
def _plain_attention():
    """``nn.Transformer`` and its parts take the way that any call can take.

    Their fast path is one operator for a whole layer, of nested tensors where there is padding. And
    they compare a mask's values with a causal one to choose a kernel; that is up to the graph.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    transformer = torch.nn.modules.transformer
    detect = transformer._detect_is_causal_mask
    transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: is_causal is True
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        transformer._detect_is_causal_mask = detect


def _left_by_trace(attributes):
    """Fake tensors that a forward stores in its modules must not stay there.

    With them go the plain attributes that the module's forward changed (the length of what it
    keeps). What a first call sets up in other modules (flags, hooks) holds together, and stays as
    any call would leave it.
    """
    now = attributes.now()
    fakes = [name for name, value in now.items() if symbolic_in(value)]
    return [*fakes, *_changed_plain(attributes.before, now)] if fakes else []


def _changed_plain(before, now):
    """Numbers, texts and flags that are not what they were."""
    for name in [*before, *(n for n in now if n not in before)]:
        values = before.get(name), now.get(name)
        if all(isinstance(v, _PLAIN) for v in values) and values[0] is not values[1]:
            yield name


_PLAIN = (type(None), bool, int, float, str)


@contextlib.contextmanager
def _on_fake_device(model, device):
    """Weights on the meta device are shown to export as if they were on ``device``.

    Tensors that a forward makes come up on a real device, and meta tensors do not mix with those.
    Weights that were made in inference mode get stand-ins too: export cannot take those.
    """
    places = [
        (owner, name, tensor)
        for module in model.modules()
        for owner in (module._parameters, module._buffers)
        for name, tensor in owner.items()
        if tensor is not None and (tensor.is_meta or tensor.is_inference())
    ]
    if not places or device.type == "meta":
        yield
        return
    mode = FakeTensorMode()
    made = {}  # id of a tensor -> its stand-in, so that tied weights stay tied
    try:
        for owner, name, tensor in places:
            if id(tensor) not in made:
                with mode:
                    stand_in = torch.empty_strided(
                        tensor.shape,
                        tensor.stride(),
                        dtype=tensor.dtype,
                        device=device if tensor.is_meta else tensor.device,
                    )
                if isinstance(tensor, torch.nn.Parameter):
                    stand_in = torch.nn.Parameter(stand_in, tensor.requires_grad)
                made[id(tensor)] = stand_in
            owner[name] = made[id(tensor)]
        yield
    finally:
        for owner, name, tensor in places:
            owner[name] = tensor
