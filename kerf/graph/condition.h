// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kerf/graph/expr.h"

namespace kerf {

enum class Relation : std::uint8_t { equal, not_equal, less, less_equal };

std::string_view to_string(Relation relation);  // "==", "!=", "<", "<="
std::optional<Relation> find_relation(std::string_view text);

// Something the trace found about B: the model's Python code went one way because this held. For a
// batch or a micro-batch for which it does not, the graph is not what the model would compute.
//
//   Condition{Expr::parse("B % 2"), Relation::equal, 0, "model.py:12"}.holds(3) == false
struct Condition {
  Expr left;
  Relation relation = Relation::equal;
  Expr right;
  std::string source;  // the model's line that asked; may be empty

  // A size that cannot be computed for this batch (a division by zero, an overflow) does not hold.
  bool holds(std::int64_t batch) const;
  std::string str() const;  // "B%2 == 0"
  friend bool operator==(const Condition&, const Condition&) = default;
};

// The first condition that does not hold for this batch; null when all hold.
const Condition* find_violated(std::span<const Condition> conditions, std::int64_t batch);

// The same in words, without a full stop: "a batch of 3, where model.py:12 went on because
// B%2 == 0". Empty when all hold.
std::string describe_violation(std::span<const Condition> conditions, std::int64_t batch,
                               std::string_view what = "batch");

// Throws Error(invalid_argument), which begins with `where`, when a condition does not hold for the
// batch as a whole or for one of its n parts, which differ by one sample at most.
void check_conditions(std::span<const Condition> conditions, std::int64_t batch, int n_microbatches,
                      std::string_view where);

}  // namespace kerf
