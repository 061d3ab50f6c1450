# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A model that does not fit, as it is: weights come when their module runs, and go."""

import contextlib
import os

import torch

from kerf import _torch
from kerf._arguments import checked, shown
from kerf._limits import CPU, limits_of
from kerf._placed_calls import PlacedCalls
from kerf._placed_plan import (
    disk_speed,
    far_units,
    host_rows,
    link_speed,
    plan_units,
    speed_of_both,
    streamed_units,
)
from kerf._placed_weights import PlacedWeights, refuse_elsewhere


@checked("kerf.place")
def place(
    model,
    max_memory=None,
    *,
    checkpoint=None,
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
    checkpoint    a safetensors file, its index or a folder with either: the model's weights, which
                  may be on the meta device (``kerf.empty_weights``); files are mapped, not loaded
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
    limits = limits_of(max_memory)
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
        host_computes = "measured" if host_computes else None
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
    if getattr(model, "_kerf_placed", None) is not None:
        raise ValueError(
            "[kerf.place] the model is placed already; expected one that is not; call remove() on "
            "the handle first"
        )
    return Placed(model, limits, checkpoint, no_split_module_classes, speeds)


def _is_speed(value):
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value < float("inf")


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

    def __init__(self, model, limits, checkpoint, no_split, speeds):
        self._model = model
        self._before = PlacedWeights(model)
        try:
            self._make(limits, checkpoint, no_split, speeds)
        except BaseException:
            self._before.put_back()
            raise

    # Weights are no inference tensors, whatever mode the caller is in.
    @torch.inference_mode(False)
    def _make(self, limits, checkpoint, no_split, speeds):
        if checkpoint is not None:
            self._before.map_checkpoint(checkpoint)
        refuse_elsewhere(self._model)
        self._place(limits, no_split, speeds)

    def _place(self, limits, no_split, speeds):
        model = self._model
        device = limits.device
        disk = speeds["disk"] or disk_speed(model)
        if device == CPU:
            self.placement, units = plan_units(model, limits, disk, "disk", no_split)
        else:
            link = speeds["link"] or link_speed(device)
            host = speeds["host"]
            self.placement, units = plan_units(model, limits, link, "cpu", no_split, host)
        streamed = streamed_units(self.placement, units)
        far = []
        if device == CPU:
            self._before.keep_in_files(streamed, limits.folder)
            self._before.load_others(streamed)
        else:
            far = far_units(self.placement, units, limits.host_bytes)
            if far:
                speed = speed_of_both(streamed, far, link, disk)
                source = "cpu and disk"
                self.placement, units = plan_units(model, limits, speed, source, no_split, host)
                streamed = streamed_units(self.placement, units)
                far = far_units(self.placement, units, limits.host_bytes)
            self._before.keep_in_files(far, limits.folder)
            self._before.pin([unit for unit in streamed if unit not in far])
            self._before.move_others(streamed, device)
        self._weights = _torch.StreamedWeights(
            [(unit.path, unit.parameters) for unit in streamed],
            device,
            self.placement.slots,
            self.placement.slot_bytes,
        )
        rows = host_rows(self.placement, units)
        on_host = [0 if unit in far else rows[id(unit)] for unit in streamed]
        self._calls = PlacedCalls(model, streamed, self._weights, device, on_host)
        object.__setattr__(model, "_kerf_placed", self)

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
        self._last_stats = self.stats
        self._calls = self._weights = None
        self._before.put_back()
        del self._model.__dict__["_kerf_placed"]
