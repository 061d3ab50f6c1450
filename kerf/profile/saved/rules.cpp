// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/saved/rules.h"

#include "kerf/base/error.h"
#include "kerf/graph/batch_flow/call.h"
#include "kerf/graph/operator.h"

namespace kerf {

const SavedRules& SavedRules::all() {
  static const SavedRules kRules = [] {
    SavedRules rules;
    add_saved_view_rules(rules);
    add_saved_pointwise_rules(rules);
    add_saved_product_rules(rules);
    add_saved_einsum_rules(rules);
    add_saved_reduction_rules(rules);
    add_saved_norm_rules(rules);
    add_saved_window_rules(rules);
    add_saved_index_rules(rules);
    add_saved_recurrent_rules(rules);
    add_saved_linalg_rules(rules);
    add_saved_attention_rules(rules);
    add_saved_function_rules(rules);
    return rules;
  }();
  return kRules;
}

SavedRule SavedRules::find(std::string_view op) const {
  if (op.starts_with(kPythonFunction)) op = kPythonFunction;
  const auto found = by_name_.find(operator_name(op));
  return found == by_name_.end() ? nullptr : found->second;
}

void SavedRules::add(std::initializer_list<std::string_view> names, SavedRule rule) {
  for (const std::string_view name : names) {
    const bool added = by_name_.emplace(name, rule).second;
    KERF_CHECK(added, "two rules for one operator: " + std::string(name));
  }
}

}  // namespace kerf
