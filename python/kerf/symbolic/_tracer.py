# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Follows a model's code: every call of PyTorch is computed without data and becomes a node.

The model's own code runs, on ordinary tensors of the meta device, under a function mode of PyTorch:
``isinstance(x, torch.Tensor)`` holds, loops run, and branches are taken by what is known.
"""

import contextlib

import torch
from torch.overrides import TorchFunctionMode

from kerf._arguments import found
from kerf._errors import ExportError
from kerf.symbolic import _bias, _modes, _reads
from kerf.symbolic._calls import (
    as_node,
    first_line,
    full_name,
    is_method,
    is_setter,
    name_of,
)
from kerf.symbolic._devices import result_device
from kerf.symbolic._gradient_steps import step_of
from kerf.symbolic._guards import check_rank, check_results
from kerf.symbolic._indices import index_without_data, mask_counts, place_without_data
from kerf.symbolic._one_node import OneNodes
from kerf.symbolic._patches import active_tracer, tracing
from kerf.symbolic._places import (
    asking_frame,
    is_check_of_distributions,
    is_pytorch,
    location,
    refusal,
)
from kerf.symbolic._recorder import Recorder
from kerf.symbolic._trees import leaves, map_tree, tensors_in
from kerf.symbolic._values import Value, empty_like, may_be_known


class Tracer(OneNodes, TorchFunctionMode):
    """One trace. ``regions`` are recorded and biases split where the options say so."""

    def __init__(self, root, registry, home, state, *, regions, split):
        super().__init__()
        self.registry, self._state = registry, state
        self.recorder = Recorder(home)
        self.values = self.recorder.values
        self.region_options = {}  # path of a region -> how the model's code checkpointed it
        self.training = {}  # id of a module whose flag was read -> (module, flag)
        self.read_training_at = ""
        self._twins = self.values.twins
        self._keep_regions, self._split = regions, split
        self._inside = set()  # functions whose replacements run
        self._counts = [0]  # regions so far, at each level
        self.grad_blocks = _modes.GradBlocks(
            lambda function, args: self.recorder.node("call_function", function, args)
        )
        self._autocast = []
        self._inputs = set()  # nodes of tensors that a call passes in
        self._ranked = {}  # nodes whose rank follows from sizes -> (rank, what they are called)
        self._failure = None  # the first error of a call that the model's code has seen
        if isinstance(root, torch.nn.Module):
            self._name_all(root)

    def _name_all(self, root):
        for path, module in root.named_modules(remove_duplicate=False):
            self.recorder.name(module, path)
            prefix = f"{path}." if path else ""
            for tensors in (module._parameters, module._buffers):
                for name, tensor in tensors.items():
                    if tensor is not None:
                        self.recorder.name(tensor, prefix + name)

    # Calls of functions

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if active_tracer() is not self:
            return func(*args, **kwargs)
        try:
            return self.call(func, args, kwargs)
        except Exception as error:
            self._note_failure(name_of(func), error)
            raise

    def _note_failure(self, name, error):
        """Keeps what the model's code may catch. A TypeError is no matter of shapes or data, and
        Python's operators go by it."""
        if self._failure is None and type(error) is not TypeError:
            self._failure = name, error, location()

    def check_caught(self):
        """After the run: code that has caught an error took a path that the next call may not."""
        if self._failure is None:
            return
        name, error, where = self._failure
        if isinstance(error, ExportError):
            raise error
        raise ExportError(
            f"[symbolic.trace] the code catches an error of {name}() ({where}: "
            f"{first_line(error)}); expected a path that shapes, flags and constants decide; ask "
            "for the shape with if, so that the traced module can check it",
            location=where,
            module="",
        ) from error

    def call(self, func, args, kwargs):
        name = name_of(func)
        if name == "new" and isinstance(args[-1], torch.Size):  # a tuple would be its numbers
            args = (*args[:-1], *args[-1])
        replaced = self._replacement(func, args, kwargs)
        if replaced is not NotImplemented:
            return replaced
        if name == "_set_grad_enabled":
            return self.grad_blocks.switch(func, *args)
        if is_setter(func):
            return self._set_attribute(name, args)
        if name == "type" and isinstance(args[0], torch.Tensor):
            return self._type(*args, **kwargs)
        if self.registry.find("shape_rules", func) is None:
            answer = self._answer(func, name, args, kwargs)
            if answer is not NotImplemented:
                return answer
        return self._record(func, name, args, kwargs)

    def _replacement(self, func, args, kwargs):
        """What a user's rule, or the rule for a bias, makes of a call."""
        if func in self._inside:
            return NotImplemented
        rule = self.registry.find("tracer_rules", func)
        if rule is None and self._split:
            rule = self.registry.find("bias_rules", func) or _bias.RULES.get(func)
        if rule is None:
            return NotImplemented
        self._inside.add(func)
        try:
            with self:
                return rule(*args, **kwargs)
        finally:
            self._inside.discard(func)

    def _record(self, func, name, args, kwargs):
        known = self.values.all_known(func, args, kwargs)
        try:
            evaluated = self._evaluate(func, name, args, kwargs, known)
        except ExportError:
            given = self._with_numbers(func, args, kwargs)
            if given is None:
                raise
            args, kwargs = given
            evaluated = self._evaluate(func, name, args, kwargs, known)
        result, device, numbers, fixed = evaluated
        if not tensors_in(result) and not isinstance(result, type(None)):
            return self._answered(func, args, kwargs, result)
        op, target, node_args, node_kwargs = as_node(func, args, kwargs)
        if name in _reads.CONVERSIONS:
            result = self._apart_from(args, result)
        result = self._own(name, args, kwargs, result)
        node_args, node_kwargs = self.recorder.argument((node_args, node_kwargs))
        node = self.recorder.node(op, target, node_args, node_kwargs)
        self._add_results(node, result, device, numbers, fixed)
        if name == "__getitem__" and len(args) == 2:
            counts = mask_counts(args[1], self.values.known)
            node.meta.update({"mask_counts": counts} if counts else {})
        self.values.note_drawn(name, result)
        if name in _reads.RANKED and isinstance(result, torch.Tensor):
            self._ranked[node] = result.dim(), f"{name}() of {self._text(args)}"
        if name in _reads.COUNTED and isinstance(result, tuple | list):
            text = f"{name}() of {self._text(args)}"
            check = (node, len(result), text, location())
            self.recorder.behind(node, "call_function", check_results, check)
        return result

    def _with_numbers(self, func, args, kwargs):
        """The arguments with plain numbers for tensors that are one known whole number, such as
        ``n`` in ``x[:n]``, which the traced module checks; None where there are none."""

        def is_number(item):
            is_whole = (
                isinstance(item, torch.Tensor)
                and item.dim() == 0
                and not (item.is_floating_point() or item.is_complex())
            )
            return is_whole and self.values.known(item) is not None

        rest = args[1:] if is_method(func) else args
        with tracing(None):
            found = [t for t in tensors_in((rest, kwargs)) if is_number(t)]
        if not found:
            return None
        index = torch.Tensor.__index__
        plain = {id(t): self._data(index, "__index__", (t,), {}) for t in found}
        return map_tree(lambda item: plain.get(id(item), item), (args, kwargs))

    def _evaluate(self, func, name, args, kwargs, known):
        """Result without data, its device, its numbers and whether they hold for every call."""
        rule = self.registry.find("shape_rules", func)
        if name in _reads.SHAPES and known and rule is None:
            numbers, fixed = self.values.compute(func, args, kwargs)
            if numbers is not None and (tensors_in(numbers) or name == "__setitem__"):
                return self._from_numbers(func, name, args, kwargs, numbers, fixed)
        versions = self.values.versions(args, kwargs)
        try:
            with tracing(None):  # operators of users call functions with a backward of their own
                given = args
                if name == "__getitem__" and len(args) == 2:
                    counts = mask_counts(args[1], self.values.known)
                    given = args[0], index_without_data(args[1], counts)
                elif name == "__setitem__" and len(args) == 3:
                    given = args[0], place_without_data(args[1]), args[2]
                result, device = self.values.evaluate(func, given, kwargs, rule)
        except Exception as error:
            raise self._explained(func, name, args, kwargs, error) from error
        if rule is not None and not tensors_in(result):
            raise TypeError(
                f"[symbolic.trace] the shape rule of {full_name(func)} returned {found(result)}; "
                "expected tensors with the shapes and dtypes of the results; return "
                "torch.empty(..., device='meta')"
            )
        if rule is not None:
            result = self._with_gradients(result, args, kwargs)
        known = known and rule is None and may_be_known(result)
        written = self.values.note_writes(versions, known)
        self._check_written(written, args, kwargs)
        if not known:
            return result, device, self.values.certain(name, args, result), True
        numbers, fixed = self.values.compute(func, args, kwargs)
        if numbers is None and written and result is not None:  # it was not written there
            self.values.note_writes(versions, False)
        return result, device, numbers, fixed

    def _from_numbers(self, func, name, args, kwargs, numbers, fixed):
        """As many elements as the data says, and the data is known: the shape is its own guard."""
        device = result_device(name, args, kwargs, self.values.device)
        if name == "__setitem__":
            return None, device, None, False
        result = map_tree(lambda t: empty_like(t) if isinstance(t, torch.Tensor) else t, numbers)
        return result, device, numbers, fixed

    def _check_written(self, written, args, kwargs):
        """Memory of the model may be written; a constant that nobody made anew may not."""
        if not written:
            return
        for tensor in tensors_in((args, kwargs)):
            value = self.values.of(tensor)
            if value.held is None or all(value.tensor is not t for t in written):
                continue
            if self.recorder.name_of(value.held) is None:
                raise refusal(
                    "the code writes into a tensor that is neither the model's nor made by a call "
                    "that the trace has seen",
                    "expected a buffer of the model, or a tensor made in forward with a function "
                    "such as torch.zeros",
                    "register it as a buffer, or make it in forward",
                    self.recorder.path,
                )

    def _own(self, name, args, kwargs, result):
        """A call that returns a weight itself gives the code the weight, not its shadow."""
        if isinstance(result, torch.Tensor) and args and isinstance(args[0], torch.Tensor):
            value = self.values.find(args[0])
            if value is not None and value.held is not None and value.tensor is result:
                if name in _reads.CONVERSIONS and _names_dtype(name, args, kwargs):
                    self._read_dtype(args[0])  # converted, it would be another tensor
                return args[0]
        return result

    def _apart_from(self, args, result):
        """What returns its argument now, such as x.float() or a dropout in eval mode, may return
        another tensor in another call: the code's two names get a node each."""
        given = set(map(id, tensors_in(args)))

        def apart(item):
            if not isinstance(item, torch.Tensor) or id(item) not in given:
                return item
            with torch._C.DisableTorchFunction(), torch.enable_grad():
                return torch.ops.aten.alias(item)

        return map_tree(apart, result)

    def _add_results(self, node, result, device, numbers, fixed):
        first = self.values.find(result) if isinstance(result, torch.Tensor) else None
        if first is not None and first.held is not None:
            self.recorder.describe(node, first.tensor, device)
            return
        before = first.known if first is not None else None
        self.recorder.results(node, result, device)
        known = dict(leaves(numbers)) if numbers is not None else {}
        for path, item in leaves(result):
            if isinstance(item, torch.Tensor):
                value = self.values.find(item)
                value.known = known.get(path, before)
                value.fixed = fixed if path in known else False

    # Answers without a node

    def _answer(self, func, name, args, kwargs):
        if func is torch.autograd.grad or _is_of_a_library(func):  # by chance named like a question
            return NotImplemented
        tensor = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if name in _reads.ADDRESSES:
            raise refusal(
                f"the code asks for {name}() of a traced tensor",
                "expected functions of PyTorch on tensors: there is no data yet",
                "make the module that needs it one node with kerf.register_leaf_module, or the "
                "function with kerf.register_shape_impl",
                self.recorder.path,
            )
        if name in _reads.RANKS and tensor is not None and self._ranked:
            self._guard_ranks(tensor)
        if name in _reads.SIZES and tensor is not None:
            return self._size(func, name, tensor, args[1:], kwargs)
        if name in _reads.DATA:
            return self._data(func, name, args, kwargs)
        if tensor is not None and name in ("device", "get_device", "is_cuda", "is_cpu", "is_meta"):
            return self._device(name, tensor)
        if name == "dtype" and tensor is not None:
            self._read_dtype(tensor)
        if name == "grad_fn" and tensor is not None:  # a leaf has none: this is checked
            self._record(torch.Tensor.is_leaf.__get__, "is_leaf", args, kwargs)
            return step_of(func(*self._untraced(args)), self.recorder)
        if name == "grad" and tensor is not None and not is_pytorch(asking_frame()):
            return self._answered(func, args, kwargs, None)  # a traced tensor has none: checked
        if name in _reads.PROPERTIES:
            plain = self._untraced(args), self._untraced(kwargs)
            return func(*plain[0], **plain[1])
        return NotImplemented

    def _guard_ranks(self, tensor):
        """The code has read the rank of a tensor: that of every squeeze() behind it is checked."""
        value = self.values.of(tensor)
        if value.held is not None:
            return
        found, reached = [value.node or value.source[0]], set()
        while found:
            node = found.pop()
            if node in reached:
                continue
            reached.add(node)
            found += node.all_input_nodes
            if node in self._ranked:
                rank, text = self._ranked.pop(node)
                args = (node, rank, text, location())
                self.recorder.behind(node, "call_function", check_rank, args)

    def _text(self, args):
        """How the first tensor of a call is called, as far as the trace knows."""
        if not args or not isinstance(args[0], torch.Tensor):
            return "its argument"
        value = self.values.of(args[0])
        if value.node is not None:
            return value.node.name
        if value.source is not None:
            return f"{value.source[0].name}{''.join(f'[{key!r}]' for key in value.source[1])}"
        return self.recorder.name_of(value.held) or "a constant"

    def _untraced(self, tree):
        return map_tree(self.values._plain, tree)

    def _device(self, name, tensor):
        device = self.values.device(tensor)
        if name == "device":
            return device
        if name == "get_device":
            return -1 if device.type == "cpu" else device.index or 0
        return device.type == name[3:]

    def _read_dtype(self, tensor):
        """Those of inputs are checked; what follows from them and from weights may change."""
        value = self.values.of(tensor)
        is_constant = value.held is not None and self.recorder.name_of(value.held) is None
        is_input = value.node is not None and value.node in self._inputs
        if value.tensor.dtype.is_floating_point and not is_constant and not is_input:
            if not self.recorder.finished:
                self.recorder.guard_dtype(value, self._text((tensor,)))

    def _size(self, func, name, tensor, args, kwargs):
        value = self.values.of(tensor)
        text = self._text((tensor,))
        if value.held is not None and self.recorder.name_of(value.held) is not None:
            return func(value.tensor, *map(_index, args), **kwargs)  # a weight's does not change
        dims = range(value.tensor.dim())
        dim = args[0] if args else kwargs.get("dim")
        if name == "__len__":
            value.tensor.__len__()
            size = self.recorder.size(value, 0, f"{text}.shape[0]")
            return size.plain()
        if name in ("numel", "nelement"):
            count = value.tensor.numel()
            return self.recorder.measure(value, "call_method", name, (), count, f"{text}.numel()")
        if dim is not None:
            dim = int(dim)
            value.tensor.size(dim)  # raises as eager does
            dim %= max(len(dims), 1)
            return self.recorder.size(value, dim, f"{text}.shape[{dim}]")
        return torch.Size([self.recorder.size(value, d, f"{text}.shape[{d}]") for d in dims])

    def _data(self, func, name, args, kwargs):
        """Numbers: those that are known; they must be the same whenever the module is called."""
        if not self.values.all_known(func, args, kwargs):
            if name == "__bool__" and is_check_of_distributions():
                self.recorder.guard_value(
                    self.recorder.argument(args[0]), True, "a check of torch.distributions"
                )
                return True
            what = {"__bool__": "bool()", "__float__": "float()", "__int__": "int()"}
            raise refusal(
                f"the code reads numbers of a traced tensor with {what.get(name, name + '()')}",
                "expected a path that shapes, flags and constants decide",
                "compute on with the tensor (torch.where instead of if), pass what decides as a "
                "plain argument with concrete_args, or make the module one node with "
                "kerf.register_leaf_module",
                self.recorder.path,
            )
        numbers, fixed = self.values.compute(func, args, kwargs)
        if not fixed and not self.recorder.finished:
            reader = "tolist" if name in ("numpy", "__array__") else None
            tensor = args[0]
            if len(tensors_in((args, kwargs))) == 1 and name not in ("__contains__",):
                node = self.recorder.argument(tensor)
                expected = self.values.known(tensor).tolist()
                self.recorder.guard_value(node, expected, f"{self._text((tensor,))}")
            else:
                op, target, node_args, node_kwargs = as_node(func, args, kwargs)
                node_args = self.recorder.argument((node_args, node_kwargs))
                node = self.recorder.node(op, reader or target, *node_args)
                self.recorder.guard_value(node, numbers, f"{name}()")
        return numbers

    def _answered(self, func, args, kwargs, result):
        """A call that gave no tensor: the traced module checks that it still gives the same."""
        if isinstance(result, _reads.ANSWERS) or isinstance(result, tuple | list):
            op, target, node_args, node_kwargs = as_node(func, args, kwargs)
            node_args, node_kwargs = self.recorder.argument((node_args, node_kwargs))
            node = self.recorder.node(op, target, node_args, node_kwargs)
            self.recorder.describe(node, result, None)
            self.recorder.guard_value(node, result, f"{name_of(func)} of {self._text(args)}")
        elif name_of(func) in _reads.HOOKS:
            raise refusal(
                f"the code calls {name_of(func)}() of a traced tensor",
                "expected gradients that follow from the calls of PyTorch: hooks of tensors are no "
                "part of a graph",
                "write a torch.autograd.Function with that backward, or make the module one node "
                "with kerf.register_leaf_module",
                self.recorder.path,
            )
        return result

    def _set_attribute(self, name, args):
        if name == "requires_grad":
            return self.call(torch.Tensor.requires_grad_, args, {})
        if name == "data" and args[0] is args[1]:  # Module.to() where nothing is to be done
            return None
        raise refusal(
            f"the code sets .{name} of a traced tensor",
            "expected tensors to be changed by functions of PyTorch",
            "use copy_() or another function in place",
            self.recorder.path,
        )

    def _explained(self, func, name, args, kwargs, error):
        """Why a call failed: for want of data, or as it would have without a trace."""
        text = str(error).lower()
        if "meta" not in text and "data-dependent" not in text and "fake" not in text:
            error.add_note(f"[symbolic.trace] while tracing {name}() at {location()}")
            return error
        if name in _reads.SHAPES:
            return refusal(
                f"the shape of what {_shown_name(name)} returns depends on the data",
                "expected shapes that follow from shapes",
                "use torch.where or a mask in its place, or make the module one node with a rule: "
                "kerf.symbolic.register_leaf_module_impl",
                self.recorder.path,
            )
        return refusal(
            f"{full_name(func)} cannot be computed without data ({first_line(error)})",
            "expected a function that PyTorch has a meta kernel for, or a rule",
            f"give it a rule with @kerf.register_shape_impl({full_name(func)})",
            self.recorder.path,
        )

    # Regions and modes

    @contextlib.contextmanager
    def region(self, **options):
        """What is called within the block is in a checkpoint region."""
        if not self._keep_regions:
            yield
            return
        regions = self.recorder.regions
        regions.append(self._counts[-1])
        self.region_options[tuple(regions)] = options
        self._counts.append(0)
        try:
            yield
        finally:
            self._counts.pop()
            self._counts[-1] += 1
            regions.pop()

    def enter_autocast(self, context):
        if context._enabled:
            raise refusal(
                f"the code switches autocast on for {context.device}",
                "expected precisions that follow from dtypes",
                "call the traced module within torch.autocast, or cast with .to() in forward",
                self.recorder.path,
            )
        node = self.recorder.node("call_function", _modes.enter_no_autocast, (str(context.device),))
        self._autocast.append((context, node))

    def exit_autocast(self, context):
        if self._autocast and self._autocast[-1][0] is context:
            args = (str(context.device), self._autocast.pop()[1])
            self.recorder.node("call_function", _modes.exit_no_autocast, args)

    def note_training(self, module, flag):
        if self.recorder.name_of(module) is None:  # train() and eval() of the model do not reach it
            return
        self.training[id(module)] = (module, flag)
        self.read_training_at = self.read_training_at or location()

    def note_setting(self, name, args, answer):
        self.recorder.guard_setting(name, args, answer)

    def module_path(self):
        return self.recorder.path

    def _type(self, tensor, dtype=None, non_blocking=False):
        """``x.type(torch.half)`` and ``x.type()``, which names devices in its own way."""
        if dtype is None:
            device = self.values.device(tensor)
            name = torch.empty(0, dtype=self.values.of(tensor).tensor.dtype).type()
            return name if device.type == "cpu" else name.replace("torch.", f"torch.{device.type}.")
        if not isinstance(dtype, torch.dtype):
            name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
            dtype = torch.empty(0).type(name.replace("torch.cuda.", "torch.")).dtype
            place = "cuda" if name.startswith("torch.cuda.") else "cpu"
            return self.call(torch.Tensor.to, (tensor, place, dtype), {})
        return self.call(torch.Tensor.to, (tensor, dtype), {})

    # Inputs

    def add_input(self, node, sample):
        """A tensor that a call passes in; numbers that are no measurements are known."""
        device = getattr(sample, "advertised", None)
        if device is None:
            device = self.values._home if sample.is_meta else sample.device
        tensor = empty_like(sample)
        value = Value(tensor, device, node)
        self._inputs.add(node)
        flags = not sample.dtype.is_floating_point and not sample.dtype.is_complex
        if flags and not sample.is_meta and sample.device.type == "cpu" and sample.numel() <= 4096:
            value.known, value.fixed = sample.detach().clone(), False
        self.values.add(tensor, value)
        return tensor


def _names_dtype(name, args, kwargs):
    """Whether a conversion is one of dtypes, and not of devices or strides alone."""
    given = (*args[1:], *kwargs.values())
    is_one = name not in ("to", "cpu", "cuda", "contiguous")
    return is_one or any(isinstance(item, torch.dtype | torch.Tensor) for item in given)


def _is_of_a_library(func):
    """Whether an operator is of somebody's own library."""
    is_operator = isinstance(func, torch._ops.OpOverload | torch._ops.OpOverloadPacket)
    return is_operator and not str(func).startswith(("aten.", "prims.", "prim."))


def _index(item):
    return int(item)


def _shown_name(name):
    return {"__getitem__": "x[...]", "__setitem__": "x[...] = ..."}.get(name, f"{name}()")
