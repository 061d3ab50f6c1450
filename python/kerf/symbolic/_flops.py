# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""``flop_count``: flops of one call of a module or a function, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kerf import _core, _torch
from kerf._arguments import checked, found
from kerf.symbolic._registry import current_registry
from kerf.symbolic._run import (
    check_autocast,
    checked_flops,
    input_twin,
    state_rules,
    state_weights,
    without_data,
)
from kerf.symbolic._table import ProfileTable
from kerf.symbolic._trees import map_tree, tensors_in, tensors_within
from kerf.symbolic._twin import Twins


@checked("symbolic.flop_count")
def flop_count(
    module_or_fn: torch.nn.Module | Callable[..., Any],
    *args: Any,
    verbose: bool = False,
    **kwargs: Any,
) -> tuple[int, int]:
    """Flops of ``module_or_fn(*args, **kwargs)``: ``(forward, backward)``.

    Nothing is computed. A multiply-add is two flops; backward counts the gradients that autograd
    would make, those of weights included. ``verbose`` prints what the direct children of a module
    take. Inputs count as they are: one that requires no gradient costs none.
    """
    if not callable(module_or_fn):
        raise TypeError(
            f"[symbolic.flop_count] module_or_fn is {found(module_or_fn)}; expected a module or a "
            "function; pass the function itself, then its arguments"
        )
    check_autocast("symbolic.flop_count")
    with without_data():
        count = _Count(module_or_fn, args, kwargs)
    rule = (
        current_registry().find("flop_rules", module_or_fn) if _is_hashable(module_or_fn) else None
    )
    if rule is not None:
        name = getattr(module_or_fn, "__name__", str(module_or_fn))
        forward, backward = checked_flops(name, rule(*count.args, **count.kwargs))
        return int(forward), int(backward)
    profile = count.profile()
    if verbose:
        print(ProfileTable(profile))
    totals = profile.totals
    return int(totals["fwd_flop"]), int(totals["bwd_flop"])


class _Count:
    """One call. Direct children of a module are spans of their own, what is between them too."""

    def __init__(self, function: Any, args: Any, kwargs: Any) -> None:
        self._twins = Twins()
        is_module = isinstance(function, torch.nn.Module)
        training = function.training if is_module else True
        name = getattr(function, "__name__", type(function).__name__)
        self._recorder = _torch.Recorder(name, training)
        self._calls = 0
        state_rules(self._recorder, current_registry())
        owner = getattr(function, "__self__", None)
        if is_module:
            state_weights(self._recorder, function, self._twins)
            function = self._twins.module(function)
        elif isinstance(owner, torch.nn.Module):  # model.forward, or another method of one
            state_weights(self._recorder, owner, self._twins)
            function = function.__func__.__get__(self._twins.module(owner))
        self._function = function
        self._children: dict[int, tuple[str, str]] = {}
        if is_module:
            own = function.named_children()
            self._children = {id(m): (n, type(m).__name__) for n, m in own}
        self.args, self.kwargs = map_tree(
            lambda item: input_twin(self._twins, item), (tuple(args), dict(kwargs))
        )
        for number, tensor in enumerate(tensors_in((self.args, self.kwargs))):
            self._recorder.add_input(f"args.{number}", f"arg{number}", tensor)

    def profile(self) -> Any:
        hooks = []
        for child in self._function.children() if self._children else ():
            hooks.append(child.register_forward_pre_hook(self._enter))
            hooks.append(child.register_forward_hook(self._leave))
        try:
            with without_data():
                self._start("self", "")
                result = self._function(*self.args, **self.kwargs)
                self._recorder.end(tensors_within(result))
        except Exception as error:
            error.add_note(
                "[symbolic.flop_count] the function failed on tensors without data; give what "
                "reads data a rule with @kerf.register_shape_impl, and profile a trace of it"
            )
            raise
        finally:
            self._recorder.abandon()
            for hook in hooks:
                hook.remove()
        graph, spans, flops = self._recorder.finish(tensors_within(result))
        return _core.profile_spans(graph, spans, given_nodes=flops)

    def _start(self, name: str, path: str, cls: str = "") -> None:
        self._calls += 1
        kind = "call_module" if path else "self"
        unique = f"{name}@{self._calls}"
        self._recorder.start(unique, kind, path, (path, cls), "", "", [], [])

    def _enter(self, module: torch.nn.Module, inputs: Any) -> None:
        self._recorder.end([])
        name, cls = self._children[id(module)]
        self._start(name, name, cls)

    def _leave(self, module: torch.nn.Module, inputs: Any, outputs: Any) -> None:
        self._recorder.end(tensors_within(outputs))
        self._start("self", "")


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
