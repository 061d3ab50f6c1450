# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What a training step puts back when it fails, beyond what C++ does: gradients that autograd adds
while a step runs or after it, in the loss and in what made the inputs; what blocks that run as
Python have changed of themselves."""

import torch

from kerf._restore import KeptAttributes, KeptBuffers

_ACCUMULATES = "torch::autograd::AccumulateGrad"


class Undo:
    """Gradients and numbers as they were. Autograd adds in place, so that they are copied."""

    def __init__(self):
        self._gradients = {}  # id of a tensor -> (it, its gradient, the gradient's numbers)
        self._numbers = []
        self._modules = []

    def keep_modules(self, modules):
        """Their buffers, which a module may replace, and other attributes."""
        for module in modules:
            self._modules += [KeptBuffers(module), KeptAttributes(module)]

    def keep_gradients(self, tensors):
        """Those of tensors that it has not yet."""
        for tensor in tensors:
            if id(tensor) not in self._gradients:
                gradient = tensor.grad
                copy = None if gradient is None else gradient.detach().clone()
                self._gradients[id(tensor)] = (tensor, gradient, copy)

    def keep_numbers(self, tensors):
        self._numbers += [(tensor, tensor.detach().clone()) for tensor in tensors]

    def restore(self):
        """Puts all back that can be; returns why the rest could not."""
        failures = []
        todo = [lambda g=g: _put_back_gradient(*g) for g in self._gradients.values()]
        todo += [lambda t=t, c=c: t.detach().copy_(c) for t, c in self._numbers]
        todo += [kept.put_back for kept in self._modules]
        for put_back in todo:
            try:
                with torch.no_grad():
                    put_back()
            except Exception as failure:
                failures.append(str(failure))
        return failures


def _put_back_gradient(tensor, gradient, copy):
    if gradient is not None:
        gradient.detach().copy_(copy)
    tensor.grad = gradient


def nodes_of(tensors):
    """Where they stand in autograd's graph now; those that need no gradient are left out."""
    learning = (t for t in tensors if isinstance(t, torch.Tensor) and t.requires_grad)
    return [torch.autograd.graph.get_gradient_edge(tensor).node for tensor in learning]


def learning_leaves(tensors, known=()):
    """The leaves to whose gradients a backward from these tensors adds, without those that it
    reaches by nodes that are known."""
    seen, found = set(known), {}
    todo = nodes_of(tensors)
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.name() == _ACCUMULATES:
            found[id(node.variable)] = node.variable
        todo.extend(function for function, _ in node.next_functions)
    return list(found.values())
