# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Is the model under a plan still the model that was traced?

Asked on every call, in C++: was any of the objects behind what the graph says about its model
touched? Only then does the slow look of ``TracedModel`` follow, which knows the names.
"""

import collections
import copy

from kerf import _core
from kerf._code import outside_of
from kerf._places import address_of, find_places
from kerf._plain import ABSENT, NAMESPACES, contents_of, describe, function_of, show
from kerf._reads import find, has_slot, is_object, look_up, loose_tensors, version_of, weight_ids
from kerf._state import GLOBAL_HOOKS, HOOKS
from kerf._traced import AGAIN, TracedModel, loose_changed, module_name


def add_entries(watch, entries):
    """Watches ``(dictionary, key)`` pairs: one look at each dictionary while it stays as it is."""
    keys = {}
    for holder, key in entries:
        keys.setdefault(id(holder), (holder, []))[1].append(key)
    for holder, some in keys.values():
        watch.add_names(holder, some)


class ModelWatch:
    """Tells on every call whether a model is still what was traced: a microsecond for 50 modules.

    Raises ValueError that names the difference. Weights may change as they like.
    """

    def __init__(self, model, graph):
        self._model = model
        self._traced = TracedModel(graph)
        self._traced.check(model)
        self._build()

    def check(self):
        if self._watch.unchanged() and self._all_in_place():
            return
        self._check_identities()
        self._traced.check(self._model)
        self._build()  # other objects that say the same

    def _check_identities(self):
        """Modules, hooks and unnamed tensors have to be the very same: they may do anything."""
        now = dict(self._model.named_modules())
        for path, module in self._modules.items():
            if path in now and now[path] is not module:
                other = "another" if type(now[path]) is type(module) else "a module of class"
                raise ValueError(
                    f"[pipeline] module '{path}' was replaced by {other} "
                    f"{type(now[path]).__name__} after the pipeline was made; expected those that "
                    "were traced; trace the model again, or load weights into the module it had "
                    "(load_state_dict)"
                )
        for owner, hooks, was in self._hooks:
            is_now = list(hooks.values())
            if len(is_now) == len(was) and any(a is not b for a, b in zip(is_now, was)):
                hook = show(describe(is_now[-1]))
                raise ValueError(
                    f"[pipeline] {owner} has another forward hook, {hook}, than when the pipeline "
                    f"was made; {AGAIN}"
                )
        found = self._unnamed_tensors()
        for path, (tensor, version, address) in self._tensors.items():
            now = found.get(path, tensor)
            if now is not tensor or (version_of(now), address_of(now)) != (version, address):
                raise loose_changed(path, "the pipeline was made")

    def _all_in_place(self):
        """Writes to ``tensor.data`` are seen by nobody, but other memory is (``x.data = y``)."""
        return all(address_of(tensor) == address for tensor, address in self._addresses)

    def _build(self):
        self._watch = _core.ObjectWatch()
        self._modules = dict(self._model.named_modules())
        self._hooks = [("PyTorch", h, list(h.values())) for h in GLOBAL_HOOKS.values()]
        traced = self._traced
        names = traced.class_names(self._modules)
        read = {}  # path -> names
        for path, name, _, from_class in traced.attributes():
            if not from_class:
                read.setdefault(path, set()).add(name)
        for path, module in self._modules.items():
            self._add_module(path, module, read.pop(path, set()) | names[type(module)])
        for cls, class_names in names.items():
            self._watch.add_class(cls, sorted(class_names | {"__call__"}))
        for path, some in read.items():
            self._add_object(find(self._model, path), some)
        for path, name, values, _ in traced.attributes():
            if is_object(values[0]) and len(values[0]) > 2:
                found = look_up(find(self._model, path), name)[0]
                if found is not find(self._model, values[0][2]):  # equal, for now
                    self._add_object(found, read.get(values[0][2], ()))
        for path, name, _, from_class in traced.attributes():
            holder = find(self._model, path)
            for _, value in contents_of(look_up(holder, name)[0]):
                self._add_content(value)
            if from_class and path not in self._modules:
                self._watch.add_class(type(holder), [name])
        for weight in traced.ties:
            self._add_tie(weight)
        for hooks in GLOBAL_HOOKS.values():
            self._watch.add_dict(hooks)
        self._add_tensors()

    def _add_module(self, path, module, names):
        own = module.__dict__
        self._watch.add_type(module)
        fixed = ["training", "_modules", "_parameters", "_buffers"]
        if isinstance(own.get("_modules"), dict):  # TorchScript has its own
            self._watch.add_dict(own["_modules"])
        if self._traced.is_opaque(path):
            self._watch.add_names(own, fixed)
            return
        self._watch.add_names(own, [*fixed, *HOOKS, *sorted(names)])
        for hooks in (own[name] for name in HOOKS if name in own):
            self._watch.add_dict(hooks)
            self._hooks.append((module_name(path), hooks, list(hooks.values())))
            for hook in hooks.values():
                for _, value in contents_of(hook):
                    self._add_content(value)
        for mapping in (own.get(name) for name in ("_parameters", "_buffers")):
            if not isinstance(mapping, dict):
                continue
            missing = [n for n in names if mapping.get(n) is None and n not in own]
            if any(n in mapping for n in missing):  # a bias that is not there
                self._watch.add_names(mapping, [n for n in missing if n in mapping])

    def _add_object(self, holder, names):
        self._watch.add_type(holder)
        try:
            own = object.__getattribute__(holder, "__dict__")
        except AttributeError:
            own = {}
        self._watch.add_names(own, sorted(names))
        for name in names:
            if name in own:
                continue
            if has_slot(holder, name):
                self._watch.add_attribute(holder, name)
            else:
                self._watch.add_class(type(holder), [name])

    def _add_content(self, value):
        """What is in a list may change while the list stays the same one."""
        function = function_of(value)
        if isinstance(value, list):
            self._watch.add_list(value)
        elif isinstance(value, (dict, *NAMESPACES)):
            self._watch.add_dict(value if isinstance(value, dict) else vars(value))
        elif isinstance(value, (set, collections.deque)):
            self._watch.add_value(value, copy.copy(value))
        elif function is not None:
            for cell in function.__closure__ or ():
                self._watch.add_attribute(cell, "cell_contents")
        elif type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
            self._watch.add_bytes(value)

    def _add_tie(self, names):
        for name in names:
            path, _, attribute = name.rpartition(".")
            module = self._modules.get(path)
            for mapping in ("_parameters", "_buffers") if module is not None else ():
                if attribute in module.__dict__.get(mapping, ()):
                    self._watch.add_names(module.__dict__[mapping], [attribute])

    def _add_tensors(self):
        found = self._unnamed_tensors()
        self._tensors = {p: (t, version_of(t), address_of(t)) for p, t in found.items()}
        self._addresses = [(t, address) for t, _, address in self._tensors.values()]
        for tensor in found.values():
            self._watch.add_attribute(tensor, "_version")
        places = find_places(self._model) if self._traced.loose else {}
        for name, place in self._traced.loose:
            for link in places[place].links:
                self._add_link(*link)
            if name not in self._traced.constants:  # a weight: it has to stay the same one
                self._add_tie([name])
                pair = places[place].tensor, find(self._model, name)
                self._addresses.extend((t, address_of(t)) for t in pair if pair[0] is not pair[1])

        if self._traced.outside:
            self._add_outside()
        for weight in self._model.parameters() if self._traced.require_grad else ():
            self._watch.add_attribute(weight, "requires_grad")

    def _add_outside(self):
        """Global numbers and functions that the code names."""
        entries = []
        for name, (value, link) in outside_of(self._model, self._traced.code_read()).items():
            if name not in self._traced.outside:
                continue
            kind, holder, key = link
            if kind == "entry":
                entries.append((holder, key))
            else:
                self._add_link(*link)
            for _, item in contents_of(value):
                self._add_content(item)
        add_entries(self._watch, entries)

    def _add_link(self, kind, holder, key):
        if kind == "entry":
            self._watch.add_names(holder, [key])
        elif kind == "item":
            self._watch.add_list(holder)
        elif kind == "class":
            self._watch.add_class(holder, [key])
        elif kind == "attribute":
            self._watch.add_attribute(holder, key)

    def _unnamed_tensors(self):
        """Of which the graph holds the numbers, by where they stand."""
        found = dict(_loose_tensors(self._model, self._traced))
        places = find_places(self._model) if self._traced.loose else {}
        for name, place in self._traced.loose:
            if name in self._traced.constants and place in places:
                found[place] = places[place].tensor
        return found


def _loose_tensors(model, traced):
    """Tensors that were read from objects, from containers and by code that closes over them: they
    have no name in the model."""
    weights = weight_ids(model)
    for path, name, _, _ in traced.attributes():
        holder = find(model, path)
        if holder is not ABSENT:
            value = look_up(holder, name)[0]
            yield from loose_tensors(holder, value, f"{path}.{name}".lstrip("."), weights)
