# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Would the next call of the model do what this one did, and the one after a million?

Code that leaves something behind, or that names a clock, is followed again in the state that it has
left. Where it counts its calls, it is followed once with numbers that note what they are compared
with, and then in the states of the calls at which a comparison would have another outcome.
"""

import torch

from kerf.symbolic._counted import counted, deciding_calls
from kerf.symbolic._guards import CHECKS

# Where a counter may stand that is used in another way than compared.
_LATE = (18_018_000 - 2, 18_018_000 - 1, 18_018_000)


def check_again(tracer, run, state):
    """Raises where another call would do something else than ``tracer`` has seen; ``run`` follows
    the code once more."""
    changed = state.changed()

    def check():
        state.settle()
        try:
            again = run()
        except Exception as error:
            raise state.refused(changed) from error
        if not _is_same(_computed(again), _computed(tracer)):
            raise state.refused(changed)

    if not changed:
        if state.unsteady:
            check()
        return
    # The model's code leaves something behind: in the state that it leaves, it must do the same
    # again, or the traced module would be right at its first call alone.
    if state.replaced():
        raise state.refused_replaced()
    before = [(place, place.value()) for place in state.counters()]
    check()
    after = [(place, place.value(), was) for place, was in before]
    counters = [
        (place, now, now - was)
        for place, now, was in after
        if type(now) is type(was) and now != was
    ]
    if counters:
        _check_counters(check, counters)


def _check_counters(check, counters):
    """``counters``: place, number, and by how much a call changes it."""
    compared = []
    for place, now, step in counters:
        place.put(counted(now, step, compared))
    check()
    for calls in deciding_calls(compared):
        for place, now, step in counters:
            place.put(now + calls * step)
        check()
    for count in _LATE:
        for place, now, _ in counters:
            place.put(type(now)(count))
        check()


def _computed(tracer):
    """What a graph computes at the sizes it was traced for: without checks, sizes as numbers. Pairs
    of a text and of what stands behind the name in it."""
    lines, numbers = [], {}

    def shown(node):
        value = node.meta.get("val")
        return value if isinstance(value, int | float) else _Name(numbers[node])

    attributes = tracer.recorder.attributes
    for node in tracer.recorder.graph.nodes:
        if node.target in CHECKS or isinstance(node.meta.get("val"), int | float):
            continue
        numbers[node] = len(lines)
        given = torch.fx.map_arg((node.args, node.kwargs), shown)
        text = str((node.op, str(node.target), given, node.meta.get("tensor_meta")))
        lines.append((text, attributes.get(node.target) if isinstance(node.target, str) else None))
    return lines


class _Name:
    def __init__(self, number):
        self._number = number

    def __repr__(self):
        return f"%{self._number}"


def _is_same(lines, others):
    return len(lines) == len(others) and all(
        text == other and _is_same_thing(thing, other_thing)
        for (text, thing), (other, other_thing) in zip(lines, others, strict=True)
    )


def _is_same_thing(thing, other):
    """What calls make anew, such as an array, is the same where its numbers are."""
    if thing is other:
        return True
    if type(thing) is not type(other):
        return False
    if isinstance(thing, torch.Tensor):
        return thing.shape == other.shape and _bytes(thing) == _bytes(other)
    if isinstance(thing, torch.nn.Module):
        return not any(True for _ in thing.parameters())
    return type(thing).__eq__ is object.__eq__ or bool(thing == other)


def _bytes(tensor):
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
