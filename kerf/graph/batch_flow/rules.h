// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What each operator does to the batch of its operands: a table by operator name, filled by one
// file a family. A rule that is missing costs a trial; a rule that is wrong costs a wrong answer.
// So a rule says what it knows and gives "unknown" for all else.
#pragma once

#include <initializer_list>
#include <string_view>
#include <unordered_map>

#include "kerf/graph/batch_flow/call.h"

namespace kerf {

// What a rule says of arguments that it was not made for.
inline constexpr std::string_view kNoRule = "has arguments without a rule";

// The state of `result`, which is output number `position` of the call.
using BatchRule = BatchState (*)(const Call& call, ValueId result, std::size_t position);

enum class BatchNumbers : bool {
  mix,    // B among the plain arguments is a number that is computed with: x * B
  sizes,  // the rule reads it as a size: view(x, [B, -1])
};

struct BatchRuleEntry {
  BatchRule apply;
  BatchNumbers numbers;
};

class BatchRules {
 public:
  static const BatchRules& all();
  // `op` as nodes have it, "aten.add_.Tensor"; null when there is no rule.
  const BatchRuleEntry* find(std::string_view op) const;

  void add(std::initializer_list<std::string_view> names, BatchRule rule,
           BatchNumbers numbers = BatchNumbers::mix);

 private:
  std::unordered_map<std::string_view, BatchRuleEntry> by_name_;
};

void add_pointwise_rules(BatchRules& rules);
void add_making_rules(BatchRules& rules);
void add_reduction_rules(BatchRules& rules);
void add_view_rules(BatchRules& rules);
void add_repeat_rules(BatchRules& rules);
void add_part_rules(BatchRules& rules);
void add_index_rules(BatchRules& rules);
void add_product_rules(BatchRules& rules);
void add_norm_rules(BatchRules& rules);
void add_window_rules(BatchRules& rules);
void add_recurrent_rules(BatchRules& rules);
void add_loss_rules(BatchRules& rules);

// Shared by families: all tensors among the plain arguments, aligned at the last dimension.
BatchState pointwise_rule(const Call& call, ValueId result, std::size_t position);

}  // namespace kerf
