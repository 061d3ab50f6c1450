# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What a graph says about the model and the surroundings it was traced in.

Written as attributes of the graph while it is built; ``kerf._watch`` holds a model to them. Names
with a dot are Kerf's own: ``Linear.forward`` is what the class gives, ``torch.autocast`` a state of
the thread that traced.
"""

import torch
from torch.nn.modules import module as torch_module

from kerf._errors import ExportError
from kerf._plain import describe, same
from kerf._reads import Reads, put_back, weight_ids

HOOKS = ("_forward_pre_hooks", "_forward_hooks")
GLOBAL_HOOKS = {
    "torch.global_forward_pre_hooks": torch_module._global_forward_pre_hooks,
    "torch.global_forward_hooks": torch_module._global_forward_hooks,
}
AUTOCAST = "torch.autocast"
DEFAULT_DTYPE = "torch.default_dtype"
SHARED = "torch.shared_modules"
LOOSE = "torch.loose_tensors"  # [name of a weight, where else the model's code finds it]
OUTSIDE = "torch.outside"  # [name, value] of globals and functions that the code uses
GRADIENTS = "torch.gradients"  # gradient mode, where the graph depends on it
REQUIRE_GRAD = "torch.require_grad"  # there when the graph depends on those of the weights
MODULES = "torch.modules"  # how many scopes are modules; those after them are second paths of some


class ModelState:
    """What one trace has to remember of its model."""

    def __init__(self, model, device_types):
        self._model = model
        self._device_types = device_types
        self._hooks = _hooks(model)  # a first call may install some of its own
        self._restless = None  # hash of the graph, when the model's code changed what it had read
        self._first = {}  # what it had read then, by path and name
        self._undo = []
        self._judged = set()  # what was changed beside tensors, by path and name
        self.reads = Reads(model)

    def write(self, capture, notes, is_opaque):
        """Adds the records; ``is_opaque`` tells paths of modules that run as they are."""
        changed = self.reads.unsteady()
        notes.extend(
            f"forward stores a tensor in attribute '{f'{path}.{name}'.lstrip('.')}'; a pipeline "
            "does not"
            for path, name in self.reads.kept
        )
        if self._restless is not None:
            notes.extend(
                f"forward changes attribute '{_join(r)}', which it also reads; a pipeline does not"
                for r in self.reads.changed()
            )
        capture.add_attribute("", DEFAULT_DTYPE, describe(torch.get_default_dtype())[1])
        capture.add_attribute("", AUTOCAST, autocast_state(self._device_types))
        capture.add_attribute("", SHARED, shared_modules(self._model))
        capture.add_attribute("", MODULES, len(list(self._model.modules())))
        for name, hooks in GLOBAL_HOOKS.items():
            capture.add_attribute("", name, describe_hooks(hooks, weight_ids(self._model)))
        self._write_hooks(capture, is_opaque)
        written = set()
        for path, name, value in self.reads.records():
            if (path, name) in changed or is_opaque(path):
                continue
            capture.add_attribute(path, name, value)
            written.add((path, name))
            if (path, name) in self._first:
                capture.add_attribute(path, name, self._first[path, name])
        for path, module in self._model.named_modules():
            if module.training != self._model.training and (path, "training") not in written:
                capture.add_attribute(path, "training", module.training)

    def code_read(self, is_opaque):
        """``(path, name)`` of what may be code among what was read."""
        return [(r.path, r.name) for r in self.reads.reads.values() if not is_opaque(r.path)]

    def _write_hooks(self, capture, is_opaque):
        now = _hooks(self._model)
        for key in dict.fromkeys([*self._hooks, *now]):
            path, name = key
            if is_opaque(path):
                continue
            before, after = self._hooks.get(key, []), now.get(key, [])
            capture.add_attribute(path, name, after)
            if not same(before, after):
                capture.add_attribute(path, name, before)  # a model that was never called

    def settled(self, graph, hide, second_call):
        """False when the model has to be traced once more: its code has changed what it reads.

        Settled the next time: a first call sets something up, and a model that was never called is
        the same model if both graphs are. Changed again: makes no difference if the graphs are the
        same (a counter); else the module is hidden. ``second_call(around)`` calls the model twice,
        the second time inside ``around()``.
        """
        for state in self.reads.replaced():
            put_back(self._undo or self.reads.before(self.reads.changed()))
            hide(self._module_of(state.path), _join(state))
            self._undo = []
            self._restless, self._first = None, {}
            return False
        self._judge(second_call)
        changed = self.reads.changed()
        before, self._restless = self._restless, graph.hash if changed else None
        if before is None:
            self._first = {(r.path, r.name): r.value for r in [*changed, *self.reads.written()]}
            self._undo = self.reads.advance() if changed else []
            return not changed
        if changed:
            put_back(self._undo)
        if before == graph.hash:
            return True
        if changed:
            hide(self._module_of(changed[0].path), _join(changed[0]))
            self._restless = None
        self._first = {}
        return False

    def _judge(self, second_call):
        """Finds counters beside tensors. What belongs to a cache is settled by one call, and a
        trace cannot start after it; a counter changes at the next call, too."""
        beside = self.reads.beside_tensors() - self._judged
        if not beside:
            return
        self._judged |= beside
        reads = Reads(self._model)
        second_call(reads.recording)
        self.reads.counters |= beside & reads.changing()

    def _module_of(self, path):
        modules = dict(self._model.named_modules())
        while path not in modules:
            path = path.rpartition(".")[0]
        return path


def refuse_state(path, attribute, otherwise):
    owner = f"module '{path}'" if path else "the model's own forward"
    return ExportError(
        f"[trace] {owner} reads attribute '{attribute}' and changes it, and its result depends on "
        "it; expected a forward that does not change what it reads; keep it in a buffer "
        f"(register_buffer), or {otherwise}",
        module=path,
    )


def _join(read):
    return f"{read.path}.{read.name}".lstrip(".")


def _hooks(model):
    weights = weight_ids(model)
    return {
        (path, name): describe_hooks(module.__dict__[name], weights)
        for path, module in model.named_modules()
        for name in HOOKS
        if module.__dict__.get(name)
    }


def describe_hooks(hooks, weights):
    """``weights`` are the ids of the model's own tensors, which may change; see ``describe``."""
    return [describe(hook, weights) for hook in hooks.values() if not _is_inert(hook)]


def hooks_of(model):
    """``(path, name, hooks)`` of all that run around a model's modules."""
    for path, module in model.named_modules():
        for name in HOOKS:
            if module.__dict__.get(name):
                yield path, name, module.__dict__[name]
    for name, hooks in GLOBAL_HOOKS.items():
        yield "", name, hooks


def _is_inert(hook):
    """transformers leaves hooks behind when it was once asked for hidden states or attentions; they
    do nothing unless it is asked again."""
    return getattr(hook, "__module__", None) == "transformers.utils.output_capturing"


def shared_modules(model):
    """``[path, first path]`` of each module that hangs in more than one place."""
    first = {}
    return [
        [path, first[id(module)]]
        for path, module in model.named_modules(remove_duplicate=False)
        if first.setdefault(id(module), path) != path
    ]


def autocast_state(device_types):
    """``[device type, dtype]`` where autocast is on for the calling thread."""
    return [
        [kind, str(torch.get_autocast_dtype(kind)).removeprefix("torch.")]
        for kind in sorted(device_types)
        if torch.is_autocast_enabled(kind)
    ]


def surroundings(graph):
    """The records of Kerf's own names, by name; {} for a graph that has none.

    Raises ValueError for a file in which they are of another form.
    """
    found = {r["name"]: r["value"] for r in graph.attributes if is_ours(r["path"], r["name"])}
    for name, value in found.items():
        if name == DEFAULT_DTYPE:
            sound = isinstance(value, str)
        elif name == MODULES:
            sound = type(value) is int and value >= 1
        elif name in (GRADIENTS, REQUIRE_GRAD):
            sound = isinstance(value, bool)
        elif name == OUTSIDE:
            sound = isinstance(value, list) and all(map(_is_named, value))
        elif name in (AUTOCAST, SHARED, LOOSE):
            sound = isinstance(value, list) and all(map(_is_pair, value))
        else:
            sound = isinstance(value, list)
        if not sound:
            raise ValueError(
                f"[pipeline] the graph's attribute '{name}' is {value!r}; expected the form that "
                "kerf.trace writes; trace the model again"
            )
    return found


def is_ours(path, name):
    return not path and name.startswith("torch.")


def _is_named(value):
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)


def _is_pair(value):
    return isinstance(value, list) and len(value) == 2 and all(isinstance(v, str) for v in value)
