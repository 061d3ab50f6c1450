// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/capture/capture.h"

#include <numeric>
#include <utility>

#include "kerf/graph/passes/find_conditions.h"
#include "kerf/graph/passes/find_effects.h"
#include "kerf/graph/passes/remove_identities.h"
#include "kerf/graph/passes/remove_needless_copies.h"
#include "kerf/graph/passes/remove_unused.h"
#include "kerf/graph/renumber.h"
#include "kerf/graph/unique_names.h"

namespace kerf {
namespace {

using CapturePass = void (*)(Captured&);

// In this order: what is written decides which copies are needed, and what is an identity decides
// who reads what.
constexpr CapturePass kPasses[] = {find_effects, find_conditions, remove_identities,
                                   remove_needless_copies, remove_unused};

// Scopes beyond the model's own modules are there for the calls that stay, in their order.
void renumber_scopes(GraphData& data, std::size_t num_modules) {
  std::vector<ScopeId> new_id(data.scopes.size());
  std::vector<Scope> scopes(data.scopes.begin(), data.scopes.begin() + num_modules);
  for (std::size_t s = 0; s < num_modules; ++s) new_id[s] = ScopeId(s);
  for (Node& node : data.nodes) {
    ScopeId& mapped = new_id[node.scope.index()];
    if (!mapped.valid()) {
      mapped = ScopeId(scopes.size());
      scopes.push_back(data.scopes[node.scope.index()]);
    }
    node.scope = mapped;
  }
  data.scopes = std::move(scopes);
}

}  // namespace

std::vector<ValueId> Capture::add_call(Node node, const Scope& scope,
                                       const std::vector<const TensorSpec*>& outputs,
                                       bool refused) {
  if (refused_.empty()) num_modules_ = builder_.data().scopes.size();
  refused_.push_back(refused);
  node.scope = builder_.add_scope(scope.path, scope.class_name);
  return builder_.add_node(std::move(node), outputs);
}

std::optional<std::size_t> Capture::simplify() {
  Captured captured{std::move(builder_.data()), operators_, {}};
  captured.numbers.resize(captured.data.nodes.size());
  std::iota(captured.numbers.begin(), captured.numbers.end(), 0U);
  for (const CapturePass pass : kPasses) pass(captured);
  // Only now: what was left out takes no name, number or scope.
  renumber_values(captured.data);
  make_node_names_unique(captured.data);
  if (!refused_.empty()) renumber_scopes(captured.data, num_modules_);
  builder_.data() = std::move(captured.data);
  for (const std::size_t call : captured.numbers) {
    if (refused_[call]) return call;
  }
  return std::nullopt;
}

Graph Capture::finish() { return builder_.finish(); }

}  // namespace kerf
