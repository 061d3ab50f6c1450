// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "kerf/base/id.h"
#include "kerf/graph/dtype.h"
#include "kerf/graph/expr.h"

namespace kerf {

// A device written as an argument. The empty name is "the device of the stage that runs the node":
// export bakes the traced device in, capture takes it out again.
struct DeviceName {
  std::string name;
  friend bool operator==(const DeviceName&, const DeviceName&) = default;
};

// Named constants of the framework: {"layout", "strided"}, {"memory_format", "channels_last"}.
struct EnumName {
  std::string type;
  std::string name;
  friend bool operator==(const EnumName&, const EnumName&) = default;
};

// An EnumName in one word: arguments are many, and few of them are names of constants.
class BoxedEnumName {
 public:
  BoxedEnumName(EnumName name)  // NOLINT: holds what it is given
      : name_(std::make_shared<const EnumName>(std::move(name))) {}
  const EnumName& operator*() const { return *name_; }
  friend bool operator==(const BoxedEnumName& a, const BoxedEnumName& b) {
    return *a.name_ == *b.name_;
  }

 private:
  std::shared_ptr<const EnumName> name_;
};

// Plain data: enough to execute a node and to count what it costs.
struct Argument {
  using List = std::vector<Argument>;
  using Data = std::variant<std::monostate, bool, Expr, double, std::complex<double>, std::string,
                            DType, DeviceName, BoxedEnumName, ValueId, List>;
  Data data;

  bool is_none() const { return std::holds_alternative<std::monostate>(data); }
  template <class T>
  const T* find() const {
    if constexpr (std::is_same_v<T, EnumName>) {
      const auto* boxed = std::get_if<BoxedEnumName>(&data);
      return boxed == nullptr ? nullptr : &**boxed;
    } else {
      return std::get_if<T>(&data);
    }
  }
  // As texts compare: nan equals nan, and 0.0 is not -0.0.
  friend bool operator==(const Argument& a, const Argument& b) {
    if (const auto* x = a.find<double>()) {
      const auto* y = b.find<double>();
      return y != nullptr && same_number(*x, *y);
    }
    if (const auto* x = a.find<std::complex<double>>()) {
      const auto* y = b.find<std::complex<double>>();
      return y != nullptr && same_number(x->real(), y->real()) && same_number(x->imag(), y->imag());
    }
    return a.data == b.data;
  }

 private:
  static bool same_number(double x, double y) {
    return std::isnan(x) || std::isnan(y)
               ? std::isnan(x) && std::isnan(y)
               : std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
  }
};

// Positional when `name` is empty; positional ones come first.
struct NamedArgument {
  std::string name;
  Argument value;
  friend bool operator==(const NamedArgument&, const NamedArgument&) = default;
};

// Calls visit(ValueId) for every value mentioned, in order, repeats included.
template <class Visit>
void for_each_value(const Argument& argument, Visit&& visit) {
  if (const auto* value = argument.find<ValueId>()) visit(*value);
  if (const auto* list = argument.find<Argument::List>()) {
    for (const Argument& element : *list) for_each_value(element, visit);
  }
}

}  // namespace kerf
