# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A model that does not fit, as it is: weights come when their module runs, and go."""

import contextlib
import os
import pathlib
import threading

import torch
from torch.utils import _pytree

from kerf import _core, _torch
from kerf._arguments import shown
from kerf._units import find_units

_PROBE_BYTES = 64 << 20  # of a file that is read to learn how fast that is
_DISK_BYTES_PER_SECOND = 1e9  # where it was not measured
_HOST_BYTES_PER_SECOND = 10e9  # weights that a core goes through: computing is at least that long
_HOOK_SECONDS = 15e-6  # what coming and going costs a unit by itself
_FILE = "kerf-weights.bin"


def place(
    model,
    max_memory=None,
    *,
    checkpoint=None,
    no_split_module_classes=None,
    disk_bytes_per_second=None,
):
    """Makes ``model`` run in ``max_memory``: weights that do not fit are streamed while it runs.

    max_memory    ``{"cpu": "4GiB", "disk": "folder"}``: for weights; the folder is for those that
                  do not fit, where no checkpoint has them
    checkpoint    a safetensors file, its index or a folder with either: the model's weights, which
                  may be on the meta device (``kerf.empty_weights``); files are mapped, not loaded
    no_split_module_classes  names of classes whose modules are never opened
    disk_bytes_per_second    default: measured on the checkpoint

    Returns a handle that is called as the model is. The model itself works too, ``generate`` and
    all; ``remove()`` makes it what it was.
    """
    limit, folder = _limits(max_memory)
    if getattr(model, "_kerf_placed", None) is not None:
        raise ValueError(
            "[kerf.place] the model is placed already; expected one that is not; call remove() on "
            "the handle first"
        )
    return Placed(model, limit, folder, checkpoint, no_split_module_classes, disk_bytes_per_second)


@contextlib.contextmanager
def empty_weights():
    """Models made inside have parameters on the meta device, and real buffers: they take no memory
    until ``kerf.place(model, checkpoint=...)`` gives them a checkpoint's weights."""
    register = torch.nn.Module.register_parameter

    def register_empty(module, name, parameter):
        if parameter is not None and not parameter.is_meta:
            empty = parameter.detach().to("meta")
            parameter = torch.nn.Parameter(empty, requires_grad=parameter.requires_grad)
        register(module, name, parameter)

    torch.nn.Module.register_parameter = register_empty
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register


class Placed:
    """A model whose weights are streamed. Called as the model is; attributes are the model's."""

    def __init__(self, model, limit, folder, checkpoint, no_split, disk_bytes_per_second):
        self._model = model
        self._before = _Weights(model)
        try:
            if checkpoint is not None:
                self._before.map_checkpoint(checkpoint)
            _refuse_elsewhere(model)
            self._place(limit, folder, no_split, disk_bytes_per_second)
        except BaseException:
            self._before.put_back()
            raise

    def _place(self, limit, folder, no_split, disk_bytes_per_second):
        model = self._model
        speed = disk_bytes_per_second or _disk_speed(model)
        self.placement, units = _plan(model, limit, speed, no_split)
        streamed = [
            unit
            for unit, placed in zip(units, self.placement.units, strict=True)
            if placed.residence == "streamed"
        ]
        self._before.keep_streamed(streamed, folder)
        self._before.load_others(streamed)
        self._weights = _torch.StreamedWeights(
            [(unit.path, unit.parameters) for unit in streamed],
            self.placement.slots,
            self.placement.slot_bytes,
        )
        self._calls = _Calls(model, streamed, self._weights)
        object.__setattr__(model, "_kerf_placed", self)

    @property
    def stats(self):
        """Uses of streamed modules, misses (whose weights nobody had asked for), copies."""
        return self._weights.stats

    def __call__(self, *args, **kwargs):
        with torch.no_grad():
            return self._model(*args, **kwargs)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._model, name)

    def __reduce__(self):  # a copy of the model, or a pickled one, is not placed
        return type(None), ()

    def __repr__(self):
        return f"kerf.Placed({type(self._model).__name__}, {self.placement!r})"

    def remove(self):
        """The model as it was: its weights in memory, or on the meta device; its hooks."""
        if self._calls is None:
            return
        self._calls.remove()
        self._weights.abandon()
        self._calls = self._weights = None
        self._before.put_back()
        del self._model.__dict__["_kerf_placed"]


class _NoCalls:
    """The hooks of a placed model that was pickled, and has all its weights."""

    def _begin(self, *args):
        pass

    _end = _enter = _leave = _begin


class _Calls:
    """Hooks on the streamed modules and on the model: one call at a time."""

    def __init__(self, model, units, weights):
        self._weights = weights
        self._modules = {id(unit.module): number for number, unit in enumerate(units)}
        self._units = units
        self._model = model
        self._turn = threading.RLock()
        self._inside = []  # units that were entered, by their numbers; None for the model
        self._handles = [
            *self._hook(model, self._begin, self._end),
            *(h for u in units for h in self._hook(u.module, self._enter, self._leave)),
        ]

    @staticmethod
    def _hook(module, before, after):
        return (
            module.register_forward_pre_hook(before, prepend=True, with_kwargs=True),
            module.register_forward_hook(after, always_call=True),
        )

    def remove(self):
        for handle in self._handles:
            handle.remove()

    # A copy of the model has the hooks, too, and weights of its own: they are not about it.
    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return _NoCalls, ()

    def _begin(self, module, args, kwargs):
        del args, kwargs
        if module is not self._model:
            return
        self._turn.acquire()
        if self._inside:
            self._drop()  # the last call was left by what no hook is called for: an interrupt
        self._inside.append(None)

    def _end(self, module, args, result):
        del args, result
        if module is self._model and self._inside and self._inside[-1] is None:
            self._inside.pop()
            self._weights.end_call()
            self._turn.release()

    def _enter(self, module, args, kwargs):
        number = self._modules.get(id(module))
        if number is None:
            return
        self._turn.acquire()
        try:
            self._refuse_gradients(self._units[number], args, kwargs)
            self._weights.enter(number)
        except BaseException:
            self._turn.release()
            raise
        self._inside.append(number)

    def _leave(self, module, args, result):
        del args, result
        number = self._modules.get(id(module))
        if number is None or not self._inside or self._inside[-1] != number:
            return  # a copy's, or it was refused at its door
        self._inside.pop()
        self._weights.leave(number)
        self._turn.release()

    def _drop(self):
        self._weights.abandon()
        for _ in self._inside:
            self._turn.release()
        self._inside.clear()

    @staticmethod
    def _refuse_gradients(unit, args, kwargs):
        if not torch.is_grad_enabled():
            return
        given = (t for t in _pytree.tree_iter((args, kwargs)) if isinstance(t, torch.Tensor))
        if any(t.requires_grad for t in (*unit.parameters, *given)):
            raise RuntimeError(
                f"[kerf.place] module '{unit.path}' is called with gradients to be taken, and its "
                "weights are streamed: backward would find others in their place; expected "
                "inference; call the model under torch.no_grad()"
            )


class _Weights:
    """The parameters and buffers of a model as they were, and ways to keep them elsewhere."""

    def __init__(self, model):
        self._model = model
        self._entries = [
            (own, name, tensor)
            for module in model.modules()
            for own in (module._parameters, module._buffers)
            for name, tensor in own.items()
            if tensor is not None
        ]
        self._data = []  # (parameter, what to make of it again)
        self._files = []

    def map_checkpoint(self, path):
        """Gives each parameter and buffer the checkpoint's tensor of its name."""
        stored = _torch.map_checkpoint(os.fspath(path))
        new = {}  # id of a tensor -> the one that takes its place
        missing = []
        for name, tensor in _named(self._model):
            if id(tensor) in new:
                continue
            if name in stored:
                new[id(tensor)] = _as_stored(name, tensor, stored[name])
            elif not any(n in stored for n in _names_of(self._model, tensor)):
                missing.append((name, tensor))
        _refuse_missing(self._model, missing, path)
        for own, name, tensor in self._entries:
            if id(tensor) in new:
                own[name] = new[id(tensor)]
        self._kept_alive = new

    def keep_streamed(self, units, folder):
        """Weights of streamed units that no file has go to one."""
        loose = [p for unit in units for p in unit.parameters if not _torch.is_mapped(p.data)]
        loose = list({id(p): p for p in loose}.values())
        if not loose:
            return
        if folder is None:
            raise ValueError(
                "[kerf.place] weights do not fit and no file has them; expected a folder for them, "
                "max_memory={..., 'disk': 'folder'}, or checkpoint="
            )
        path = pathlib.Path(folder) / _FILE
        self._files.append(path)
        stored = _torch.move_to_file(os.fspath(path), [p.data for p in loose])
        for parameter, data in zip(loose, stored, strict=True):
            self._data.append(parameter)
            parameter.data = data

    def load_others(self, units):
        """What is not streamed is in memory."""
        streamed = {id(p) for unit in units for p in unit.parameters}
        for _, tensor in _named(self._model):
            if id(tensor) not in streamed and _torch.is_mapped(tensor.data):
                tensor.data = tensor.data.clone()

    def put_back(self):
        for parameter in self._data:
            parameter.data = parameter.data.clone()
        for own, name, tensor in self._entries:
            own[name] = tensor
        for path in self._files:
            path.unlink(missing_ok=True)


def _named(model):
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _names_of(model, tensor):
    return [name for name, other in _named(model) if other is tensor]


def _as_stored(name, tensor, stored):
    if tensor.shape != stored.shape:
        raise ValueError(
            f"[kerf.place] the checkpoint has '{name}' with shape {list(stored.shape)}; expected "
            f"{list(tensor.shape)}, as the model has it; give the model's own checkpoint"
        )
    if stored.dtype != tensor.dtype:
        stored = stored.to(tensor.dtype)  # in memory: the file has other bytes
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(stored, requires_grad=tensor.requires_grad)
    return stored


def _refuse_missing(model, missing, path):
    persistent = set(model.state_dict(keep_vars=True))
    needed = [name for name, tensor in missing if name in persistent or tensor.is_meta]
    if needed:
        more = f" and {len(needed) - 1} more" if len(needed) > 1 else ""
        raise ValueError(
            f"[kerf.place] checkpoint {shown(os.fspath(path))} has no tensor '{needed[0]}'{more}; "
            "expected every parameter and buffer of the model that a checkpoint can have; give the "
            "model's own checkpoint, or make the model with kerf.empty_weights(), which keeps "
            "buffers"
        )


def _limits(max_memory):
    """Bytes for weights on the host, and the folder for the others."""
    if not isinstance(max_memory, dict) or "cpu" not in max_memory:
        raise ValueError(
            f"[kerf.place] max_memory is {shown(max_memory)}; expected the memory for weights, "
            "{'cpu': '4GiB', 'disk': 'folder'}"
        )
    others = [key for key in max_memory if key not in ("cpu", "disk")]
    if others:
        raise NotImplementedError(
            f"[kerf.place] max_memory names {shown(others[0])}; expected 'cpu' and 'disk': weights "
            "are streamed from files to the host today, not yet to accelerators"
        )
    limit = max_memory["cpu"]
    limit = _core.parse_bytes(limit) if isinstance(limit, str) else int(limit)
    folder = max_memory.get("disk")
    if folder is not None and not pathlib.Path(folder).is_dir():
        raise ValueError(
            f"[kerf.place] max_memory['disk'] is {shown(os.fspath(folder))}; expected a folder "
            "that exists; make it first"
        )
    return limit, folder


def _refuse_elsewhere(model):
    for name, tensor in _named(model):
        if tensor.device.type != "cpu":
            hint = "give checkpoint=" if tensor.is_meta else "move the model to the host first"
            raise ValueError(
                f"[kerf.place] '{name}' is on {tensor.device}; expected weights on the host; {hint}"
            )


def _disk_speed(model):
    """Bytes per second of reading a file that the model's weights are in."""
    mapped = [t.data for _, t in _named(model) if _torch.is_mapped(t.data)]
    if not mapped:
        return _DISK_BYTES_PER_SECOND  # its own file is still to be written
    return _torch.file_speed(max(mapped, key=lambda t: t.nbytes), _PROBE_BYTES)


def _plan(model, limit, speed, no_split):
    """The placement with the shortest call, of several sizes of units."""
    best = None
    failure = None
    for share in (2, 3, 4, 6, 8, 12):
        units = find_units(model, limit // share, no_split or ())
        buffers = sum(b.nbytes for b in {id(b): b for b in model.buffers()}.values())
        try:
            placement = _core.place_units(
                [unit.path for unit in units],
                [unit.bytes for unit in units],
                [unit.bytes / _HOST_BYTES_PER_SECOND + _HOOK_SECONDS for unit in units],
                [unit.stays for unit in units],
                max(limit - buffers, 0),
                speed,
                20e-6,
                "cpu",
                "disk",
            )
        except ValueError as error:
            failure = error
            continue
        if best is None or placement.time < best[0].time:
            best = placement, units
    if best is None:
        raise failure
    return best
