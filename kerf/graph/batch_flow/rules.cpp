// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/batch_flow/rules.h"

#include "kerf/base/error.h"

namespace kerf {

const BatchRules& BatchRules::all() {
  static const BatchRules kRules = [] {
    BatchRules rules;
    add_pointwise_rules(rules);
    add_making_rules(rules);
    add_reduction_rules(rules);
    add_view_rules(rules);
    add_repeat_rules(rules);
    add_part_rules(rules);
    add_index_rules(rules);
    add_product_rules(rules);
    add_norm_rules(rules);
    add_window_rules(rules);
    add_recurrent_rules(rules);
    add_loss_rules(rules);
    return rules;
  }();
  return kRules;
}

const BatchRuleEntry* BatchRules::find(std::string_view op) const {
  // Variants that write into an argument called `out` have arguments of their own.
  if (!op.starts_with("aten.") || overload_name(op).ends_with("out")) return nullptr;
  const auto found = by_name_.find(operator_name(op));
  return found == by_name_.end() ? nullptr : &found->second;
}

void BatchRules::add(std::initializer_list<std::string_view> names, BatchRule rule,
                     BatchNumbers numbers) {
  for (const std::string_view name : names) {
    const bool added = by_name_.emplace(name, BatchRuleEntry{rule, numbers}).second;
    KERF_CHECK(added, "two rules for one operator: " + std::string(name));
  }
}

}  // namespace kerf
