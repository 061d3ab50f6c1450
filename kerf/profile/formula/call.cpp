// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/formula/call.h"

namespace kerf::formula {

double product(const std::vector<double>& sizes) {
  double result = 1;
  for (const double size : sizes) result *= size;
  return result;
}

std::vector<ValueId> Call::tensors(std::size_t position, std::string_view name) const {
  std::vector<ValueId> found;
  if (const Argument* given = argument(position, name)) {
    for_each_value(*given, [&](ValueId id) { found.push_back(id); });
  }
  return found;
}

ValueId Call::tensor(std::size_t position, std::string_view name) const {
  ValueId first;
  if (const Argument* given = argument(position, name)) {
    for_each_value(*given, [&](ValueId id) {
      if (!first.valid()) first = id;
    });
  }
  return first;
}

bool Call::flag(std::size_t position, std::string_view name) const {
  const Argument* given = argument(position, name);
  const bool* set = given == nullptr ? nullptr : given->find<bool>();
  return set != nullptr && *set;
}

double Call::number(std::size_t position, std::string_view name) const {
  const Argument* given = argument(position, name);
  if (given == nullptr) return 0;
  if (const double* real = given->find<double>()) return *real;
  const Expr* whole = given->find<Expr>();
  return whole == nullptr ? 0 : static_cast<double>(whole->eval(setting_.batch));
}

std::vector<double> Call::shape(std::size_t position, std::string_view name) const {
  const ValueId found = tensor(position, name);
  return found.valid() ? shape(found) : std::vector<double>{};
}

std::vector<double> Call::shape(ValueId id) const {
  const Sizes& sizes = value(id).shape;
  std::vector<double> shape;
  shape.reserve(sizes.size());
  for (const Expr& size : sizes) shape.push_back(static_cast<double>(size.eval(setting_.batch)));
  return shape;
}

double Call::elements(ValueId id) const {
  double count = 1;
  for (const Expr& size : value(id).shape) count *= static_cast<double>(size.eval(setting_.batch));
  return count;
}

double Call::output_elements() const {
  double sum = 0;
  for (const ValueId id : node_.outputs) {
    if (is_tensor(id)) sum += elements(id);
  }
  return sum;
}

double Call::input_elements() const {
  double sum = 0;
  for (const ValueId id : inputs()) {
    if (is_tensor(id)) sum += elements(id);
  }
  return sum;
}

Bytes Call::bytes(ValueId id) const { return value(id).bytes(setting_.batch); }

Bytes Call::output_bytes() const {
  Bytes sum;
  for (const ValueId id : node_.outputs) {
    if (is_tensor(id)) sum += bytes(id);
  }
  return sum;
}

Bytes Call::touched() const { return bytes_touched(graph_, id_, setting_.batch); }

}  // namespace kerf::formula
