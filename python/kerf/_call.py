# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""How a model is called and what it gives back, kept with a graph as JSON.

``Signature`` takes the arguments of a call apart into the graph's inputs and tells calls of another
form from the one that was traced. ``Result`` puts the graph's outputs together again.
"""

import ctypes
import inspect
import json
import math

import torch

from kerf import _classes, _pytree, _spec

FORMAT = 1
FORMAT_WITH_GIVEN = 2  # results that hold or change what was passed in; older readers know none
_SIMPLE = (type(None), bool, int, float, str)


class Signature:
    """The form of the call that was traced.

    Arguments are matched by name: what was traced as ``model(ids)`` may be called as
    ``model(input_ids=ids)`` and the other way round.
    """

    def __init__(self, spec):
        self.parameters = spec["parameters"]  # names of what may be passed by position
        self.defaults = dict(map(tuple, spec["defaults"]))
        self.arguments = dict(map(tuple, spec["arguments"]))  # name -> description
        self.paths = spec["paths"]
        self._extra = [name for name in self.arguments if name not in self.parameters]
        self._tensors_alone = [*self.arguments.values()] == [
            {"t": number} for number in range(len(self.arguments))
        ]
        # Where there are numbers, equal is not the same: 1, 1.0 and True.
        self._text = repr(self.arguments) if _has_number(list(self.arguments.values())) else None

    @classmethod
    def of_call(cls, model, args, kwargs, device):
        """The signature of ``model(*args, **kwargs)``, and its tensors."""
        parameters, defaults = _parameters(model)
        given = _by_name(parameters, args, kwargs)
        described, tensors, paths = _describe(given, device, _positions(parameters, args))
        spec = {
            "parameters": parameters,
            "defaults": [[k, v] for k, v in defaults.items() if isinstance(v, _SIMPLE)],
            "arguments": list(described.items()),
            "paths": paths,
        }
        return cls(spec), tensors

    @classmethod
    def from_json(cls, text, inputs=None):
        """Raises ValueError unless ``text`` describes a call with ``inputs`` tensors."""
        if not text:
            raise _spec.error(
                "the graph does not say how the model is called",
                "one that kerf.trace wrote, to run (kerf.symbolic_profile writes them to plan)",
            )
        spec = _read(text, "the graph's in_spec", _SIGNATURE_KEYS)
        checker = _spec.Checker("the graph's in_spec", inputs)
        for key in ("parameters", "paths"):
            if not all(type(name) is str for name in checker.list_of(spec[key])):
                checker.fail(f"{key} that are not texts", "a list of names")
        for name, default in _named_pairs(checker, spec["defaults"]):
            if not isinstance(default, _SIMPLE):
                checker.fail(f"the default of '{name}' that is not a plain value", "plain values")
        for _, argument in _named_pairs(checker, spec["arguments"]):
            checker.check(argument, 0)
        if inputs is not None and len(checker.used) != inputs:
            checker.fail(f"{len(checker.used)} tensors", f"the graph's {inputs} inputs")
        return cls(spec)

    def to_json(self):
        return _classes.remember(
            json.dumps(
                {
                    "format": FORMAT,
                    "parameters": self.parameters,
                    "defaults": list(self.defaults.items()),
                    "arguments": list(self.arguments.items()),
                    "paths": self.paths,
                }
            )
        )

    def tensors(self, args, kwargs):
        """The graph's inputs, in order, from a call. Raises ValueError when it has another form."""
        return self.inputs(args, kwargs)[0]

    def inputs(self, args, kwargs):
        """The same, and what the model could change of the arguments besides: see ``Result``."""
        given = _by_name(self.parameters, args, kwargs)
        self._check_order(kwargs)
        if self._tensors_alone and given.keys() == self.arguments.keys():
            tensors = [given[name] for name in self.arguments]
            if all(isinstance(tensor, torch.Tensor) for tensor in tensors):
                return tensors, []
        for name in self.arguments:
            if name not in given:
                raise ValueError(
                    f"[call] argument '{name}' is missing; the model was traced with it"
                )
        for name in [n for n in given if n not in self.arguments]:
            # What the model would have taken anyway changes nothing.
            if not self._is_default(name, given[name]):
                raise ValueError(
                    f"[call] argument '{name}' was not given when the model was traced; expected "
                    f"{', '.join(self.arguments) or 'no arguments'}; trace with it"
                )
            del given[name]
        described, describer = self.describe(given)
        if described != self.arguments or (self._text and repr(described) != self._text):
            self._explain(described)
        return describer.tensors, describer.mutables

    def _check_order(self, kwargs):
        """A forward that takes **kwargs may look at their order."""
        if not self._extra:
            return
        found = [name for name in kwargs if name in self._extra]
        if found != self._extra and sorted(found) == sorted(self._extra):
            raise ValueError(
                f"[call] the keyword arguments are in the order {', '.join(found)}; the model was "
                f"traced with {', '.join(self._extra)}, and its forward takes any (**kwargs), so "
                "their order may matter; call it in that order, or trace it again"
            )

    def describe(self, given, **options):
        """Arguments by name, in the order in which they were traced, and what describes them."""
        describer = _pytree.Describer(share=False, **options)
        return {name: describer.walk(given[name], name) for name in self.arguments}, describer

    def by_name(self, args, kwargs):
        return _by_name(self.parameters, args, kwargs)

    def _is_default(self, name, value):
        known = name in self.defaults and isinstance(value, _SIMPLE)
        return known and repr(value) == repr(self.defaults[name])

    def _explain(self, described):
        for name, traced in self.arguments.items():
            found = _pytree.difference(traced, described[name], name)
            if found:
                path, expected, got = found
                raise ValueError(
                    f"[call] argument {path} is {got}; the model was traced with {expected}; trace "
                    "it again for calls of this form"
                )

    def arguments_of(self, tensors, device=None, module=None):
        """``(args, kwargs)`` of a call that was described here, with other tensors in it."""
        builder = _pytree.Builder(tensors, device=device, module=module, classes=_classes.OWN)
        values = {name: builder.walk(spec) for name, spec in self.arguments.items()}
        args = []
        for name in self.parameters:
            if name not in values:
                break
            args.append(values.pop(name))
        while str(len(args)) in values:  # beyond the named ones: *args
            args.append(values.pop(str(len(args))))
        return tuple(args), values


class Result:
    """How the outputs nest, and what the model does to the objects that are passed to it.

    A model may fill a cache, append to a list, set fields. ``arguments`` describes those that it
    changes as it leaves them; the caller's own objects are changed likewise, and where the result
    holds one of them it holds the caller's. (Tensors are written in place when the graph runs.)

    A description from a file is taken only as far as ``model``, the one it is used with, vouches
    for the classes in it: see ``_classes``.
    """

    def __init__(self, spec, arguments=None, classes=_classes.OWN):
        self.spec = spec
        self.arguments = arguments or []
        self._classes = classes

    @classmethod
    def from_json(cls, text, model=None, outputs=None):
        """Raises ValueError unless ``text`` describes a result that can be made of ``outputs``
        tensors or numbers."""
        what = "the graph's out_spec"
        read = _read(text, what, {"format", "result"}, (FORMAT, FORMAT_WITH_GIVEN))
        arguments = read.get("arguments", [])
        classes = _classes.Classes.of_text(text, model)
        checker = _spec.Checker(what, outputs, classes)
        checker.check(read["result"], 0)
        checker.items(arguments, 0)
        return cls(read["result"], arguments, classes)

    def to_json(self):
        spec = {"format": FORMAT, "result": self.spec}
        if self.arguments or _mentions_given(self.spec):
            spec = {"format": FORMAT_WITH_GIVEN, "result": self.spec, "arguments": self.arguments}
        return _classes.remember(json.dumps(spec))

    def check_given(self, given):
        """Raises ValueError where changing ``given`` would not be what the model does."""
        if self.arguments and len({id(value) for value in given}) != len(given):
            raise ValueError(
                "[call] one object or list is passed in two places, and the model changes its "
                "arguments; expected two of them, as when it was traced; pass a copy"
            )

    def build(self, tensors, *, batch=None, model=None, given=()):
        """The model's result, made of the graph's outputs in order; ``given`` is changed in place:
        what ``Signature.inputs`` found in the call."""
        builder = _pytree.Builder(
            tensors,
            device=next((t.device for t in tensors if isinstance(t, torch.Tensor)), None),
            batch=batch,
            module=module_finder(model) if model is not None else None,
            classes=self._classes,
            given=given,
        )
        value = builder.walk(self.spec)
        builder.items(self.arguments)
        return value


def _has_number(spec):
    """Is a number among the values that are described: not that of a tensor or an object?"""
    if isinstance(spec, dict):
        return not spec.keys() & {"t", "ref"} and any(map(_has_number, spec.values()))
    if isinstance(spec, list):
        return any(map(_has_number, spec))
    return isinstance(spec, (int, float))


def _mentions_given(spec):
    if isinstance(spec, dict):
        return "given" in spec or any(map(_mentions_given, spec.values()))
    return isinstance(spec, list) and any(map(_mentions_given, spec))


def describe_call(signature, args, kwargs, call, **options):
    """Runs ``call()``, the model with these arguments, and describes what came out of it: the
    result, and the arguments where it changed one that is no tensor.

    Returns the Description, and the paths of arguments whose change cannot be described.
    """
    given = signature.by_name(args, kwargs)
    spec, before = signature.describe(given, **options)
    value = call()
    spec_after, after = signature.describe(given, **options)
    changed = spec != spec_after or any(
        a is not b for a, b in zip(before.tensors, after.tensors, strict=True)
    )
    describer = _pytree.Describer(given=before.mutables, changed=changed, **options)
    found = describer.described(value)
    if changed:
        described = [describer.walk(given[name], name) for name in signature.arguments]
        found.arguments = [a for a in described if _mentions_given(a)]
    return found, _pytree.changed_nodes(before.nodes)


_SIGNATURE_KEYS = {"format", "parameters", "defaults", "arguments", "paths"}


def _read(text, what, keys, formats=(FORMAT,)):
    """The record in ``text``, with its format and its keys checked."""
    spec = _spec.parse(text, what)
    if type(spec) is not dict or not keys <= spec.keys():
        raise _spec.error(f"{what} lacks some of its keys", ", ".join(sorted(keys)))
    if spec["format"] not in formats:
        raise ValueError(
            f"[call] the graph's call is described in format {spec['format']!r}; expected "
            f"{FORMAT}; trace the model again with this version"
        )
    return spec


def _named_pairs(checker, pairs):
    for pair in checker.list_of(pairs):
        if type(pair) is not list or len(pair) != 2 or type(pair[0]) is not str:
            checker.fail("an argument without a name", "pairs of name and value")
    return pairs


def lookup(mapping, name):
    """``mapping.get(name)``, of what a module holds: a torch.jit module's mappings have no get."""
    return mapping[name] if name in mapping else None


def module_finder(model):
    """Finds a module of the model by its path. Paths may come from a file, so they are looked up
    among the modules only, where ``get_submodule`` would ask for any attribute."""

    def find(path):
        module = model
        for name in path.split(".") if path else ():
            module = lookup(module._modules, name)
            if module is None:
                raise _spec.error(f"the graph names a module '{path}'", "one that the model has")
        return module

    return find


def _parameters(model):
    """Names that may be passed by position, and the defaults of all."""
    positional, defaults = [], {}
    for p in inspect.signature(model.forward).parameters.values():
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            positional.append(p.name)
        if p.default is not p.empty:
            defaults[p.name] = p.default
    return positional, defaults


def _positions(parameters, args):
    return {name: i for i, name in enumerate(_names(parameters, len(args)))}


def _names(parameters, count):
    extra = [str(i) for i in range(len(parameters), count)]
    return [*parameters, *extra][:count]


def _by_name(parameters, args, kwargs):
    given = dict(zip(_names(parameters, len(args)), args, strict=True))
    for name, value in kwargs.items():
        if name in given:
            raise ValueError(f"[call] argument '{name}' is given twice; pass it once")
        given[name] = value
    return given


def _describe(given, device, positions):
    """Descriptions by name with one numbering of tensors, the tensors, and their paths."""
    roots = {n: f"args.{positions[n]}" if n in positions else f"kwargs.{n}" for n in given}
    describer = _pytree.Describer(share=False, device=device)
    described = {name: describer.walk(value, roots[name]) for name, value in given.items()}
    return described, describer.tensors, describer.paths


def element_bytes(tensor):
    """The elements of a tensor in C order, for constants that a graph carries along."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return ctypes.string_at(flat.data_ptr(), flat.numel()) if flat.numel() else b""


def find_weight(model, signature, record):
    """The tensor behind a weight of the graph (a record of ``graph.weights``): the model's own, or
    a constant that a forward makes out of literals and that is nowhere in the model."""
    find = module_finder(model)
    for name in record["names"]:
        owner, _, attribute = name.rpartition(".")
        try:
            module = find(owner)
        except _spec.SpecError:
            continue
        found = _tensor_of(module, attribute)
        if found is not None:
            return found
    if record["kind"] == "constant":
        return constant(record)
    raise ValueError(
        f"[call] the model has no {record['kind']} '{record['names'][0]}'; expected the model that "
        "was traced; trace this one"
    )


def _tensor_of(module, name):
    """A module's tensor, looked up as data: names may come from a file. None when it has none."""
    for mapping in (module._parameters, module._buffers, vars(module)):
        if isinstance(lookup(mapping, name), torch.Tensor):
            return mapping[name]
    found = inspect.getattr_static(type(module), name, None)
    return found if isinstance(found, torch.Tensor) else None


def constant(record):
    """The numbers of a constant that a graph holds, as a tensor."""
    data, shape, dtype = record["data"], record["shape"], _pytree.DTYPES.get(record["dtype"])
    count = math.prod(shape) if all(type(size) is int for size in shape) else -1
    if dtype is None or count < 0 or count * dtype.itemsize != len(data):
        raise _spec.error(
            f"constant '{record['names'][0]}' has {len(data)} bytes for {record['dtype']}"
            f"{list(shape)}",
            "as many as its shape needs",
        )
    raw = torch.frombuffer(bytearray(data or b"\0"), dtype=torch.uint8)
    return raw[: len(data)].view(dtype).reshape(shape).clone()
