// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/condition.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "kerf/base/error.h"

namespace kerf {
namespace {

constexpr std::string_view kRelations[] = {"==", "!=", "<", "<="};  // in the order of Relation

}  // namespace

std::string_view to_string(Relation relation) {
  return kRelations[static_cast<std::size_t>(relation)];
}

std::optional<Relation> find_relation(std::string_view text) {
  const auto* found = std::find(std::begin(kRelations), std::end(kRelations), text);
  if (found == std::end(kRelations)) return std::nullopt;
  return static_cast<Relation>(found - std::begin(kRelations));
}

bool Condition::holds(std::int64_t batch) const {
  try {
    const std::int64_t a = left.eval(batch);
    const std::int64_t b = right.eval(batch);
    switch (relation) {
      case Relation::equal: return a == b;
      case Relation::not_equal: return a != b;
      case Relation::less: return a < b;
      case Relation::less_equal: return a <= b;
    }
  } catch (const Error&) {
    // The model would have failed, or gone a way that nobody traced.
  }
  return false;
}

std::string Condition::str() const {
  return fmt::format("{} {} {}", left.str(), to_string(relation), right.str());
}

const Condition* find_violated(std::span<const Condition> conditions, std::int64_t batch) {
  const auto found = std::find_if_not(conditions.begin(), conditions.end(),
                                      [&](const Condition& each) { return each.holds(batch); });
  return found == conditions.end() ? nullptr : &*found;
}

std::string describe_violation(std::span<const Condition> conditions, std::int64_t batch,
                               std::string_view what) {
  const Condition* violated = find_violated(conditions, batch);
  if (violated == nullptr) return "";
  return fmt::format("a {} of {}, but {} took its path because {} held for the example", what,
                     batch, violated->source.empty() ? "the model" : violated->source,
                     violated->str());
}

void check_conditions(std::span<const Condition> conditions, std::int64_t batch, int n_microbatches,
                      std::string_view where) {
  if (conditions.empty() || batch < 1) return;
  const std::int64_t parts = std::clamp<std::int64_t>(n_microbatches, 1, batch);
  std::string found = describe_violation(conditions, batch);
  const std::int64_t sizes[] = {(batch + parts - 1) / parts, batch / parts};
  for (const std::int64_t size : sizes) {
    if (found.empty()) found = describe_violation(conditions, size, "micro-batch");
  }
  if (found.empty()) return;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("{} {}; expected sizes for which it holds; give another batch or number "
                          "of micro-batches, or trace the model with this one",
                          where, found));
}

}  // namespace kerf
