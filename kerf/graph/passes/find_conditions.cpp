// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/find_conditions.h"

#include <algorithm>

#include "kerf/graph/arguments.h"

namespace kerf {
namespace {

bool takes_statistics_of_its_batch(const Node& node) {
  const std::string_view packet = packet_of(node.op);
  if (packet != "aten.batch_norm" && packet != "aten.native_batch_norm") return false;
  const Argument* const training = find_argument(node, 5, "training");
  const bool* const flag = training != nullptr ? training->find<bool>() : nullptr;
  return flag != nullptr && *flag;
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
    const ValueId* const input = find_tensor(node, 0, "input");
    if (input == nullptr || !needs_two_samples(captured.data.values[input->index()])) continue;
    const Condition condition{Expr::parse("B"), Relation::not_equal, Expr(1), node.source};
    if (std::find(conditions.begin(), conditions.end(), condition) == conditions.end()) {
      conditions.push_back(condition);
    }
  }
}

}  // namespace kerf
