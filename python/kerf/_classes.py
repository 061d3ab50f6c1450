# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Which classes a description of a value may name. Files are data: nothing is imported for them.

A description that was made in this process (its text is remembered) may name whatever was in the
values it was made from. Any other text comes from a file. It may name classes only, never
functions, and only those that are loaded already and vouched for: by a short list, by the user
(``kerf.allow_output_class``), or by the packages that the given model's own classes come from.
"""

import collections
import hashlib
import sys
import types
from typing import Any, TypeVar

from kerf._arguments import shown

# Containers and plain types. Nothing happens when one is made, filled or dropped.
_STANDARD: frozenset[type] = frozenset(
    {
        collections.OrderedDict,
        collections.defaultdict,
        collections.Counter,
        collections.deque,
        types.SimpleNamespace,
        *(bool, int, float, complex, str, bytes),
        *(list, tuple, dict, set, frozenset),
    }
)
# By name, since PyTorch is not loaded here: its containers of results.
_TORCH = frozenset({"torch.nn.utils.rnn:PackedSequence"})
_TORCH_MODULES = frozenset({"torch.return_types"})

_C = TypeVar("_C", bound=type)

_allowed: set[type] = set()
_described: dict[str, Any] = {}  # classes and functions of values that were described here
_own: set[bytes] = set()  # digests of the descriptions that were made here


class ClassError(ValueError):
    """A class that a description names and that may not be used; says why."""


def allow_output_class(cls: _C) -> _C:
    """Allows graphs loaded from a file to return, or hold, objects of class ``cls``.

    A graph file names the classes of the model's result. Kerf uses those of PyTorch's and Python's
    containers and of the packages in which the given model's modules are defined; the program that
    loads the file has to allow any other class. Objects are made without ``__init__``, and
    their fields are set from the file: allow classes that only hold data. Returns ``cls``, so that
    it can be used as a class decorator. Graphs traced in the same process need none of this.
    """
    if not isinstance(cls, type):
        raise TypeError(
            f"[kerf.allow_output_class] the argument is {shown(cls)}; expected a class; give the "
            "class itself"
        )
    if has_finalizer(cls):
        raise ValueError(
            f"[kerf.allow_output_class] {cls.__qualname__} has __del__; expected a class that only "
            "holds data; return another one from the model"
        )
    _allowed.add(cls)
    return cls


def has_finalizer(cls: type) -> bool:
    """Does something happen when an object of the class is dropped?"""
    return any("__del__" in vars(base) for base in cls.__mro__)


def name_of(value: Any) -> str:
    """``module:qualname`` of a class or function that was met in a value of this process."""
    name = f"{value.__module__}:{value.__qualname__}"
    _described[name] = value
    return name


def remember(text: str) -> str:
    """Notes that ``text`` describes values of this process. Returns it."""
    _own.add(_digest(text))
    return text


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class Classes:
    """Finds what a description names: a class always, a function only where ``own`` is true."""

    def __init__(self, *, own: bool = False, model: Any = None) -> None:
        self.own = own
        self._packages = packages_of(model) if model is not None else frozenset()

    @classmethod
    def of_text(cls, text: str, model: Any = None) -> "Classes":
        """Those that a description may use that was read from ``text``."""
        return cls(own=_digest(text) in _own, model=model)

    def find(self, name: str) -> Any:
        """The class (or function) of that name. Raises ClassError."""
        if self.own and name in _described:
            return _described[name]
        found = _find_loaded(name)
        if not isinstance(found, type):
            raise ClassError(f"'{name[:80]}', which is not a loaded class")
        if not self._vouched(name, found):
            raise ClassError(
                f"'{name[:80]}', a class that nothing here vouches for: it belongs neither to the "
                "model's packages nor to the standard containers"
            )
        if has_finalizer(found):
            raise ClassError(f"'{name[:80]}', which has __del__: its objects cannot be copies")
        return found

    def _vouched(self, name: str, cls: type) -> bool:
        if cls in _STANDARD or cls in _allowed or name in _TORCH:
            return True
        module = cls.__module__
        return module in _TORCH_MODULES or module.partition(".")[0] in self._packages


OWN = Classes(own=True)


def packages_of(model: Any) -> frozenset[str]:
    """Top-level packages that define the classes of the model's modules, but for PyTorch's own and
    the standard library's, which define much else."""
    modules = {base.__module__ for m in model.modules() for base in type(m).__mro__}
    packages = {module.partition(".")[0] for module in modules}
    return frozenset(packages - sys.stdlib_module_names - {"torch", "kerf"})


def _find_loaded(name: str) -> Any:
    """What a name stands for in the modules that are loaded, looked up as data: no import, no
    attribute access that could run code. Aliases do not count."""
    module_name, _, qualname = name.partition(":")
    module = sys.modules.get(module_name)
    if not isinstance(module, types.ModuleType):
        return None
    space = object.__getattribute__(module, "__dict__")
    found: Any = None
    for part in qualname.split("."):
        found = space.get(part)
        if not isinstance(found, type):
            return None
        space = vars(found)
    return found if (found.__module__, found.__qualname__) == (module_name, qualname) else None
