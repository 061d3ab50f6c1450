# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A model that does not fit, as it is: weights come when their module runs, and go."""

import contextlib
import os
import pathlib
import sys
import threading
import time
import weakref

import torch
from torch.utils import _pytree

from kerf import _core, _torch
from kerf._arguments import checked, shown
from kerf._units import find_units, is_plain

_PROBE_BYTES = 64 << 20  # of a file that is read to learn how fast that is
_DISK_BYTES_PER_SECOND = 1e9  # where it was not measured
_HOST_BYTES_PER_SECOND = 10e9  # weights that a core goes through: computing is at least that long
_HOOK_SECONDS = 15e-6  # what coming and going costs a unit by itself


@checked("kerf.place")
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
    speed = disk_bytes_per_second
    if speed is not None and not (isinstance(speed, int | float) and 0 < speed < float("inf")):
        raise ValueError(
            f"[kerf.place] disk_bytes_per_second is {shown(speed)}; expected a positive number, or "
            "None to measure it"
        )
    if isinstance(no_split_module_classes, str):
        no_split_module_classes = [no_split_module_classes]
    names = no_split_module_classes or ()
    if not isinstance(names, list | tuple | set | frozenset) or not all(
        isinstance(name, str) for name in names
    ):
        raise ValueError(
            f"[kerf.place] no_split_module_classes is {shown(names)}; expected a list of names of "
            "classes, such as ['LlamaDecoderLayer']"
        )
    if checkpoint is not None:
        is_path = isinstance(checkpoint, str | os.PathLike)
        if not is_path or not os.fspath(checkpoint) or "\0" in str(os.fspath(checkpoint)):
            raise ValueError(
                f"[kerf.place] checkpoint is {shown(checkpoint)}; expected the path of a "
                "safetensors file, its index, or a folder with either"
            )
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
            self._make(limit, folder, checkpoint, no_split, disk_bytes_per_second)
        except BaseException:
            self._before.put_back()
            raise

    # Weights are no inference tensors, whatever mode the caller is in.
    @torch.inference_mode(False)
    def _make(self, limit, folder, checkpoint, no_split, disk_bytes_per_second):
        if checkpoint is not None:
            self._before.map_checkpoint(checkpoint)
        _refuse_elsewhere(self._model)
        self._place(limit, folder, no_split, disk_bytes_per_second)

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
            torch.device("cpu"),
            self.placement.slots,
            self.placement.slot_bytes,
        )
        self._calls = _Calls(model, streamed, self._weights)
        object.__setattr__(model, "_kerf_placed", self)

    @property
    def stats(self):
        """Uses of streamed modules, misses (whose weights nobody had asked for), copies."""
        return dict(self._weights.stats if self._weights is not None else self._last_stats)

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

    @torch.inference_mode(False)
    def remove(self):
        """The model as it was: its weights in memory, or on the meta device; its hooks."""
        if self._calls is None:
            return
        self._calls.remove()
        self._weights.abandon()
        self._last_stats = self._weights.stats
        self._calls = self._weights = None
        self._before.put_back()
        del self._model.__dict__["_kerf_placed"]


class _Turn:
    """One call at a time, by one thread. Who was interrupted inside of it has it no more."""

    _PATIENCE = 2.0  # seconds that a module waits for a call of the model on another thread

    def __init__(self, model):
        self._model = weakref.ref(model)
        self._changed = threading.Condition()
        self._owner = None
        self._depth = 0

    def acquire(self, drop, path=None):
        """``drop``: ends what a call left behind. ``path``: of a module called by itself."""
        me = threading.get_ident()
        start = time.monotonic()
        with self._changed:
            while self._owner not in (None, me):
                if self._changed.wait(0.1):
                    continue
                if self._frames(self._owner) == 0:
                    drop()
                elif path is not None and time.monotonic() - start > self._PATIENCE:
                    raise RuntimeError(
                        f"[kerf.place] module '{path}' is called on a thread of its own while a "
                        "call of the model runs, which may be waiting for it; expected modules "
                        "that are called one after the other; run it on the caller's thread"
                    )
            self._owner = me
            self._depth += 1

    def release(self):
        with self._changed:
            self._depth -= 1
            if self._depth <= 0:
                self.reset()

    def reset(self):
        with self._changed:
            self._owner, self._depth = None, 0
            self._changed.notify_all()

    def is_nested(self):
        """Does the model run on this thread more than once, one call inside of the other?"""
        return self._frames(threading.get_ident()) > 1

    def _frames(self, thread):
        """How many calls of modules of the model a thread is inside of."""
        model = self._model()
        modules = set(map(id, model.modules())) if model is not None else set()
        frame, count = sys._current_frames().get(thread), 0
        while frame is not None:
            own = frame.f_locals.get("self") if frame.f_code.co_name == "_call_impl" else None
            count += own is model if thread == threading.get_ident() else id(own) in modules
            frame = frame.f_back
        return count


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
        self._turn = _Turn(model)
        self._made_in = os.getpid()
        # Units that were entered, by their numbers; None: the model, or a module inside of one.
        self._inside = []
        self._covered = [{id(m) for m in unit.module.modules()} for unit in units]
        self._handles = []
        try:
            self._hook(model, self._begin, self._end)
            for unit in units:
                self._hook(unit.module, self._enter, self._leave)
        except BaseException:
            self.remove()
            raise

    def _hook(self, module, before, after):
        hook = module.register_forward_pre_hook(before, prepend=True, with_kwargs=True)
        self._handles.append(hook)
        self._handles.append(module.register_forward_hook(after, always_call=True))

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
        if module is not self._model or self._is_elsewhere():
            return
        self._turn.acquire(self._drop)
        if self._inside and not self._turn.is_nested():
            self._drop()  # the last call was left by what no hook is called for: an interrupt
            self._turn.acquire(self._drop)
        self._inside.append(None)

    def _end(self, module, args, result):
        del args, result
        if module is not self._model or self._is_elsewhere() or not self._inside:
            return
        if self._inside[-1] is None:
            self._inside.pop()
            if not self._inside:
                self._weights.end_call()
            self._turn.release()

    def _enter(self, module, args, kwargs):
        number = self._modules.get(id(module))
        if number is None or self._is_elsewhere():
            return
        self._turn.acquire(self._drop, self._units[number].path)
        if any(u is not None and id(module) in self._covered[u] for u in self._inside):
            self._inside.append(None)  # its weights are there with those of the unit around it
            return
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
        if number is None or self._is_elsewhere() or not self._inside:
            return  # a copy's
        if self._inside[-1] not in (number, None):
            return  # it was refused at its door
        if self._inside.pop() is not None:
            self._weights.leave(number)
        self._turn.release()

    def _is_elsewhere(self):
        """A forked process has no thread that copies: weights are used where they are at home."""
        return os.getpid() != self._made_in

    def _drop(self):
        self._weights.abandon()
        self._inside.clear()
        self._turn.reset()

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
        self._mapped = []  # parameters whose data is a file's, to be in memory again
        self._new = {}  # id of a tensor of the meta device -> what has its place

    def map_checkpoint(self, path):
        """Gives each parameter and buffer the checkpoint's tensor of its name."""
        stored = _torch.map_checkpoint(os.fspath(path))
        named, seen = list(_named(self._model)), set()
        for name, tensor in named:
            if name in stored and id(tensor) not in seen:
                seen.add(id(tensor))
                self._take(tensor, _as_stored(name, tensor, stored[name]))
        # One name of a tied weight is enough.
        missing = [(name, tensor) for name, tensor in named if id(tensor) not in seen]
        _refuse_missing(self._model, missing, path)
        for own, name, tensor in self._entries:
            if id(tensor) in self._new:
                own[name] = self._new[id(tensor)]

    def _take(self, tensor, stored):
        """A tensor stays the object it is; one of the meta device cannot."""
        if not tensor.is_meta:
            self._mapped.append(tensor)
            tensor.data = stored
        elif isinstance(tensor, torch.nn.Parameter):
            self._new[id(tensor)] = torch.nn.Parameter(stored, tensor.requires_grad)
        else:
            self._new[id(tensor)] = stored

    def keep_streamed(self, units, folder):
        """Weights of streamed units that no file has go to one."""
        loose = [p for unit in units for p in unit.parameters if not _is_mapped(p)]
        loose = list({id(p): p for p in loose}.values())
        if not loose:
            return
        if folder is None:
            raise ValueError(
                "[kerf.place] weights do not fit and no file has them as the model does (a "
                "checkpoint of another dtype does not); expected a folder for them, "
                "max_memory={..., 'disk': 'folder'}, or checkpoint="
            )
        # Parameters may share memory: they go on doing so.
        places = {}
        for parameter in loose:
            places.setdefault(_place_of(parameter), parameter)
        stored = _torch.move_to_file(os.fspath(folder), [p.data for p in places.values()])
        data = dict(zip(places, stored, strict=True))
        for parameter in loose:
            self._mapped.append(parameter)
            parameter.data = data[_place_of(parameter)]

    def load_others(self, units):
        """What is not streamed is in memory."""
        streamed = {id(p) for unit in units for p in unit.parameters}
        for _, tensor in _named(self._model):
            if id(tensor) not in streamed and _is_mapped(tensor):
                tensor.data = tensor.data.clone()

    def put_back(self):
        data = {}
        for tensor in self._mapped:
            if _is_mapped(tensor):
                place = _place_of(tensor)
                if place not in data:
                    data[place] = tensor.data.clone()
                tensor.data = data[place]
        for own, name, tensor in self._entries:
            # Only where nobody has put something else since.
            if id(tensor) in self._new and own.get(name) is self._new[id(tensor)]:
                own[name] = tensor


def _is_mapped(tensor):
    return is_plain(tensor) and _torch.is_mapped(tensor.data)


def _place_of(tensor):
    """What is equal for tensors that are the same numbers in the same memory."""
    data = tensor.data
    return data.data_ptr(), data.dtype, data.shape, data.stride(), data.is_conj()


def _named(model):
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _as_stored(name, tensor, stored):
    if tensor.shape != stored.shape:
        raise ValueError(
            f"[kerf.place] the checkpoint has '{name}' with shape {list(stored.shape)}; expected "
            f"{list(tensor.shape)}, as the model has it; give the model's own checkpoint"
        )
    if stored.dtype == tensor.dtype:
        return stored
    if not (stored.is_floating_point() and tensor.is_floating_point()):
        raise ValueError(
            f"[kerf.place] the checkpoint has '{name}' as {stored.dtype}; expected {tensor.dtype}, "
            "as the model has it; give the model's own checkpoint"
        )
    return stored.to(tensor.dtype)  # in memory: the file has other bytes


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
    if isinstance(limit, str):
        limit = _core.parse_bytes(limit)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise ValueError(
            f"[kerf.place] max_memory['cpu'] is {shown(limit)}; expected bytes, or a text such as "
            "'4GiB'"
        )
    folder = max_memory.get("disk")
    if folder is not None and not isinstance(folder, str | os.PathLike):
        raise ValueError(
            f"[kerf.place] max_memory['disk'] is {shown(folder)}; expected the path of a folder"
        )
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
    mapped = [t.data for _, t in _named(model) if _is_mapped(t)]
    if not mapped:
        return _DISK_BYTES_PER_SECOND  # its own file is still to be written
    return _torch.file_speed(max(mapped, key=lambda t: t.nbytes), _PROBE_BYTES)


def _plan(model, limit, speed, no_split):
    """The placement with the shortest call, of several sizes of units."""
    best = None
    failure = None
    buffers = sum(buffer.nbytes for buffer in model.buffers())
    for share in (2, 3, 4, 6, 8, 12):
        units = find_units(model, limit // share, no_split or ())
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
