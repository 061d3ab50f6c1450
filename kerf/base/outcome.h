// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <variant>

#include "kerf/base/error.h"

namespace kerf {

// An answer, or the value that says why there is none. Not for misuse: that throws.
//
//   Outcome<Plan, Infeasible> outcome = partition::chain(problem);
//   if (outcome) use(*outcome); else explain(outcome.reason());
template <class Value, class Reason>
class Outcome {
 public:
  Outcome(Value value) : data_(std::in_place_index<0>, std::move(value)) {}     // NOLINT
  Outcome(Reason reason) : data_(std::in_place_index<1>, std::move(reason)) {}  // NOLINT

  explicit operator bool() const { return data_.index() == 0; }
  const Value& operator*() const { return value(); }
  const Value* operator->() const { return &value(); }
  Value& operator*() { return const_cast<Value&>(std::as_const(*this).value()); }
  Value* operator->() { return &**this; }

  const Value& value() const {
    KERF_CHECK(data_.index() == 0, "the outcome holds a reason, not a value");
    return std::get<0>(data_);
  }
  const Reason& reason() const {
    KERF_CHECK(data_.index() == 1, "the outcome holds a value, not a reason");
    return std::get<1>(data_);
  }

 private:
  std::variant<Value, Reason> data_;
};

}  // namespace kerf
