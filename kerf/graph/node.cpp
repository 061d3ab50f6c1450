// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/node.h"

#include <algorithm>
#include <array>
#include <utility>

namespace kerf {
namespace {

constexpr std::array<std::pair<WeightKind, std::string_view>, 4> kWeightKinds{{
    {WeightKind::parameter, "parameter"},
    {WeightKind::buffer, "buffer"},
    {WeightKind::non_persistent_buffer, "non_persistent_buffer"},
    {WeightKind::constant, "constant"},
}};

}  // namespace

Bytes Value::bytes(std::int64_t batch) const {
  if (scalar) return {};
  std::int64_t count = element_size(dtype);
  for (const Expr& size : shape) {
    const std::int64_t length = size.eval(batch);
    std::int64_t more = 0;
    // Expr refuses what overflows, in the words of the graph room.
    if (__builtin_mul_overflow(count, length, &more)) more = (Expr(count) * length).constant();
    count = more;
  }
  return {count};
}

bool Value::depends_on_batch() const {
  return std::any_of(shape.begin(), shape.end(), [](const Expr& e) { return !e.is_constant(); });
}

std::string_view to_string(WeightKind kind) {
  return kWeightKinds[static_cast<std::size_t>(kind)].second;
}

std::optional<WeightKind> find_weight_kind(std::string_view name) {
  for (const auto& [kind, text] : kWeightKinds) {
    if (text == name) return kind;
  }
  return std::nullopt;
}

}  // namespace kerf
