# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Names that the splitter takes for its own.

It calls submodules ``submod_<partition>`` and the modules in them by their paths with ``_`` for
``.``: constants of the first name, and two paths that become one, would be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch.fx import Graph, GraphModule, Node

from kerf.fx._modules import Modules

_ATTRIBUTES = ("call_module", "get_attr")


def _clash(nodes: Iterable[Node], taken: set[str]) -> bool:
    paths: dict[str, str] = {}
    for node in nodes:
        if node.op == "get_attr" and node.target.split(".")[0] in taken:
            return True
        flat = node.target.replace(".", "_")
        if node.op == "call_module" and paths.setdefault(flat, node.target) != node.target:
            return True
    return False


def _flat_names(nodes: Iterable[Node], taken: set[str]) -> dict[str, str]:
    """A name without dots for each path, another one for each."""
    used = set(taken)
    names: dict[str, str] = {}
    for node in nodes:
        if node.target not in names:
            plain = name = node.target.replace(".", "_")
            count = 0
            while name in used:
                count += 1
                name = f"{plain}_{count}"
            used.add(name)
            names[node.target] = name
    return names


def with_own_names(
    fx_module: GraphModule, node_to_partition: Mapping[Node, int]
) -> tuple[GraphModule, Mapping[Node, int]]:
    """The module and the map as they are, or a copy with other names that shares all weights."""
    nodes = [node for node in fx_module.graph.nodes if node.op in _ATTRIBUTES]
    taken = {f"submod_{number}" for number in set(node_to_partition.values())}
    if not _clash(nodes, taken):
        return fx_module, node_to_partition
    names = _flat_names(nodes, taken)
    modules = Modules(fx_module)
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in fx_module.graph.nodes:
        made = copies[node] = graph.node_copy(node, copies.__getitem__)
        if node.op in _ATTRIBUTES:
            made.target = names[node.target]
    root = {name: modules.attribute(path) for path, name in names.items()}
    return GraphModule(root, graph), {copies[n]: p for n, p in node_to_partition.items()}
