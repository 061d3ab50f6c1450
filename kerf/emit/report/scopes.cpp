// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/report/scopes.h"

#include <string_view>
#include <unordered_map>

namespace kerf {
namespace {

// Calls visit(prefix) for "a", "a.b" and "a.b.c" of the path "a.b.c".
template <class Visit>
void for_each_prefix(std::string_view path, Visit&& visit) {
  for (std::size_t dot = path.find('.'); dot != std::string_view::npos;
       dot = path.find('.', dot + 1)) {
    visit(path.substr(0, dot));
  }
  if (!path.empty()) visit(path);
}

class ScopeNamer {
 public:
  ScopeNamer(const Plan& plan, const Graph& graph) : graph_(graph) {
    const std::vector<StageId> stages = plan.stage_of_nodes();
    for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
      for_each_prefix(path_of(NodeId(n)), [&](std::string_view prefix) {
        const auto [entry, first] = home_.emplace(prefix, stages[n]);
        if (!first && entry->second != stages[n]) entry->second = StageId{};
      });
    }
  }

  const std::string& path_of(NodeId node) const {
    return graph_.scope(graph_.node(node).scope).path;
  }

  // The outermost module of the node that lies in one stage, or else its own.
  std::string name(NodeId node) const {
    std::string_view found;
    for_each_prefix(path_of(node), [&](std::string_view prefix) {
      if (found.empty() && home_.at(prefix).valid()) found = prefix;
    });
    return std::string(found.empty() ? path_of(node) : found);
  }

 private:
  const Graph& graph_;
  std::unordered_map<std::string_view, StageId> home_;  // invalid: spread over several stages
};

}  // namespace

std::vector<std::string> scope_ranges(const Plan& plan, const Graph& graph) {
  check_plan_matches(plan, graph);
  const ScopeNamer namer(plan, graph);
  std::vector<std::string> out;
  for (const Stage& stage : plan.stages) {
    NodeId first;
    NodeId last;
    for (const NodeId node : stage.nodes) {
      if (namer.path_of(node).empty()) continue;
      if (!first.valid()) first = node;
      last = node;
    }
    if (!first.valid()) {
      out.emplace_back();
      continue;
    }
    const std::string from = namer.name(first);
    const std::string to = namer.name(last);
    out.push_back(from == to ? from : from + " .. " + to);
  }
  return out;
}

}  // namespace kerf
