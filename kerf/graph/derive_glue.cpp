// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Which nodes must stay in one stage because they see each other's writes.
//
// A value that crosses a cut arrives as it was when its stage ended, and a stage that writes memory
// it received writes a clone of its own. So a write is seen by those who read its result, or a view
// of its result, wherever they are; and by nobody else outside of its stage. A node that reads an
// older name of the memory after the write must therefore be where the write is:
//
//   %s in %base = slice(%base)
//   %c in %base = copy_(&%s, %x)     the write
//   %y = relu(%c)                    reads its result: may be elsewhere
//   %z = relu(%base)                 reads an older name: glued to copy_
//
// What is made in that stage after the write, from whatever name, carries its content; so a value
// misses only writes that come after the node that made it, and each access costs a look at its own
// inputs. Nearly linear. tests/graph/staged_semantics_test.cpp tries the argument on random graphs.
//
// May-alias operators are the hard part: whether two names are of one memory is known only where
// the operator runs. Once a write is missed in such a memory
//   - all its may-alias operators are where the write is: a stage given two names could not tell;
//   - whatever is made from a name that missed a write is used there only: two names of one
//   recorded
//     storage may differ in content, and a stage that clones the storage would mix them.
#include <algorithm>
#include <numeric>

#include "kerf/base/strong_components.h"
#include "kerf/graph/derive_impl.h"

namespace kerf {

void GraphDerivation::glue(NodeId a, NodeId b) {
  unite(group_, static_cast<std::uint32_t>(a.index()), static_cast<std::uint32_t>(b.index()));
}

bool GraphDerivation::in_class(ValueId id, std::uint32_t memory) {
  const StorageId storage = content_.data.values[id.index()].storage;
  return storage.valid() && alias_class(storage) == memory;
}

void GraphDerivation::derive_glue() {
  const GraphData& data = content_.data;
  group_.resize(data.nodes.size());
  std::iota(group_.begin(), group_.end(), 0U);

  // Memory that outlives the run is never cloned: whoever touches it does so in one place.
  std::vector<bool> outside(data.storages.size(), false);
  for (const Value& value : data.values) {
    if (value.origin != Origin::node && value.storage.valid()) {
      outside[alias_class(value.storage)] = true;
    }
  }
  std::vector<std::vector<ValueId>> results(
      data.storages.size());  // what the caller reads, by class
  for (const GraphOutput& output : data.outputs) {
    for_each_value(output.leaf, [&](ValueId id) {
      const Value& value = data.values[id.index()];
      if (value.origin == Origin::node && value.storage.valid()) {
        results[alias_class(value.storage)].push_back(id);
      }
    });
  }

  std::vector<bool> used_here_only(data.values.size(), false);
  const auto accesses = accesses_by_class();
  for (std::size_t memory = 0; memory < accesses.size(); ++memory) {
    if (accesses[memory].empty()) continue;
    if (outside[memory]) {
      for (const Access& access : accesses[memory])
        glue(accesses[memory].front().node, access.node);
    } else {
      glue_memory(static_cast<std::uint32_t>(memory), accesses[memory], results[memory],
                  used_here_only);
    }
  }
  close_groups();
  collect_groups();
}

void GraphDerivation::glue_memory(std::uint32_t memory, const std::vector<Access>& accesses,
                                  const std::vector<ValueId>& results,
                                  std::vector<bool>& used_here_only) {
  const GraphData& data = content_.data;
  std::vector<NodeId> writers;
  std::vector<NodeId> uncertain;  // may or may not make another name of the memory: known when run
  for (const auto& [node, writes] : accesses) {
    const auto& may_alias = data.nodes[node.index()].may_alias;
    if (writes) writers.push_back(node);
    if (std::any_of(may_alias.begin(), may_alias.end(),
                    [&](ValueId id) { return in_class(id, memory); })) {
      uncertain.push_back(node);
    }
  }
  // Writers from..to-1 are glued to each other; run_end[i] leads to the last of those joined with
  // i.
  std::vector<std::uint32_t> run_end(writers.size());
  std::iota(run_end.begin(), run_end.end(), 0U);
  const auto join_writers = [&](std::size_t from, std::size_t to) {
    auto i = find_root(run_end, static_cast<std::uint32_t>(from));
    for (; i + 1 < to; i = find_root(run_end, i)) {
      glue(writers[i], writers[i + 1]);
      run_end[i] = i + 1;
    }
  };
  bool any = false;
  // Glues a reader of `id` to those of the first `until` writes that it misses, if any.
  const auto join = [&](ValueId id, NodeId reader, std::size_t until) {
    const NodeId producer = data.values[id.index()].producer;
    const auto after = std::upper_bound(writers.begin(), writers.end(), producer);
    const auto from = static_cast<std::size_t>(after - writers.begin());
    if (from < until) join_writers(from, until), glue(writers[from], reader);
    if (used_here_only[id.index()]) glue(producer, reader);
    const bool missed = from < until || used_here_only[id.index()];
    if (missed && !uncertain.empty()) glue(uncertain.front(), reader);
    any = any || missed;
    return missed;
  };

  for (const auto& [node, writes] : accesses) {
    const auto before = std::lower_bound(writers.begin(), writers.end(), node);
    const auto until = static_cast<std::size_t>(before - writers.begin());
    bool missed = false;
    for (const ValueId input : content_.inputs.row(node.index())) {
      if (in_class(input, memory)) missed = join(input, node, until) || missed;
    }
    if (!missed || uncertain.empty()) continue;
    for (const ValueId output : data.nodes[node.index()].outputs) {
      if (output.valid() && in_class(output, memory)) used_here_only[output.index()] = true;
    }
  }
  // A result is read last of all, by the caller, from the stage where it was made.
  for (const ValueId id : results) join(id, data.values[id.index()].producer, writers.size());
  if (any) {
    for (const NodeId node : uncertain) glue(uncertain.front(), node);
  }
}

Graph GraphDerivation::add_glue(const Graph& graph,
                                const std::vector<std::vector<NodeId>>& groups) {
  GraphDerivation derivation(graph);
  derivation.group_.resize(graph.num_nodes());
  std::iota(derivation.group_.begin(), derivation.group_.end(), 0U);
  for (const auto* all : {&graph.glued(), &groups}) {
    for (const std::vector<NodeId>& group : *all) {
      for (const NodeId node : group) derivation.glue(group.front(), node);
    }
  }
  derivation.close_groups();
  derivation.content_.glued.clear();
  derivation.collect_groups();
  return Graph(std::make_shared<const Content>(std::move(derivation.content_)));
}

// Groups on a common cycle of the contracted graph cannot be in different stages either.
void GraphDerivation::close_groups() {
  const std::size_t count = group_.size();
  // Nothing glued: the graph itself, which has no cycles.
  if (std::all_of(group_.begin(), group_.end(),
                  [n = 0U](std::uint32_t group) mutable { return group == n++; })) {
    return;
  }
  Pairs edges;
  for (std::uint32_t n = 0; n < count; ++n) {
    for (const NodeId to : content_.successors.row(n)) {
      edges.emplace_back(find_root(group_, n),
                         find_root(group_, static_cast<std::uint32_t>(to.index())));
    }
  }
  const auto component = strong_components(to_rows(static_cast<std::uint32_t>(count), edges));
  for (std::uint32_t n = 0; n < count; ++n) unite(group_, n, component[find_root(group_, n)]);
}

void GraphDerivation::collect_groups() {
  // A group's root is its first node: unite() sees to that.
  std::vector<std::uint32_t> position(group_.size());
  for (std::uint32_t n = 0; n < group_.size(); ++n) {
    const std::uint32_t root = find_root(group_, n);
    if (root == n) continue;
    if (position[root] == 0) {
      content_.glued.push_back({NodeId(root)});
      position[root] = static_cast<std::uint32_t>(content_.glued.size());
    }
    content_.glued[position[root] - 1].push_back(NodeId(n));
  }
  std::sort(content_.glued.begin(), content_.glued.end());
}

}  // namespace kerf
