# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Objects to tensors and back: a description of any nesting of objects, as plain JSON data.

``describe`` takes an object apart into its tensors and a description; ``build`` puts an object of
the same classes together from the description and other tensors, in this process or another. Unlike
``torch.utils._pytree`` it needs no registration: what is no container is described by its class and
its fields, so that cache objects and the like pass in and out of a graph.

A description is a JSON value. Numbers, strings, booleans and null stand for themselves; everything
else is an object with one of these keys:

    t          number of the tensor              sym        integer expression in B
    list, tuple, set, frozenset                  dict       pairs of key and value
    size       torch.Size                        slice      start, stop, step
    namedtuple class, with items                 node       registered pytree class
    object     class, fields, items              ref        an object described before, by number
    dtype, device, layout, memory_format         float      inf, -inf, nan
    complex    real, imaginary                   bytes      hexadecimal
    enum       class, name                       global     class or function
    module     path of a module of the model     given      what a call passed in, by number

Lists, dictionaries, sets, objects and nodes may also carry ``given``: then they are what the call
passed in under that number, left as described.
"""

import dataclasses
import enum
import math
import types
from collections import OrderedDict, defaultdict, deque

import torch

from kerf import _classes
from kerf._arguments import told_apart
from kerf._symbols import evaluate

_PLAIN = (type(None), bool, int, str)
_CONTAINERS = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}


class PytreeError(ValueError):
    """An object that cannot be described or rebuilt; says which, by its path."""


@dataclasses.dataclass
class Description:
    """What ``describe`` found: JSON data, and tensors with the places where they stood."""

    spec: object
    tensors: list
    paths: list
    mutables: list  # what could be changed in place: see ``Describer``
    arguments: list | None = None  # of the call that gave the value, where it changed those


def describe(value, *, root="", **options):
    """Takes ``value`` apart. For the options see ``Describer``."""
    return Describer(**options).described(value, root)


def join(path, key):
    return f"{path}.{key}" if path else str(key)


class Describer:
    """Describes one or several values with one numbering of tensors and objects.

    share    one number for a tensor that occurs twice; without it every place has its own
    device   the device that the description leaves open, to be chosen by whoever rebuilds
    modules  a mapping from id(module) to its path, for values that point into the model
    symbol   turns a torch.SymInt into an expression in B
    given    the ``mutables`` of an earlier description: these are recognised when met again
    changed  whether those were changed meanwhile and have to be described again

    ``mutables`` lists what could be changed in place among the values described: containers and
    objects, place by place.
    """

    def __init__(
        self, *, share=True, device=None, modules=None, symbol=None, given=(), changed=False
    ):
        self.share = share
        self.device = device
        self.modules = modules or {}
        self.symbol = symbol
        self.tensors = []
        self.paths = []
        self.numbers = {}  # id of tensor -> its number
        self.objects = {}  # id of object -> its number, in order of description
        self.mutables = []  # also keeps ids from being used again while they are keys
        self.nodes = []  # registered nodes: (value, children, path)
        self.given = {id(value): number for number, value in enumerate(given)}
        self.changed = changed

    def described(self, value, root=""):
        try:
            spec = self.walk(value, root)
        except RecursionError:
            raise PytreeError(
                f"[trace] {root or 'the value'} nests too deeply; expected a few levels of "
                "containers; return it as a list"
            ) from None
        return Description(spec, self.tensors, self.paths, self.mutables)

    def walk(self, value, path):
        kind = type(value)
        if kind in _PLAIN:
            return value
        if isinstance(value, torch.Tensor):
            return self.tensor(value, path)
        if id(value) in self.given and not self.changed:
            return {"given": self.given[id(value)]}
        if kind in (tuple, frozenset):
            return {_CONTAINERS[kind]: self.items(value, path)}
        if kind in _CONTAINERS:
            return self.noted(value, {_CONTAINERS[kind]: self.items(value, path)})
        if kind is dict:
            return self.noted(value, {"dict": self.pairs(value, path)})
        for test, describe_one in _SPECIAL:
            if isinstance(value, test):
                return describe_one(self, value, path)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            items = [self.walk(v, join(path, k)) for k, v in zip(value._fields, value, strict=True)]
            return {"namedtuple": _classes.name_of(kind), "items": items}
        if id(value) in self.objects:
            return {"ref": self.objects[id(value)]}
        self.objects[id(value)] = len(self.objects)
        if kind in torch.utils._pytree.SUPPORTED_NODES:
            return self.noted(value, self.node(value, path))
        return self.noted(value, self.object(value, path))

    def noted(self, value, spec):
        self.mutables.append(value)
        number = self.given.get(id(value))
        return spec if number is None else {**spec, "given": number}

    def tensor(self, value, path):
        number = self.numbers.get(id(value)) if self.share else None
        if number is None:
            number = self.numbers[id(value)] = len(self.tensors)
            self.tensors.append(value)
            self.paths.append(path or "output")
        return {"t": number}

    def items(self, values, path):
        return [self.walk(v, join(path, i)) for i, v in enumerate(values)]

    def pairs(self, mapping, path):
        return [[self.walk(k, path), self.walk(v, join(path, k))] for k, v in mapping.items()]

    def node(self, value, path):
        registered = torch.utils._pytree.SUPPORTED_NODES[type(value)]
        children, context = registered.flatten_fn(value)
        self.nodes.append((value, children, path))
        keys = range(len(children))
        # Containers such as transformers' ModelOutput keep the names of their children here.
        if isinstance(context, (list, tuple)) and [type(k) for k in context] == [str] * len(keys):
            keys = context
        return {
            "node": _classes.name_of(type(value)),
            "children": [self.walk(c, join(path, k)) for k, c in zip(keys, children, strict=True)],
            "context": self.walk(context, path),
        }

    def object(self, value, path):
        fields = _fields(value)
        items = None
        if isinstance(value, dict):
            items = {
                "dict": [
                    [self.walk(k, path), self.walk(v, join(path, k))] for k, v in dict.items(value)
                ]
            }
        elif isinstance(value, (list, tuple, set, frozenset, deque)):
            items = {"list": self.items(list(value), path)}
        elif fields is None:
            raise PytreeError(
                f"[trace] {path or 'the value'} is a {type(value).__qualname__}; expected tensors, "
                "plain data, containers, or an object with fields; give it as one of those"
            )
        if _classes.has_finalizer(type(value)):
            raise PytreeError(
                f"[trace] {path or 'the value'} is a {type(value).__qualname__}, which has "
                "__del__; expected an object that can be copied; return another one"
            )
        spec = {"object": _classes.name_of(type(value))}
        spec["fields"] = [[k, self.walk(v, join(path, k))] for k, v in (fields or {}).items()]
        if items is not None:
            spec["items"] = items
        if isinstance(value, defaultdict):
            spec["default"] = self.walk(value.default_factory, path)
        return spec


def _fields(value):
    """The instance's own fields, ``__slots__`` included; None when it can have none."""
    slots = [
        name
        for cls in type(value).__mro__
        for name in _as_tuple(cls.__dict__.get("__slots__", ()))
        if name not in ("__dict__", "__weakref__")
    ]
    own = getattr(value, "__dict__", None)
    if own is None and not slots:
        return None
    return {**{s: getattr(value, s) for s in slots if hasattr(value, s)}, **(own or {})}


def _as_tuple(slots):
    return (slots,) if isinstance(slots, str) else slots


def _float(describer, value, path):
    return float(value) if math.isfinite(value) else {"float": str(float(value))}


def _device(describer, value, path):
    return {"device": "" if value == describer.device else str(value)}


def _symbolic(describer, value, path):
    if describer.symbol is None:
        raise PytreeError(f"[trace] {path} is a symbolic number outside of a trace")
    text = describer.symbol(value)
    return text if isinstance(text, int) else {"sym": text}


def _module(describer, value, path):
    found = describer.modules.get(id(value))
    if found is None:
        raise PytreeError(f"[trace] {path} is a module that is not part of the model")
    return {"module": found}


def _named(describer, value, path):
    return {"global": _classes.name_of(value)}


def _torch_constant(describer, value, path):
    return {type(value).__name__: str(value).removeprefix("torch.")}


_SPECIAL = (
    (enum.Enum, lambda d, v, p: {"enum": _classes.name_of(type(v)), "name": v.name}),
    (float, _float),
    (torch.dtype, _torch_constant),
    (torch.layout, _torch_constant),
    (torch.memory_format, _torch_constant),
    (torch.device, _device),
    ((torch.SymInt, torch.SymFloat, torch.SymBool), _symbolic),
    (torch.Size, lambda d, v, p: {"size": d.items(v, p)}),
    (complex, lambda d, v, p: {"complex": [v.real, v.imag]}),
    (bytes, lambda d, v, p: {"bytes": v.hex()}),
    (slice, lambda d, v, p: {"slice": d.items((v.start, v.stop, v.step), p)}),
    (torch.nn.Module, _module),
    ((type, types.FunctionType, types.BuiltinFunctionType), _named),
)


def build(spec, tensors, **options):
    """The object that ``spec`` describes, made of ``tensors``. For the options see ``Builder``."""
    return Builder(tensors, **options).walk(spec)


class Builder:
    """Rebuilds values in the order in which they were described.

    A description that comes from a file has to pass ``_spec.check`` first.

    device  stands in for the device that was left open      batch  the value of B, for ``sym``
    module  finds a module of the model by its path          classes  those that may be named
    given   what the call passed in that could be changed, by number: changed in place
    """

    def __init__(self, tensors, *, device=None, batch=None, module=None, classes=None, given=()):
        self.tensors = tensors
        self.device = device
        self.batch = batch
        self.module = module
        self.classes = classes or _classes.Classes()
        self.given = given
        self.objects = []

    def walk(self, spec):
        if not isinstance(spec, dict):
            return spec
        return _BUILD[next(iter(spec))](self, spec)

    def items(self, specs):
        return [self.walk(s) for s in specs]

    def pairs(self, specs):
        return {self.walk(k): self.walk(v) for k, v in specs}

    def passed(self, spec, cls=None):
        """What the call passed in, or None where the description is of something new."""
        number = spec.get("given")
        if number is None:
            return None
        found = self.given[number] if number < len(self.given) else None
        if found is None or (cls is not None and type(found) is not cls):
            raise PytreeError(
                f"[call] the result needs argument object number {number}, which this call does "
                "not pass; expected the objects that were traced; trace the model again"
            )
        return found

    def container(self, spec, made):
        """A list, dictionary or set: a new one, or the call's own with other contents."""
        found = self.passed(spec, type(made))
        if found is None:
            return made
        found.clear()
        _fill(found, made)
        return found

    def named(self, name):
        try:
            return self.classes.find(name)
        except _classes.ClassError as error:
            raise PytreeError(str(error)) from None

    def namedtuple(self, spec):
        # Past the class's own __new__ and _make, which may do more than store.
        return tuple.__new__(self.named(spec["namedtuple"]), self.items(spec["items"]))

    def node(self, spec):
        cls = self.named(spec["node"])
        number = self.reserve()
        children, context = self.items(spec["children"]), self.walk(spec["context"])
        if cls in _STANDARD_NODES:
            made = _STANDARD_NODES[cls](children, context)
        else:
            made = torch.utils._pytree.SUPPORTED_NODES[cls].unflatten_fn(children, context)
        found = self.passed(spec, cls)
        if found is not None:
            # Others than the standard ones hold the children they held: see ``changed_nodes``.
            made = self.container(spec, made) if cls in _STANDARD_NODES else found
        self.objects[number] = made
        return made

    def object(self, spec):
        cls = self.named(spec["object"])
        number = self.reserve()
        found = self.passed(spec, cls)
        if found is not None:
            made = found
        elif issubclass(cls, (tuple, frozenset)):
            made = bare(cls, self.walk(spec["items"]))
        else:
            made = bare(cls)
        self.objects[number] = made
        fields = [(name, self.walk(field)) for name, field in spec["fields"]]
        if found is not None:
            _clear(found, dict(fields))
        for name, field in fields:
            _set_field(made, name, field)
        if "default" in spec:
            made.default_factory = self.walk(spec["default"])
        if "items" in spec:
            _fill(made, self.walk(spec["items"]))
        return made

    def enum(self, spec):
        return self.named(spec["enum"]).__members__[spec["name"]]

    def reserve(self):
        self.objects.append(None)
        return len(self.objects) - 1

    def symbol(self, spec):
        if self.batch is None:
            raise PytreeError(
                f"[call] a value is {spec['sym']} and no batch is known; expected an input with a "
                "batch; trace the model again"
            )
        return evaluate(spec["sym"], self.batch)

    def open_device(self, spec):
        if spec["device"]:
            return torch.device(spec["device"])
        return self.device if self.device is not None else torch.device("cpu")

    def find_module(self, spec):
        if self.module is None:
            raise PytreeError(f"a value is module '{spec['module']}' and no model is known")
        return self.module(spec["module"])


# How the standard containers are put together that PyTorch has registered as nodes.
_STANDARD_NODES = {
    OrderedDict: lambda children, keys: OrderedDict(zip(keys, children, strict=True)),
    defaultdict: lambda children, context: defaultdict(
        context[0], zip(context[1], children, strict=True)
    ),
    deque: lambda children, limit: deque(children, maxlen=limit),
}

# Classes whose objects are made by the interpreter itself, the narrower ones first.
_NATIVE = (
    *(OrderedDict, defaultdict, dict, list, tuple, set, frozenset, deque),
    *(types.SimpleNamespace, object),
)


def bare(cls, *items):
    """An object of ``cls`` on which no code of the class has run: neither __new__ nor __init__."""
    native = next(base for base in _NATIVE if issubclass(cls, base))
    try:
        return native.__new__(cls, *items)
    except TypeError as error:  # objects of another layout, such as exceptions and files
        raise PytreeError(f"an object of {cls.__qualname__} cannot be made: {error}") from None


def _set_field(made, name, value):
    """Stores a field where the instance keeps it, past properties and __setattr__."""
    for cls in type(made).__mro__:
        slot = vars(cls).get(name)
        if isinstance(slot, types.MemberDescriptorType):
            slot.__set__(made, value)
            return
    try:
        made.__dict__[name] = value
    except AttributeError:
        kind = type(made).__qualname__
        raise PytreeError(
            f"[call] an object of {kind} has no field '{name}'; expected those it was traced with; "
            "trace the model again"
        ) from None


def _clear(made, fields):
    """Empties an object of what it holds besides ``fields``, past its own methods."""
    for name in (_fields(made) or {}).keys() - fields.keys():
        object.__delattr__(made, name)
    native = next(base for base in _NATIVE if isinstance(made, base))
    if native in (OrderedDict, defaultdict, dict, list, set, deque):
        native.clear(made)


def changed_nodes(described):
    """Paths of registered nodes, other than the standard containers, that do not hold the children
    that they held when they were described: ``[(value, children, path)]``."""
    return [
        path
        for value, children, path in described
        if type(value) not in _STANDARD_NODES and not _same_items(_children(value), children)
    ]


def _children(node):
    return torch.utils._pytree.SUPPORTED_NODES[type(node)].flatten_fn(node)[0]


def _same_items(a, b):
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def _fill(made, items):
    # Past the class's own __setitem__ and append, which may do more than store.
    if isinstance(made, OrderedDict):
        for key, value in items.items():
            OrderedDict.__setitem__(made, key, value)
    elif isinstance(made, dict):
        dict.update(made, items)
    elif isinstance(made, list):
        list.extend(made, items)
    elif isinstance(made, set):
        set.update(made, items)
    elif isinstance(made, deque):
        deque.extend(made, items)


def _constants(kind):
    """PyTorch's constants of one type, by name."""
    return {str(v).removeprefix("torch."): v for v in vars(torch).values() if isinstance(v, kind)}


DTYPES = _constants(torch.dtype)
LAYOUTS = _constants(torch.layout)
MEMORY_FORMATS = _constants(torch.memory_format)

_BUILD = {
    "t": lambda b, s: b.tensors[s["t"]],
    "list": lambda b, s: b.container(s, b.items(s["list"])),
    "tuple": lambda b, s: tuple(b.items(s["tuple"])),
    "set": lambda b, s: b.container(s, set(b.items(s["set"]))),
    "frozenset": lambda b, s: frozenset(b.items(s["frozenset"])),
    "dict": lambda b, s: b.container(s, b.pairs(s["dict"])),
    "size": lambda b, s: torch.Size(b.items(s["size"])),
    "slice": lambda b, s: slice(*b.items(s["slice"])),
    "namedtuple": Builder.namedtuple,
    "node": Builder.node,
    "object": Builder.object,
    "ref": lambda b, s: b.objects[s["ref"]],
    "dtype": lambda b, s: DTYPES[s["dtype"]],
    "layout": lambda b, s: LAYOUTS[s["layout"]],
    "memory_format": lambda b, s: MEMORY_FORMATS[s["memory_format"]],
    "device": Builder.open_device,
    "float": lambda b, s: float(s["float"]),
    "complex": lambda b, s: complex(*s["complex"]),
    "bytes": lambda b, s: bytes.fromhex(s["bytes"]),
    "enum": Builder.enum,
    "global": lambda b, s: b.named(s["global"]),
    "module": Builder.find_module,
    "sym": Builder.symbol,
    "given": Builder.passed,
}


def at_batch(spec, batch):
    """A description with its expressions in B replaced by their values."""
    if isinstance(spec, dict):
        if "sym" in spec:
            return evaluate(spec["sym"], batch)
        return {key: at_batch(value, batch) for key, value in spec.items()}
    if isinstance(spec, list):
        return [at_batch(value, batch) for value in spec]
    return spec


_OPEN_DEVICE = {"device": ""}


def difference(traced, given, path=""):
    """Where two descriptions differ: ``(path, what traced has, what given has)``, in words that
    differ too; None where they are the same. A device that was left open is any device.
    """
    if traced == _OPEN_DEVICE and type(given) is dict and given.keys() == _OPEN_DEVICE.keys():
        return None
    if type(traced) is dict and type(given) is dict:
        return _parts_difference(traced, given, path)
    if type(traced) is list and type(given) is list:
        for i, (a, b) in enumerate(zip(traced, given, strict=False)):
            found = difference(a, b, join(path, i))
            if found:
                return found
        counts = len(traced), len(given)
        return None if counts[0] == counts[1] else (path, f"{counts[0]}", f"{counts[1]} items long")
    same = repr(traced) == repr(given)  # not ==: 1, 1.0 and True differ
    return None if same else (path, *_show_both(traced, given))


def _parts_difference(traced, given, path):
    kind = next(iter(traced))
    named = isinstance(traced[kind], str) and traced[kind] != given.get(kind)
    if named or traced.keys() != given.keys():
        return path, *_show_both(traced, given)
    for key in traced:
        compare = _pairs_difference if key in ("dict", "fields") else difference
        found = compare(traced[key], given[key], path)
        if found:
            return found
    return None


def _pairs_difference(traced, given, path):
    keys, given_keys = ([key for key, _ in pairs] for pairs in (traced, given))
    for key in given_keys:
        if key not in keys:
            return path, "one without it", f"one that has {_show(key)}"
    for key in keys:
        if key not in given_keys:
            return path, "one that has it", f"one without {_show(key)}"
    for (key, a), (given_key, b) in zip(traced, given, strict=True):
        if key != given_key:
            return (
                path,
                f"one that has {_show(key)} first",
                f"one that has {_show(given_key)} first",
            )
        found = difference(a, b, join(path, key if type(key) in _PLAIN else _show(key)))
        if found:
            return found
    return None


def _show_both(traced, given):
    texts = _show(traced), _show(given)
    return told_apart(*texts) if texts[0] != texts[1] else ("another one", texts[1])


def _show(spec):
    """A description as it reads in a message."""
    if type(spec) is not dict:
        return repr(spec)
    kind, value = next(iter(spec.items()))
    if kind in ("list", "tuple", "set", "frozenset", "dict"):
        return f"a {kind} of {len(value)}"
    return _SHOW[kind](value) if kind in _SHOW else str(value)


_SHOW = {
    "t": lambda number: "a tensor",
    **dict.fromkeys(("namedtuple", "node", "object"), lambda name: f"a {name.replace(':', '.')}"),
    **dict.fromkeys(("dtype", "layout", "memory_format"), lambda name: f"torch.{name}"),
    "size": lambda sizes: f"torch.Size({sizes})",
    "slice": lambda parts: f"slice({', '.join(map(_show, parts))})",
    "device": lambda name: f"the device {name}" if name else "the model's device",
    "module": lambda path: f"module '{path}'",
    "ref": lambda number: "an object that is there already",
    "given": lambda number: "what was passed in",
}
