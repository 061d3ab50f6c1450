# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What a graph says about its model; names the first thing that is different in another."""

import torch

from kerf._call import constant
from kerf._code import outside_of
from kerf._places import find_places, one_memory
from kerf._plain import ABSENT, describe, same, show, show_both
from kerf._reads import describe_found, find, is_object, look_up, weight_ids
from kerf._state import (
    DEFAULT_DTYPE,
    GLOBAL_HOOKS,
    HOOKS,
    LOOSE,
    MODULES,
    OUTSIDE,
    REQUIRE_GRAD,
    SHARED,
    describe_hooks,
    is_ours,
    shared_modules,
    surroundings,
)

AGAIN = "set it back or trace again"


class TracedModel:
    """What a graph says about its model."""

    def __init__(self, graph):
        self.training = graph.training
        self.weights = [r for r in graph.weights if r["kind"] != "constant"]
        self.ties = [r["names"] for r in self.weights if len(r["names"]) > 1]
        nodes = graph.nodes
        blocks = [n["kwargs"].get("module") for n in nodes if n["op"] == "opaque"]
        self._opaque = [path for path in blocks if isinstance(path, str)]
        self.by_name = {}  # (path, name) -> values; more than one where any will do
        for record in graph.attributes:
            key = record["path"], record["name"]
            self.by_name.setdefault(key, []).append(record["value"])
        self.surroundings = surroundings(graph)
        self.require_grad = REQUIRE_GRAD in self.surroundings
        outside = self.surroundings.get(OUTSIDE, [])
        self.outside = {name: value for name, value in outside}
        self.loose = self.surroundings.get(LOOSE, [])  # [name of a weight, place]
        self.constants = {r["names"][0]: r for r in graph.weights if r["kind"] == "constant"}
        modules = graph.scopes[: self.surroundings.get(MODULES)]
        self.scopes = dict(modules)  # path -> name of the class
        # A graph that was written by hand, or before attributes were, says nothing of them.
        self.has_state = DEFAULT_DTYPE in self.surroundings

    def is_opaque(self, path):
        return any(path == p or path.startswith(p + ".") for p in self._opaque)

    def attributes(self):
        """``(path, name, values, from_class)`` of what the model's code has read."""
        for (path, name), values in self.by_name.items():
            if name in HOOKS or name == "training" or is_ours(path, name):
                continue
            yield path, name.rpartition(".")[2], values, "." in name

    def check(self, model):
        """Raises ValueError that names the first difference."""
        modules = dict(model.named_modules())
        if not self.has_state:
            self._check_mode("", model)
            return
        self._own = weight_ids(model)
        self._check_tree(modules)
        self._check_shared(model)
        for path, module in modules.items():
            self._check_mode(path, module)
            if not self.is_opaque(path):
                self._check_hooks(path, module)
        for name, hooks in GLOBAL_HOOKS.items():
            self._compare_hooks("PyTorch", [self.surroundings.get(name, [])], hooks, name)
        if self.loose:
            self._check_loose(model)
        self._check_outside(model)
        for path, name, values, from_class in self.attributes():
            self._check_attribute(model, path, name, values, from_class)
        self._check_shadows(modules)
        for record in self.weights:
            _check_weight(model, record, self.require_grad)
        for names in self.ties:
            _check_tie(model, names)

    def _check_tree(self, modules):
        traced = self.scopes
        for path, module in modules.items():
            found = type(module).__name__
            if path not in traced:
                raise _refusal(
                    f"the model has a module '{path}' (a {found}); it had none when the model was "
                    "traced"
                )
            if found != traced[path]:
                raise _refusal(
                    f"{module_name(path)} is a {found}; it was a {traced[path]} when the model was "
                    "traced"
                )
        for path, name in traced.items():
            if path not in modules:
                raise _refusal(
                    f"the model has no module '{path}'; it was a {name} when the model was traced"
                )
        if list(modules) != list(traced):
            path = next(p for p, q in zip(modules, traced, strict=True) if p != q)
            raise _refusal(f"module '{path}' is in another place than when the model was traced")

    def _check_shared(self, model):
        was, now = self.surroundings.get(SHARED, []), shared_modules(model)
        if was != now:
            others = (pair for pair in [*was, *now] if (pair in was) != (pair in now))
            path, first = next(others, (was or now)[0])
            are, were = ("are", "were not") if [path, first] in now else ("are not", "were")
            raise _refusal(
                f"modules '{first}' and '{path}' {are} one module; they {were} when the model was "
                "traced"
            )

    def _check_loose(self, model):
        """Tensors without a name in the model: still those weights, or still those numbers?"""
        places = find_places(model)
        for name, place in self.loose:
            if place not in places:
                raise _refusal(f"there is no tensor '{place}'; there was when the model was traced")
            tensor = places[place].tensor
            if name in self.constants:
                _check_numbers(tensor, self.constants[name], place)
            elif not one_memory(tensor, find(model, name)):
                raise ValueError(
                    f"[pipeline] the tensor '{place}' is no longer weight '{name}'; they were one "
                    "tensor when the model was traced; make them one again or trace again"
                )

    def code_read(self):
        """``(path, name)`` of what may be code among what was read."""
        return [(path, name) for path, name, _, _ in self.attributes()]

    def _check_outside(self, model):
        """Globals, and functions that are called by their names."""
        found = outside_of(model, self.code_read()) if self.outside else {}
        for name, was in self.outside.items():
            now = describe(found[name][0]) if name in found else ABSENT
            if not same(now, was):
                has, had = show_both(now, was)
                raise ValueError(
                    f"[pipeline] '{name}', which the model's code uses, is {has}; it was {had} "
                    f"when the model was traced; {AGAIN}"
                )

    def _check_mode(self, path, module):
        traced = self.by_name.get((path, "training"), [self.training])[0]
        if module.training != traced:
            now, was = ("train", "eval") if module.training else ("eval", "train")
            owner = f"module '{path}' is" if path else "the model is"
            call = f"model.get_submodule('{path}')" if path else "model"
            raise ValueError(
                f"[pipeline] {owner} in {now} mode; it was in {was} mode when the model was "
                f"traced; call {call}.{was}() or trace again"
            )

    def _check_hooks(self, path, module):
        for name in HOOKS:
            allowed = self.by_name.get((path, name), [[]])
            self._compare_hooks(module_name(path), allowed, module.__dict__.get(name, {}), name)

    def _compare_hooks(self, owner, allowed, hooks, name):
        if not hooks and allowed == [[]]:
            return
        now = describe_hooks(hooks, self._own)
        if not any(same(now, a) for a in allowed):
            was = allowed[0] if isinstance(allowed[0], list) else [allowed[0]]
            has, had = (", ".join(map(show, some)) or "none" for some in (now, was))
            had = had if had != has else "others with these names"
            kind = "forward pre-hooks" if "pre" in name else "forward hooks"
            raise ValueError(
                f"[pipeline] {owner} has the {kind} {has}; it had {had} when the model was traced; "
                f"{AGAIN}"
            )

    def _check_attribute(self, model, path, name, values, from_class):
        holder = find(model, path)
        found, owner = (ABSENT, None) if holder is ABSENT else look_up(holder, name)
        now = describe_found(found, self._own)
        if is_object(values[0]) and len(values[0]) > 2:  # met before, under another path
            values, first = [values[0][:2]], values[0][2]
            if same(now, values[0]) and found is not find(model, first):
                self._check_alike(found, first, f"{path}.{name}".lstrip("."))
        if any(same(now, value) for value in values):
            return
        where = module_name(path) if path in self.scopes else f"'{path}'"
        if from_class and owner is not None:
            where = f"class {type(holder).__name__}"
        raise _changed(where, name, now, values[0])

    def _check_alike(self, found, first, path):
        """An object that stands where that at ``first`` stood has to say the same."""
        for holder, name, values, _ in self.attributes():
            if holder == first:
                now = describe_found(look_up(found, name)[0], self._own)
                if not any(same(now, value) for value in values):
                    raise _changed(f"'{path}'", name, now, values[0])

    def _check_shadows(self, modules):
        """What a class gave must not be given by a module of that class now."""
        names = self.class_names(modules)
        for path, module in modules.items():
            for name in names.get(type(module), ()):
                own = module.__dict__
                if name in own and (path, name) not in self.by_name and not self.is_opaque(path):
                    raise ValueError(
                        f"[pipeline] {module_name(path)} has {name}={show(describe(own[name]))} of "
                        f"its own; it had that of its class when the model was traced; {AGAIN}"
                    )

    def class_names(self, modules):
        """Names that classes of modules gave when they were read."""
        names = {type(m): {"forward"} for m in modules.values()}
        for path, name, _, from_class in self.attributes():
            if from_class and path in modules:
                names[type(modules[path])].add(name)
        return names


def module_name(path):
    return f"module '{path}'" if path else "the model"


def _refusal(text):
    return ValueError(f"[pipeline] {text}; give the model that was traced, or trace this one")


def _changed(where, name, now, was):
    has, had = show_both(now, was)
    has = f"has no {name}" if now == ABSENT else f"has {name}={has}"
    had = "had none" if was == ABSENT else f"was {had}"
    return ValueError(f"[pipeline] {where} {has}; it {had} when the model was traced; {AGAIN}")


def _check_weight(model, record, require_grad):
    for name in record["names"]:
        tensor = find(model, name)
        if not isinstance(tensor, torch.Tensor):
            raise _refusal(
                f"the model has no {record['kind']} '{name}'; it had one when the model was traced"
            )
        if list(tensor.shape) != record["shape"]:
            raise _refusal(
                f"weight '{name}' has the shape {list(tensor.shape)}; it had {record['shape']} "
                "when the model was traced"
            )
        if require_grad and tensor.requires_grad != record["requires_grad"]:
            did, does = ("did not", "does") if tensor.requires_grad else ("did", "does not")
            raise ValueError(
                f"[pipeline] weight '{name}' {does} require gradients; it {did} when the model was "
                "traced, and the model's code depends on that; set it back (requires_grad_) or "
                "trace again"
            )


def _check_numbers(tensor, record, place):
    was = constant(record)
    same = (tensor.shape, tensor.dtype) == (was.shape, was.dtype) and (
        tensor.is_meta or torch.equal(tensor.detach().to(was.device), was)
    )
    if not same and not (was.is_floating_point() and torch.isnan(was).any()):
        raise loose_changed(place, "the model was traced")


def loose_changed(place, since):
    return ValueError(
        f"[pipeline] the tensor '{place}' was changed after {since}; the graph holds its values, "
        "since no module has registered it; register it as a parameter or a buffer, then trace "
        "again"
    )


def _check_tie(model, names):
    """All names of a tied weight must still lead to one memory."""
    found = [(name, find(model, name)) for name in names]
    tensors = [(name, t) for name, t in found if isinstance(t, torch.Tensor)]
    for name, tensor in tensors[1:]:
        if not one_memory(tensor, tensors[0][1]):
            raise ValueError(
                f"[pipeline] weight '{name}' is no longer tied to '{tensors[0][0]}'; they were one "
                "tensor when the model was traced; tie them again or trace again"
            )
