#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/api.md: public names, signatures from the type stubs, and docstrings.

Run it with a Python that has the package: `python tools/make_api_docs.py > docs/api.md`. A test
holds the page to what this script gives.
"""

import ast
import functools
import inspect
import re
from pathlib import Path

import kerf
from kerf import _core

HEAD = """# API reference

Made by `tools/make_api_docs.py` from the package's own docstrings: change those, not this page.
Times are seconds, sizes are bytes. Wrong arguments raise `TypeError` or `ValueError`, files that
cannot be read `OSError`, what Kerf cannot do `NotImplementedError`, a failure while running
`RuntimeError`; each message says what was found, what was expected and what to do.
"""
GROUPS = {
    "From a model to a graph": ["trace", "Graph", "load_graph"],
    "Costs": ["profile", "estimate", "Profile", "NodeCost", "load_profile"],
    "Devices": ["make_cluster", "Cluster", "Device", "Link", "load_cluster"],
    "Planning": [
        *("plan", "methods", "compare", "Comparison", "ComparedMethod", "replan", "verify"),
        *("Violation", "Plan", "Stage", "Cut", "DeviceUse", "LowerBound", "Infeasible"),
        *("load_plan",),
    ],
    "Running": ["Pipeline", "allow_output_class"],
    "Timelines": ["simulate", "compare_timelines", "Timeline", "Event", "load_timeline"],
    "Errors and warnings": ["ExportError", "InfeasibleError"],  # and what else is public
}
WIDTH = 96


@functools.cache
def definitions(module):
    """Functions and classes of a module by name, as its stub, or else its source, writes them."""
    path = Path(kerf.__file__).parent / f"{module.rpartition('.')[2]}.pyi"
    path = path if path.exists() else path.with_suffix(".py")
    nodes = ast.parse(path.read_text()).body
    return {n.name: n for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}


def text_of(thing):
    """A docstring as Markdown, without the signature that pybind11 puts before it."""
    doc = inspect.getdoc(thing) or ""
    if re.match(r"\w+\(.*\) -> ", doc):
        doc = doc.partition("\n")[2].strip()
    out = []
    for line in doc.splitlines():
        item = re.match(r"([a-z_]+(?:, [a-z_]+)*)  +(\S.*)", line)
        if item:
            names = ", ".join(f"`{name}`" for name in item.group(1).split(", "))
            out.append(f"- {names}: {item.group(2)}")
        elif re.match(r" {6,}\S", line):
            out.append("  " + line.strip())
        else:
            out.append(line)
    return "\n".join(out).replace("``", "`").strip()


def signature(name, node, prefix=""):
    arguments = node.args
    drop = 1 if arguments.args and arguments.args[0].arg == "self" else 0
    parts = []
    plain = arguments.args[drop:]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + arguments.defaults
    parts += [_parameter(a, d) for a, d in zip(plain, defaults, strict=True)]
    if arguments.vararg:
        parts.append("*" + ast.unparse(arguments.vararg))
    elif arguments.kwonlyargs:
        parts.append("*")
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    parts += [_parameter(a, d) for a, d in pairs]
    if arguments.kwarg:
        parts.append("**" + ast.unparse(arguments.kwarg))
    result = ast.unparse(node.returns) if node.returns else "None"
    gives = "" if name == "__init__" or result == "None" else f" -> {result}"
    shown = prefix if name == "__init__" else f"{prefix}{name}"
    line = f"{shown}({', '.join(parts)}){gives}"
    if len(line) > WIDTH:
        line = f"{shown}(\n" + "".join(f"    {part},\n" for part in parts) + f"){gives}"
    return f"```python notest\n{line}\n```"


def _parameter(argument, default):
    text = ast.unparse(argument)
    return text if default is None else f"{text} = {ast.unparse(default)}"


def is_property(node):
    return any(getattr(d, "id", "") == "property" for d in node.decorator_list)


def attribute_row(name, kind, thing):
    what = text_of(thing)
    assert what, f"{name} has no docstring"
    return f"| `{name}` | `{kind}` | {what} |".replace(" | None`", " \\| None`")


def class_text(name, node, cls):
    out = [text_of(cls)]
    rows = []
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and is_property(item):
            member = inspect.getattr_static(cls, item.name)
            rows.append(attribute_row(item.name, ast.unparse(item.returns), member))
        elif isinstance(item, ast.AnnAssign):
            member = inspect.getattr_static(cls, item.target.id, None)
            if isinstance(member, property):
                rows.append(attribute_row(item.target.id, ast.unparse(item.annotation), member))
    if rows:
        out.append("\n".join(["| attribute | type | |", "| --- | --- | --- |", *rows]))
    for item in node.body:
        if not isinstance(item, ast.FunctionDef) or is_property(item):
            continue
        if item.name == "__init__" and not issubclass(cls, BaseException):
            out.insert(0, signature("__init__", item, f"kerf.{name}"))
        elif not item.name.startswith("_"):
            static = any(getattr(d, "id", "") == "staticmethod" for d in item.decorator_list)
            prefix = f"kerf.{name}." if static else f"{name.lower()}."
            what = text_of(getattr(cls, item.name))
            assert what, f"{name}.{item.name} has no docstring"
            out += [signature(item.name, item, prefix), what]
    return "\n\n".join(part for part in out if part)


def entry(name):
    thing = getattr(kerf, name) if name in kerf.__all__ else getattr(_core, name)
    node = definitions(thing.__module__)[name]
    title = f"### kerf.{name}" if name in kerf.__all__ else f"### {name}"
    if isinstance(node, ast.ClassDef):
        return f"{title}\n\n{class_text(name, node, thing)}"
    what = text_of(thing)
    assert what, f"kerf.{name} has no docstring"
    return f"{title}\n\n{signature(name, node, 'kerf.')}\n\n{what}"


def page():
    groups = {title: list(names) for title, names in GROUPS.items()}
    listed = {name for names in groups.values() for name in names}
    groups["Errors and warnings"] += sorted(set(kerf.__all__) - listed - {"__version__"})
    parts = [HEAD]
    for title, names in groups.items():
        parts.append(f"## {title}\n")
        parts += [entry(name) + "\n" for name in names]
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
