# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Generates source in which checkpoint regions are checkpointed functions.

``node.meta["activation_checkpoint"]`` says in which regions a node is: numbers, outermost first. At
each level a run of nodes with one number becomes a function ``checkpoint_0_1`` inside ``forward``;
its parameters are the values it needs, in the order of their first use. A value whose last use is
inside is freed by the caller too.
"""

import keyword
import re

import torch
import torch.fx
import torch.utils.checkpoint
from torch.fx.graph import CodeGen, _format_target

_COUNTER = re.compile(r"^# COUNTER: (\d+)")


class SourceCodeGen(CodeGen):
    """Writes ``getattr(self.parts, "global")`` for parts whose names are words of Python."""

    def _gen_python_code(self, nodes, *args, **kwargs):
        nodes = list(nodes)
        before = self._body_transformer

        def transformed(body):
            return _without_words(self._written(before(body) if before else body, nodes), nodes)

        self._body_transformer = transformed
        try:
            return super()._gen_python_code(nodes, *args, **kwargs)
        finally:
            self._body_transformer = before

    def _written(self, body, nodes):
        return body


class ActivationCheckpointCodeGen(SourceCodeGen):
    """``options``: path of a region -> arguments of ``torch.utils.checkpoint.checkpoint``.

    Regions without options are checkpointed without re-entering autograd, random numbers kept.
    """

    def __init__(self, options=None):
        super().__init__()
        self.options = dict(options or {})

    def _gen_python_code(self, nodes, *args, **kwargs):
        self._globals = {}
        code = super()._gen_python_code(nodes, *args, **kwargs)
        code.globals["_checkpoint"] = torch.utils.checkpoint.checkpoint
        code.globals.update(self._globals)
        return code

    def _written(self, body, nodes):
        return _with_regions(body, nodes, self._call_options)

    def _call_options(self, path):
        options = {"use_reentrant": False, **self.options.get(path, {})}
        texts = []
        for name, value in options.items():
            text = repr(value)
            if not isinstance(value, bool | int | str | type(None)):
                text = f"_{name}_{'_'.join(map(str, path))}"
                self._globals[text] = value
            texts.append(f"{name} = {text}")
        return ", ".join(texts)

    def __deepcopy__(self, memo):
        return type(self)(self.options)

    def __getstate__(self):
        return {"options": self.options}

    def __setstate__(self, state):
        self.__init__(state["options"])


def has_words(nodes):
    """Whether the path of a part that nodes name has a word of Python in it."""
    return bool(_paths_with_words(nodes))


def _paths_with_words(nodes):
    paths = {n.target for n in nodes if n.op in ("call_module", "get_attr")}
    return sorted(p for p in paths if any(map(keyword.iskeyword, p.split("."))))


def _without_words(body, nodes):
    for path in _paths_with_words(nodes):
        wrong = re.compile(re.escape(_format_target("self", path)) + r"(?!\w)")
        right = "self"
        for part in path.split("."):
            plain = part.isidentifier() and not keyword.iskeyword(part)
            right = f"{right}.{part}" if plain else f'getattr({right}, "{part}")'
        body = [wrong.sub(lambda _, right=right: right, line) for line in body]
    return body


def _with_regions(body, nodes, call_options):
    """``body`` is FX's list of lines, in which counters say where each node begins."""
    head, chunks = _chunks(body, len(nodes))
    used = {}

    def write(numbers, level, path):
        lines = []
        for number, run in _runs(numbers, nodes, level):
            if number is None:
                for i in run:
                    lines += chunks[i]
                continue
            inner = (*path, number)
            lines += _region(write, run, level, inner, nodes, call_options(inner), used)
        return lines

    return head + write(list(range(len(nodes))), 0, ())


def _chunks(body, count):
    head, chunks, current = [], [[] for _ in range(count)], None
    for line in body:
        found = _COUNTER.match(line)
        if found:
            current = chunks[int(found[1])]
        (head if current is None else current).append(line)
    return head, chunks


def _runs(numbers, nodes, level):
    """Neighbours of one region together; (None, ...) for those in none."""
    runs = []
    for i in numbers:
        label = nodes[i].meta.get("activation_checkpoint") or ()
        number = label[level] if len(label) > level and _can_move(nodes[i]) else None
        if runs and runs[-1][0] == number:
            runs[-1][1].append(i)
        else:
            runs.append((number, [i]))
    return runs


def _can_move(node):
    return node.op not in ("placeholder", "output")


def _region(write, run, level, path, nodes, options, used):
    inside = {nodes[i] for i in run}
    inputs, outputs = {}, []
    for i in run:
        for given in nodes[i].all_input_nodes:
            if given not in inside:
                inputs[given] = None
        if any(user not in inside for user in nodes[i].users):
            outputs.append(nodes[i])
    name = "checkpoint_" + "_".join(map(str, path))
    used[name] = used.get(name, 0) + 1
    if used[name] > 1:
        name += f"_part_{used[name]}"
    last = run[-1]
    position = {node: i for i, node in enumerate(nodes)}
    freed = [n for n in inputs if all(position[u] <= last for u in n.users)]
    results = ", ".join(n.name for n in outputs)
    body = write(run, level + 1, path)
    returned = f"return ({results},)" if len(outputs) > 1 else f"return {results}".strip()
    arguments = ", ".join(n.name for n in inputs)
    lines = [f"def {name}({arguments}):\n"]
    lines += _indented(body) + [f"    {returned}\n"]
    call = f"_checkpoint({', '.join(filter(None, (name, arguments, options)))})"
    lines.append(f"{results} = {call}\n" if outputs else f"{call}\n")
    if freed:
        lines.append("".join(f"{n.name} = " for n in freed) + "None\n")
    return lines


def _indented(lines):
    """Counters stay where they are: FX looks for them at the beginning of a line."""
    made = "".join(lines).splitlines(keepends=True)
    return [line if _COUNTER.match(line) or not line.strip() else "    " + line for line in made]
