// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/batch_flow/batch_state.h"

#include "kerf/base/error.h"

namespace kerf {

std::optional<std::int64_t> batch_factor(const Expr& size) {
  if (size.is_constant()) return std::nullopt;
  try {
    const std::int64_t at_one = size.eval(1);
    if (at_one > 0 && size == Expr::linear(0, at_one)) return at_one;
  } catch (const Error&) {
    // No number at a batch of one, so no multiple of B.
  }
  return std::nullopt;
}

std::optional<BatchState> state_by_shape(const Value& value, BatchRows rows) {
  BatchState out;
  for (std::size_t d = 0; d < value.shape.size(); ++d) {
    if (value.shape[d].is_constant()) continue;
    const auto factor = batch_factor(value.shape[d]);
    if (!factor || out.is_batched()) return std::nullopt;
    out = BatchState::batched(static_cast<int>(d), 1, *factor, rows);
  }
  return out;
}

}  // namespace kerf
