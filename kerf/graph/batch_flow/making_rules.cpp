// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Operators that make a tensor from sizes and plain numbers.
#include "kerf/graph/batch_flow/carry.h"
#include "kerf/graph/batch_flow/rules.h"

namespace kerf {
namespace {

// All elements are one number, or each is drawn for itself: only the shape holds the batch.
BatchState by_shape(const Call& call, ValueId result) {
  const BatchRows rows = call.node().random ? BatchRows::own : BatchRows::same;
  const auto state = state_by_shape(call.value(result), rows);
  return state ? *state : call.unknown("makes a tensor that is not a batch of samples");
}

// zeros([B, 4]), new_zeros(x, [B, 4]), zeros_like(x): x gives a type and a size.
BatchState filling_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  return by_shape(call, result);
}

// The number to fill with follows `position`, the place of the sizes.
BatchState filled_with(const Call& call, ValueId result, std::size_t position) {
  if (const auto number = call.size(position, "fill_value"); number && !number->is_constant()) {
    return call.mixed("makes a number from how many samples there are");
  }
  if (const auto number = call.tensor(position, "fill_value")) {
    if (call.state(*number).is_lost()) return call.state(*number);
    if (!call.state(*number).is_fixed()) return call.unknown("fills with values of samples");
  }
  return by_shape(call, result);
}

BatchState full_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  return filled_with(call, result, 1);
}

BatchState new_full_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  return filled_with(call, result, 2);
}

// arange(B) numbers the samples; a range that does not depend on B is the same for all.
BatchState arange_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  std::vector<Expr> numbers;
  for (const NamedArgument& argument : call.node().args) {
    const auto* id = argument.value.find<ValueId>();
    if (id != nullptr && !call.state(*id).is_fixed()) {
      return call.unknown("makes a range from values of samples");
    }
    const auto* number = argument.value.find<Expr>();
    if (number != nullptr && argument.name.empty()) numbers.push_back(*number);
  }
  if (!call.has_batch_number()) return held_to_shape(call, result, {});
  const std::string_view overload = overload_name(call.node().op);
  const bool from_zero = overload == "default" || (numbers.size() > 1 && numbers[0] == Expr(0));
  const bool by_one = overload != "start_step" || (numbers.size() == 3 && numbers[2] == Expr(1)) ||
                      numbers.size() == 2;
  const std::size_t end = overload == "default" ? 0 : 1;
  if (!from_zero || !by_one || numbers.size() <= end || !(numbers[end] == Expr::batch())) {
    return call.unknown("counts across the samples");
  }
  return held_to_shape(call, result, BatchState::batched(0, 1, 1, BatchRows::numbers));
}

BatchState scalar_tensor_rule(const Call& call, ValueId result, std::size_t position) {
  if (call.has_batch_number()) return call.mixed("makes a number from how many samples there are");
  return pointwise_rule(call, result, position);
}

// Ranges and patterns without B among their arguments; the driver refuses those with B.
BatchState plain_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  for (const ValueId id : call.graph().inputs_of(call.id())) {
    if (call.state(id).is_lost()) return call.state(id);
    if (!call.state(id).is_fixed()) return call.unknown("has arguments without a rule");
  }
  return held_to_shape(call, result, {});
}

}  // namespace

void add_making_rules(BatchRules& rules) {
  rules.add({"zeros", "ones", "empty", "rand", "randn", "new_zeros", "new_ones", "new_empty",
             "zeros_like", "ones_like", "empty_like", "rand_like", "randn_like", "empty_strided",
             "new_empty_strided", "empty_permuted"},
            filling_rule, BatchNumbers::sizes);
  rules.add({"full", "full_like"}, full_rule, BatchNumbers::sizes);
  rules.add({"new_full"}, new_full_rule, BatchNumbers::sizes);
  rules.add({"arange"}, arange_rule, BatchNumbers::sizes);
  rules.add({"scalar_tensor"}, scalar_tensor_rule, BatchNumbers::sizes);
  rules.add({"eye", "linspace", "logspace", "tril_indices", "triu_indices", "hann_window",
             "hamming_window", "randperm"},
            plain_rule);
}

}  // namespace kerf
