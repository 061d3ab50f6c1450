# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A traced module as a folder: source that can be read and imported, and what it refers to.

module.py      the generated ``forward`` and its class
state_dict.pt  the state dict
module.pkl     modules and attributes, which refer to the tensors of the two other files
tensors.pt     tensors that are no part of the state dict, such as constants
"""

import importlib
import io
import pickle
import re
import types
from pathlib import Path

import torch
from torch.fx.graph import _custom_builtins

_TABLES = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training")


def write_folder(gm, folder, class_name):
    if not class_name.isidentifier():
        raise ValueError(
            f"[symbolic.to_folder] module_name is {class_name!r}; expected the name of a class, of "
            "letters, digits and _; pass one"
        )
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    code = gm._graph.python_code("self")
    imports, others = _imports(code.globals)
    named = (n for n in gm._graph.nodes if n.op in ("get_attr", "call_module"))
    attributes = sorted({n.target.partition(".")[0] for n in named})
    held = {name: gm.__dict__[name] for name in (*_TABLES, *attributes) if name in gm.__dict__}
    state = gm.state_dict(keep_vars=True)
    pickler = _Pickler(state)
    (folder / "module.pkl").write_bytes(pickler.bytes_of((held, others)))
    torch.save({name: tensor.detach() for name, tensor in state.items()}, folder / "state_dict.pt")
    torch.save(pickler.others, folder / "tensors.pt")
    imports += [v.import_str for k, v in _custom_builtins.items() if _is_used(k, code.src)]
    names = [f"{name} = _others[{name!r}]" for name in others]
    if others:
        names = ["", "_, _others = read_folder(Path(__file__).parent)", *names]
    text = _FILE.format(
        imports="\n".join(sorted({"import torch", *imports})),
        names="\n".join([*names, ""]),
        name=class_name,
        forward="".join(line.rstrip() + "\n" for line in code.src.strip().split("\n")),
    )
    (folder / "module.py").write_text(text)
    (folder / "__init__.py").write_text("from .module import *\n")


# Within the class Python would change names such as __main___Out.
_FILE = '''"""A model that kerf.symbolic_trace wrote down; its parts are in the files beside."""

from pathlib import Path

{imports}
from kerf.symbolic._folder import read_folder
{names}

{forward}

class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.__dict__.update(read_folder(Path(__file__).parent)[0])

    forward = forward
'''


def read_folder(folder):
    """The modules and attributes of a written module, made anew, and what its code refers to."""
    unpickler = _Unpickler(io.BytesIO((folder / "module.pkl").read_bytes()))
    unpickler.state = torch.load(folder / "state_dict.pt")
    unpickler.others = torch.load(folder / "tensors.pt")
    return unpickler.load()


def _is_used(name, source):
    return re.search(rf"\b{name}\b", source) is not None


def _imports(names):
    """Lines that import what the source refers to by name, and what cannot be imported."""
    lines, others = [], {}
    for name, item in names.items():
        if name in _custom_builtins:
            continue
        if isinstance(item, types.ModuleType):
            lines.append(f"import {item.__name__}" + (f" as {name}" * (item.__name__ != name)))
        elif _can_be_imported(item):
            as_name = "" if item.__name__ == name else f" as {name}"
            lines.append(f"from {item.__module__} import {item.__name__}{as_name}")
        else:
            others[name] = item
    return lines, others


def _can_be_imported(item):
    module, name = getattr(item, "__module__", None), getattr(item, "__name__", "")
    if not isinstance(module, str) or module == "__main__" or not name.isidentifier():
        return False
    try:
        return getattr(importlib.import_module(module), name) is item
    except (AttributeError, ImportError):
        return False


class _Pickler(pickle.Pickler):
    """Tensors are written by reference: a name of the state dict, or a number of the others."""

    def __init__(self, state):
        self._file = io.BytesIO()
        super().__init__(self._file)
        self._names = {id(tensor): name for name, tensor in reversed(state.items())}
        self._numbers, self.others, self._alive = {}, [], []

    def bytes_of(self, item):
        try:
            self.dump(item)
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise TypeError(
                f"[symbolic.to_folder] the module holds what cannot be pickled ({error}); expected "
                "modules, functions and attributes of importable classes; define them at the top "
                "level of a file"
            ) from error
        return self._file.getvalue()

    def persistent_id(self, item):
        if not isinstance(item, torch.Tensor):
            return None
        reference = self._names.get(id(item))
        if reference is None:
            reference = self._numbers.setdefault(id(item), len(self.others))
            if reference == len(self.others):
                self._alive.append(item)
                self.others.append(item.detach())
        return reference, isinstance(item, torch.nn.Parameter), item.requires_grad


class _Unpickler(pickle.Unpickler):
    def __init__(self, file):
        super().__init__(file)
        self._made = {}

    def persistent_load(self, reference):
        if reference not in self._made:
            place, is_parameter, requires_grad = reference
            tensor = (self.state if isinstance(place, str) else self.others)[place]
            if is_parameter:
                tensor = torch.nn.Parameter(tensor, requires_grad)
            self._made[reference] = tensor.requires_grad_(requires_grad)
        return self._made[reference]
