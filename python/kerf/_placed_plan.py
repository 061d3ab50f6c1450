# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Where each unit of a placed model lives: what is known of it, and what the planner says."""

import time

import torch

from kerf import _core, _torch
from kerf._host_units import HOOK_SECONDS
from kerf._limits import CPU
from kerf._placed_answers import device_class
from kerf._placed_weights import is_mapped, named, place_of
from kerf._speeds import kept
from kerf._units import Unit, units_by_size
from kerf._unmade import tensors_of

_PROBE_BYTES = 64 << 20  # of a file that is read to learn how fast that is
_DISK_BYTES_PER_SECOND = 1e9  # where it was not measured
_HOST_BYTES_PER_SECOND = 10e9  # weights that a core goes through: computing is at least that long
_DEVICE_BYTES_PER_SECOND = 1e12  # the same of an accelerator
COPY_SECONDS = 20e-6  # what a copy takes however little it brings
_LINK_SPEEDS = {}  # by device
# Units are at most this part of the memory allowed. Those of a device may be smaller: then there
# are more that the host may compute.
_SHARES_ON_HOST = (2, 3, 4, 6, 8, 12)
_SHARES = (*_SHARES_ON_HOST, 16, 24, 48)


def disk_speed(model):
    """Bytes per second of reading a file that the model's weights are in."""
    mapped = [t.data for t in tensors_of(model) if is_mapped(t)]
    if not mapped:
        return _DISK_BYTES_PER_SECOND  # its own file is still to be written
    return _torch.file_speed(max(mapped, key=lambda t: t.nbytes), _PROBE_BYTES)


def link_speed(device):
    """Bytes per second of copies from pinned memory; measured once per machine."""
    if device not in _LINK_SPEEDS:
        speeds = kept("bytes per second of the link", device, 1, lambda: [_link_speed(device)])
        _LINK_SPEEDS[device] = speeds[0]
    return _LINK_SPEEDS[device]


def _link_speed(device):
    source = torch.empty(_PROBE_BYTES, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(_PROBE_BYTES, dtype=torch.uint8, device=device)
    best = float("inf")
    for _ in range(3):
        torch.accelerator.synchronize(device)
        start = time.perf_counter()
        target.copy_(source, non_blocking=True)
        torch.accelerator.synchronize(device)
        best = min(best, time.perf_counter() - start)
    return _PROBE_BYTES / best


def streamed_units(placement, units):
    pairs = zip(units, placement.units, strict=True)
    return [unit for unit, placed in pairs if placed.residence == "streamed"]


def far_units(placement, units, host_bytes):
    """The streamed units that the host has no memory for, spread over the others: while one is
    read from its file, the link is busy with those before it. The host computes none of them."""
    streamed = streamed_units(placement, units)
    excess = sum(unit.bytes for unit in streamed) - host_bytes if host_bytes is not None else 0
    pairs = zip(units, placement.units, strict=True)
    hosts = {id(unit) for unit, placed in pairs if placed.host_rows > 0}
    candidates = [unit for unit in streamed if id(unit) not in hosts]
    if sum(unit.bytes for unit in candidates) < excess:
        candidates = streamed
    total = sum(unit.bytes for unit in candidates)
    far, passed, taken = [], 0, 0
    for unit in candidates:
        passed += unit.bytes
        if taken * total < excess * passed:
            far.append(unit)
            taken += unit.bytes
    return far


def speed_of_both(streamed, far, link, disk):
    """Bytes per second of the link while some of them come from a file."""
    total = sum(unit.bytes for unit in streamed)
    return total / max(total / link, sum(unit.bytes for unit in far) / disk)


def separate_ties(model, units, sizes, device):
    """Parameters that several modules use, or that share memory, with buffers too, are a unit of
    their own: on a device that others are streamed to, they stay, and so do those that are in
    lists. On the host one that several modules use may come for each; only those that share memory
    have to stay where they do."""
    ties = sizes.sharing if device == CPU else sizes.ties
    listed = sizes.listed if device != CPU else frozenset()
    if listed:
        ties = {i: i for i in listed} | ties
    if not ties:
        return units
    alone = {ties[i] for i in listed}
    holders = {}
    for unit in units:
        for parameter in unit.parameters:
            if id(parameter) in ties:
                holders.setdefault(ties[id(parameter)], []).append(parameter)
    shared = {
        id(p): key
        for key, found in holders.items()
        if len(found) > 1 or key in sizes.buffers or key in alone
        for p in found
    }
    if not shared:
        return units
    out = []
    for unit in units:
        own = [p for p in unit.parameters if id(p) not in shared]
        if len(own) == len(unit.parameters):
            out.append(unit)
        elif own:
            out.append(Unit(unit.path, unit.module, own, unit.stays))
    tied = [p for u in units for p in u.parameters if id(p) in shared]
    if device != CPU:
        keys = dict.fromkeys(shared.values())
        buffers = {id(b): (b, key) for key in keys for b in sizes.buffers.get(key, ())}
        shared |= {i: key for i, (_, key) in buffers.items()}
        _refuse_other_views(model, [*tied, *(b for b, _ in buffers.values())], shared)
    one_of_each = {(shared[id(p)], p.data_ptr(), p.nbytes): p for p in tied}
    return [Unit("(tied)", model, list(one_of_each.values()), stays=True), *out]


def _refuse_other_views(model, tied, shared):
    """Moved one by one, views of one memory would be weights of their own."""
    first = {}
    for parameter in tied:
        other = first.setdefault(shared[id(parameter)], parameter)
        if other is not parameter and place_of(other) != place_of(parameter):
            names = {id(t): name for name, t in named(model)}
            raise ValueError(
                f"[kerf.place] '{names[id(other)]}' and '{names[id(parameter)]}' are other views "
                "of one memory; expected weights that are the same tensor, or lie apart: they are "
                "moved to the device; clone one of them"
            )


def unit_seconds(units, device):
    """Of computing each once."""
    speed = _HOST_BYTES_PER_SECOND if device == CPU else _DEVICE_BYTES_PER_SECOND
    return [unit.bytes / speed + HOOK_SECONDS for unit in units]


def plan_units(model, sizes, limits, speed, source, no_split, host=None):
    """The placement with the shortest calls, of several sizes of units. ``sizes``: the model's.
    ``host``: decides what the host computes."""
    if limits.device == CPU:
        return _best_plan(model, sizes, limits, speed, source, no_split, None, host)
    if device_class(type(model)) is not None:  # its model.device is the one that computes
        return _best_plan(model, sizes, limits, speed, source, no_split, None, host)
    first = next(model.parameters(), None)
    try:  # so that what asks the first weight for its device gets the one that computes
        return _best_plan(model, sizes, limits, speed, source, no_split, first, host)
    except ValueError:
        return _best_plan(model, sizes, limits, speed, source, no_split, None, host)


def _best_plan(model, sizes, limits, speed, source, no_split, stays, host):
    best = None
    failure = None
    buffers = sum(buffer.nbytes for buffer in model.buffers()) + sizes.beside
    shares = _SHARES_ON_HOST if limits.device == CPU else _SHARES
    largest = [limits.bytes // share for share in shares]
    for units in units_by_size(model, largest, no_split or (), sizes):
        units = separate_ties(model, units, sizes, limits.device)
        try:
            placement = _core.place_units(
                [unit.path for unit in units],
                [unit.bytes for unit in units],
                unit_seconds(units, limits.device),
                [unit.stays or any(p is stays for p in unit.parameters) for unit in units],
                max(limits.bytes - buffers, 0),
                speed,
                COPY_SECONDS,
                str(limits.device),
                source,
            )
        except ValueError as error:
            failure = error
            continue
        if host is not None:
            host.share(placement, units)
        time_of_calls = placement.time + (placement.time_with_host or placement.time)
        if best is None or time_of_calls < best[0]:
            best = time_of_calls, placement, units
    if best is None:
        raise failure
    return best[1:]
