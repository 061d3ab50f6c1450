// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/train_mode.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "kerf/base/error.h"

namespace kerf {
namespace {

constexpr std::size_t kMostNames = 3;

bool mentions(std::string_view text, std::string_view word) {
  return text.find(word) != std::string_view::npos;
}

// Modules by their class, and nodes that belong to no such module by their operator: an eval trace
// leaves no node of a dropout.
std::vector<std::string> names(const Graph& graph, std::string_view in_class,
                               std::string_view in_op) {
  std::vector<std::string> found;
  for (const Scope& scope : graph.scopes()) {
    if (mentions(scope.class_name, in_class)) found.push_back(scope.path);
  }
  for (const Node& node : graph.nodes()) {
    if (mentions(node.op, in_op) && !mentions(graph.scope(node.scope).class_name, in_class)) {
      found.push_back(node.name);
    }
  }
  return found;
}

std::string some(const std::vector<std::string>& names) {
  if (names.empty()) return "";
  const auto shown = std::span(names).first(std::min(names.size(), kMostNames));
  const std::string more = names.size() > kMostNames
                               ? fmt::format(" and {} more", names.size() - kMostNames)
                               : std::string();
  return fmt::format(" ({}{})", fmt::join(shown, ", "), more);
}

}  // namespace

void check_train_mode(const Graph& graph, std::string_view who) {
  if (graph.data().training) return;
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("[{}] graph '{}' was traced in eval mode, where dropout does nothing{} and "
                  "batch norm takes its running statistics{}; expected a graph of the model "
                  "in train mode; trace model.train()",
                  who, graph.name(), some(names(graph, "Dropout", ".dropout")),
                  some(names(graph, "BatchNorm", "batch_norm"))));
}

}  // namespace kerf
