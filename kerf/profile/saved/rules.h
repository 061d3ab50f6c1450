// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What each operator keeps for its backward: a table by operator name, filled by one file a family.
// The formulas are those of tools/autograd/derivatives.yaml of PyTorch; where an operator is made
// of others, what those keep. Private to profile/saved.
#pragma once

#include <initializer_list>
#include <string_view>
#include <unordered_map>

#include "kerf/profile/saved/saved_call.h"

namespace kerf {

using SavedRule = void (*)(SavedCall& call);

class SavedRules {
 public:
  static const SavedRules& all();
  // `op` as nodes have it, "aten.add_.Tensor"; null when there is no rule.
  SavedRule find(std::string_view op) const;
  // Names as operator_name() gives them: "add".
  void add(std::initializer_list<std::string_view> names, SavedRule rule);

 private:
  std::unordered_map<std::string_view, SavedRule> by_name_;
};

void add_saved_view_rules(SavedRules& rules);
void add_saved_pointwise_rules(SavedRules& rules);
void add_saved_product_rules(SavedRules& rules);
void add_saved_einsum_rules(SavedRules& rules);
void add_saved_reduction_rules(SavedRules& rules);
void add_saved_norm_rules(SavedRules& rules);
void add_saved_window_rules(SavedRules& rules);
void add_saved_index_rules(SavedRules& rules);
void add_saved_recurrent_rules(SavedRules& rules);
void add_saved_linalg_rules(SavedRules& rules);
void add_saved_attention_rules(SavedRules& rules);
void add_saved_function_rules(SavedRules& rules);

}  // namespace kerf
