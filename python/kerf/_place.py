# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A model that does not fit, as it is: weights come when their module runs, and go."""

import contextlib
import gc
import os

import torch
from torch.nn.parameter import is_lazy
from torch.utils.weak import WeakIdKeyDictionary

from kerf import _torch
from kerf._arguments import checked, shown
from kerf._device_map import DISK, Homes, map_of, places_of
from kerf._gates import flow_of
from kerf._host_units import MEASURED, HostShare
from kerf._limits import CPU, limits_beside, limits_of
from kerf._listed_weights import ListedWeights
from kerf._loose_reads import compiled_modules
from kerf._mapped_plan import plan_mapped
from kerf._placed_answers import PlacedAnswers
from kerf._placed_calls import PlacedCalls
from kerf._placed_copies import PlacedCopies
from kerf._placed_models import PLACED, shared_parts
from kerf._placed_plan import (
    disk_speed,
    far_units,
    link_speed,
    plan_units,
    speed_of_both,
    streamed_units,
)
from kerf._placed_weights import PlacedWeights, refuse_elsewhere
from kerf._units import WeightSizes
from kerf._unmade import refuse_lazy


@checked("kerf.place")
def place(
    model,
    max_memory=None,
    *,
    device_map=None,
    checkpoint=None,
    offload_folder=None,
    no_split_module_classes=None,
    disk_bytes_per_second=None,
    link_bytes_per_second=None,
    host_computes=True,
):
    """Makes ``model`` run in ``max_memory``: weights that do not fit are streamed while it runs.

    max_memory    for weights: ``{0: "2GiB", "cpu": "30GiB", "disk": "folder"}``. The accelerator
                  computes, or the CPU where none is named. Weights that it cannot hold are in the
                  host's memory, pinned; those that do not fit there, in a file: the checkpoint's,
                  or a new one in the folder
    device_map    accelerate's form, ``{"model.embed_tokens": 0, "model.layers": "cpu"}``: by module
                  (the longest key counts, "" is the model) a device, or "disk". What is not on the
                  device that computes is streamed. ``max_memory`` limits it, where given; "auto"
                  is what ``max_memory`` gives by itself
    checkpoint    a safetensors file, its index or a folder with either: the model's weights, which
                  may be on the meta device (``kerf.empty_weights``); files are mapped, not loaded
    offload_folder           accelerate's name of ``max_memory["disk"]``
    no_split_module_classes  names of classes whose modules are never opened
    disk_bytes_per_second    default: measured on the checkpoint
    link_bytes_per_second    from the host to the accelerator; default: measured
    host_computes            in calls of few rows the host computes layers whose weights do not fit,
                             where that is faster than their way to the accelerator. False: it
                             computes nothing; a number: bytes per second at which it goes through
                             weights; default: measured

    Returns a handle that is called as the model is. The model itself works too, ``generate`` and
    all; ``remove()`` makes it what it was.
    """
    places = places_of(device_map)
    if places is None:
        limits = limits_of(max_memory, offload_folder)
    else:
        limits = limits_beside(places.values(), max_memory, offload_folder)
    speeds = {"disk": disk_bytes_per_second, "link": link_bytes_per_second}
    for name, speed in speeds.items():
        if speed is not None and not _is_speed(speed):
            raise ValueError(
                f"[kerf.place] {name}_bytes_per_second is {shown(speed)}; expected a positive "
                "number, or None to measure it"
            )
    if not isinstance(host_computes, bool) and not _is_speed(host_computes):
        raise ValueError(
            f"[kerf.place] host_computes is {shown(host_computes)}; expected True, False, or the "
            "bytes per second at which the host goes through weights"
        )
    if isinstance(host_computes, bool):
        host_computes = MEASURED if host_computes else None
    speeds["host"] = host_computes
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
    refuse_lazy("kerf.place", model)
    if isinstance(model, torch.jit.ScriptModule):
        raise ValueError(
            "[kerf.place] the model is a TorchScript module, which takes no hooks as a whole; "
            "expected a model of Python; place the one that it was made from"
        )
    if type(model).__name__ == "OptimizedModule" and limits.device != CPU:
        raise ValueError(
            "[kerf.place] the model is a wrapper that torch.compile made, and would be compiled "
            "with the hooks that bring it to the accelerator; expected the model inside, which the "
            "wrapper goes on calling; place model._orig_mod"
        )
    if getattr(model, "_kerf_placed", None) is not None:
        raise ValueError(
            "[kerf.place] the model is placed already; expected one that is not; call remove() on "
            "the handle first"
        )
    if flow_of(model) is not None:
        raise ValueError(
            "[kerf.place] the model is part of a DataFlow, which says itself where weights are; "
            "expected one that is not; call the flow's remove() first"
        )
    _refuse_shared(model, limits.device)
    return Placed(model, limits, places, checkpoint, no_split_module_classes, speeds)


def _refuse_shared(model, device):
    """A weight is on one device at a time, for the model that is called. On the host it may be
    several models': there each call leaves it as it was."""
    for other, name in shared_parts(model):
        if device != CPU or other._device != CPU:
            what = f"'{name}' is" if name else "it is"
            raise ValueError(
                f"[kerf.place] {what} part of a "
                f"{type(other._model).__name__} that is placed already; expected modules and "
                "weights of no other placed model; call remove() on its handle first, or place one "
                "model that has both inside"
            )


def _is_speed(value):
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value < float("inf")


@contextlib.contextmanager
def empty_weights():
    """Models made inside have parameters on the meta device, and real buffers: they take no memory
    until ``kerf.place(model, checkpoint=...)`` gives them a checkpoint's weights."""
    register = torch.nn.Module.register_parameter
    made = WeakIdKeyDictionary()  # one that two modules have stays one

    def register_empty(module, name, parameter):
        if parameter is not None and not is_lazy(parameter) and not parameter.is_meta:
            if parameter not in made:
                empty = parameter.detach().to("meta")
                made[parameter] = torch.nn.Parameter(empty, parameter.requires_grad)
            parameter = made[parameter]
        register(module, name, parameter)

    torch.nn.Module.register_parameter = register_empty
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register


@contextlib.contextmanager
def _without_collections():
    """A large model has so many objects that looking for unused ones among them, again and again
    while there are more, takes as long as all the rest. Several threads may be inside of this: the
    collector is on again when the first one leaves."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Placed:
    """A model whose weights are streamed. Called as the model is; attributes are the model's."""

    def __init__(self, model, limits, places, checkpoint, no_split, speeds):
        self._model = model
        with _without_collections():
            self._before = PlacedWeights(model)
        self._calls = self._answers = self._copies = self._weights = None
        try:
            self._make(limits, places, checkpoint, no_split, speeds)
        except BaseException:
            for made in (self._answers, self._copies, self._calls):
                if made is not None:
                    made.remove()
            self._calls = self._weights = None  # nothing is copied from what goes back
            self._before.put_back()
            raise

    # Weights are no inference tensors, whatever mode the caller is in.
    @torch.inference_mode(False)
    @_without_collections()
    def _make(self, limits, places, checkpoint, no_split, speeds):
        if checkpoint is not None:
            self._before.map_checkpoint(checkpoint)
        refuse_elsewhere(self._model)
        self._disk = speeds["disk"] or disk_speed(self._model)
        self._link = None if limits.device == CPU else speeds["link"] or link_speed(limits.device)
        self._host = None
        if limits.device != CPU and speeds["host"] is not None:
            self._host = HostShare(limits.device, self._link, speeds["host"])
        sizes = WeightSizes(self._model)
        listed = None if limits.device == CPU else ListedWeights(self._model)
        if listed:
            sizes.listed, sizes.beside = listed.registered, listed.bytes
        try:
            units, far = self._planned(sizes, limits, places, no_split)
        except ValueError:
            if not listed:
                raise
            # Code may have them in a list for something else than computing.
            listed, sizes.listed, sizes.beside = None, frozenset(), 0
            units, far = self._planned(sizes, limits, places, no_split)
        self._keep(limits, units, far, listed)

    def _planned(self, sizes, limits, places, no_split):
        if places is None:
            return self._plan(sizes, limits, no_split)
        homes = Homes(self._model, places, limits.device)
        self.placement, units, far = plan_mapped(
            self._model, sizes, limits, homes, self._link, self._disk, no_split
        )
        return units, far

    def _plan(self, sizes, limits, no_split):
        model = self._model
        if limits.device == CPU:
            self.placement, units = plan_units(model, sizes, limits, self._disk, "disk", no_split)
            return units, streamed_units(self.placement, units)
        self.placement, units = plan_units(
            model, sizes, limits, self._link, "cpu", no_split, self._host
        )
        far = far_units(self.placement, units, limits.host_bytes)
        if far:
            streamed = streamed_units(self.placement, units)
            speed = speed_of_both(streamed, far, self._link, self._disk)
            self.placement, units = plan_units(
                model, sizes, limits, speed, "cpu and disk", no_split, self._host
            )
            far = far_units(self.placement, units, limits.host_bytes)
        return units, far

    def _keep(self, limits, units, far, listed):
        model, device = self._model, limits.device
        self._device = device
        streamed = streamed_units(self.placement, units)
        self._before.keep_in_files(far, limits.folder)
        if device == CPU:
            self._before.load_others(streamed)
        else:
            is_far = set(map(id, far))
            self._before.pin([unit for unit in streamed if id(unit) not in is_far])
            self._before.move_others(streamed, device, listed.others if listed else ())
        self._weights = _torch.StreamedWeights(
            [(unit.path, unit.parameters) for unit in streamed],
            device,
            self.placement.slots,
            self.placement.slot_bytes,
        )
        if self._host is not None:
            self._host.share(self.placement, units, set(map(id, far)))
            self._host.planned()
        numbers = [n for n, u in enumerate(self.placement.units) if u.residence == "streamed"]
        self._calls = PlacedCalls(
            model, streamed, self._weights, device, self._host_rows(self.placement, numbers)
        )
        if self._host is not None and self._host.learns():
            placement, host = self.placement, self._host  # and not this handle, which may go

            def learn(*seen):
                host.learn(placement, *seen)
                return Placed._host_rows(placement, numbers)

            self._calls.learn = learn
        self.device_map = _map_of(model, units, streamed, far, device)
        self._answers = PlacedAnswers(model, device, self.device_map)
        self._copies = PlacedCopies(model, device, compiled_modules(model))
        if device != CPU:
            self._calls.late.look()
        object.__setattr__(model, "_kerf_placed", _Keeps(self))
        PLACED.add(self)

    @staticmethod
    def _host_rows(placement, numbers):
        units = placement.units
        return [units[number].host_rows for number in numbers]

    @property
    def stats(self):
        """Uses of streamed modules, misses (whose weights nobody had asked for), copies, and uses
        of modules that the host computed."""
        if self._weights is None:
            return dict(self._last_stats)
        return {**self._weights.stats, "on_host": self._calls.on_host}

    def __call__(self, *args, **kwargs):
        with torch.no_grad():
            return self._model(*args, **kwargs)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._model, name)

    def __reduce_ex__(self, protocol):
        raise TypeError(
            "[kerf.place] the handle of a placed model cannot be copied or pickled; expected the "
            "model, whose copy has its weights and is not placed; copy or save that"
        )

    def __repr__(self):
        return f"kerf.Placed({type(self._model).__name__}, {self.placement!r})"

    @torch.inference_mode(False)
    def remove(self):
        """The model as it was: its weights in memory, or on the meta device; its hooks. Waits for
        calls that other threads are in."""
        calls = self._calls
        if calls is None:
            return
        with calls.ended():
            if self._calls is None:  # another thread was quicker
                return
            with _without_collections():
                self._answers.remove()
                self._copies.remove()
                self._weights.abandon()
                self._last_stats = self.stats
                self._weights = None
                calls.let_go()
                self._before.put_back()
                calls.remove()  # last: until then calls wait at the hooks
            self._calls = None
            del self._model.__dict__["_kerf_placed"]


class _Keeps:
    """A model keeps its handle. A copy of it, or a pickled one, is not placed."""

    def __init__(self, handle):
        self.handle = handle

    def __deepcopy__(self, memo):
        return None

    def __reduce__(self):
        return type(None), ()


def _map_of(model, units, streamed, far, device):
    homes = {id(p): device for unit in units for p in unit.parameters}
    homes |= {id(p): CPU for unit in streamed for p in unit.parameters}
    homes |= {id(p): DISK for unit in far for p in unit.parameters}
    for parameter in model.parameters():  # those that share memory with another
        homes.setdefault(id(parameter), device)

    def place_of(parameter):
        return homes[id(parameter)]

    return map_of(model, place_of, device)
