# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""``x.grad_fn`` as the model's code sees it: it answers questions and takes no hooks."""

from kerf.symbolic._places import refusal

_HOOKS = ("register_hook", "register_prehook")


class _Step:
    def __init__(self, step, recorder):
        self._step, self._recorder = step, recorder

    __class__ = property(lambda self: type(self._step))

    def __getattr__(self, name):
        if name in _HOOKS:
            raise refusal(
                f"the code calls {name}() of the step of a gradient",
                "expected gradients that follow from the calls of PyTorch: hooks are no part of a "
                "graph",
                "write a torch.autograd.Function with that backward, or make the module one node "
                "with kerf.register_leaf_module",
                self._recorder.path,
            )
        item = getattr(self._step, name)
        if name == "next_functions":
            return tuple((step_of(step, self._recorder), number) for step, number in item)
        return item


def step_of(step, recorder):
    """None of a tensor that no call has made."""
    return None if step is None else _Step(step, recorder)
