// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Normalisation. Scales and shifts, and anything else beside x, must be the same for all samples.
#include "kerf/graph/batch_flow/carry.h"
#include "kerf/graph/batch_flow/rules.h"

namespace kerf {
namespace {

BatchState normalised(const Call& call, ValueId x, ValueId result, const std::vector<int>& to) {
  std::vector<Operand> operands;
  for (const ValueId id : call.graph().inputs_of(call.id())) {
    operands.push_back({id, id == x ? to : std::vector<int>()});
  }
  return carry(call, operands, result);
}

// Over the last dimensions, as many as `normalized_shape` has.
BatchState layer_norm_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "input");
  const auto shape = call.sizes(1, "normalized_shape");
  if (!x || !shape || static_cast<int>(shape->size()) > call.rank(*x)) return call.unknown(kNoRule);
  std::vector<int> to = straight(call.rank(*x));
  for (std::size_t i = 0; i < shape->size(); ++i) to[to.size() - 1 - i] = kRunOver;
  return normalised(call, *x, result, to);
}

// Each sample, the first dimension, by itself.
BatchState per_sample_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "input");
  if (!x || call.rank(*x) < 2) return call.unknown(kNoRule);
  std::vector<int> to(static_cast<std::size_t>(call.rank(*x)), kRunOver);
  to[0] = 0;
  return normalised(call, *x, result, to);
}

// With statistics that were kept, each element by itself; with those of the batch, which a model
// in train mode is known to take from each micro-batch, all samples together.
BatchState batch_norm_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "input");
  if (!x || call.rank(*x) < 2) return call.unknown(kNoRule);
  if (call.state(*x).is_lost()) return call.state(*x);
  const bool from_batch = call.flag(5, "training", true) || !call.tensor(3, "running_mean");
  std::vector<int> to = straight(call.rank(*x));
  to[1] = kNotFollowed;
  if (from_batch && !call.graph().data().training && !call.state(*x).is_fixed()) {
    return call.mixed("normalises by statistics of the whole batch");
  }
  return normalised(call, *x, result, to);
}

}  // namespace

void add_norm_rules(BatchRules& rules) {
  rules.add({"layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm"}, layer_norm_rule);
  rules.add({"group_norm", "instance_norm"}, per_sample_rule);
  rules.add({"batch_norm"}, batch_norm_rule);
}

}  // namespace kerf
