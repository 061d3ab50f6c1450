// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/find_conditions.h"

#include <algorithm>

namespace kerf {
namespace {

// The argument at a position of the schema, or under its name.
template <class T>
const T* find_argument(const Node& node, std::size_t position, std::string_view name) {
  for (std::size_t i = 0; i < node.args.size(); ++i) {
    const NamedArgument& given = node.args[i];
    if (given.name.empty() ? i == position : given.name == name) return given.value.find<T>();
  }
  return nullptr;
}

bool takes_statistics_of_its_batch(const Node& node) {
  const std::string_view packet = packet_of(node.op);
  if (packet != "aten.batch_norm" && packet != "aten.native_batch_norm") return false;
  const bool* const training = find_argument<bool>(node, 5, "training");
  return training != nullptr && *training;
}

// Is it one value per channel for one sample, and several for two?
bool needs_two_samples(const Value& input) {
  std::int64_t of_one = 1;
  std::int64_t of_two = 1;
  for (std::size_t d = 0; d < input.shape.size(); ++d) {
    if (d == 1) continue;
    of_one *= input.shape[d].eval(1);
    of_two *= input.shape[d].eval(2);
  }
  return of_one == 1 && of_two > 1;
}

}  // namespace

void find_conditions(Captured& captured) {
  std::vector<Condition>& conditions = captured.data.conditions;
  for (const Node& node : captured.data.nodes) {
    if (!takes_statistics_of_its_batch(node)) continue;
    const auto* const input = find_argument<ValueId>(node, 0, "input");
    if (input == nullptr || !needs_two_samples(captured.data.values[input->index()])) continue;
    const Condition condition{Expr::parse("B"), Relation::not_equal, Expr(1), node.source};
    if (std::find(conditions.begin(), conditions.end(), condition) == conditions.end()) {
      conditions.push_back(condition);
    }
  }
}

}  // namespace kerf
