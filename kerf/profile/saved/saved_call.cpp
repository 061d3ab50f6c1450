// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/saved/saved_call.h"

#include <algorithm>

#include "kerf/graph/arguments.h"
#include "kerf/graph/operator.h"
#include "kerf/profile/saved/attention_layout.h"

namespace kerf {
namespace {

std::size_t from_front(int dim, std::size_t rank) {
  return static_cast<std::size_t>(dim < 0 ? dim + static_cast<int>(rank) : dim);
}

}  // namespace

ValueId SavedCall::tensor(std::size_t position, std::string_view name) const {
  const ValueId* const found = find_tensor(node(), position, name);
  return found == nullptr || value(*found).scalar ? ValueId{} : *found;
}

const Argument* SavedCall::argument(std::size_t position, std::string_view name) const {
  return find_argument(node(), position, name);
}

bool SavedCall::flag(std::size_t position, std::string_view name, bool otherwise) const {
  const Argument* const given = argument(position, name);
  const bool* const set = given == nullptr ? nullptr : given->find<bool>();
  return set == nullptr ? otherwise : *set;
}

double SavedCall::number(std::size_t position, std::string_view name, double otherwise) const {
  const Argument* const given = argument(position, name);
  if (given == nullptr) return otherwise;
  if (const auto* real = given->find<double>()) return *real;
  if (const auto* whole = given->find<Expr>()) return static_cast<double>(whole->eval(batch_));
  return otherwise;
}

ValueId SavedCall::result(std::size_t position) const {
  return position < node().outputs.size() ? node().outputs[position] : ValueId{};
}

bool SavedCall::in_place() const {
  const std::string_view packet = packet_of(node().op);
  return packet.ends_with("_") && !packet.ends_with("__");
}

bool SavedCall::needs(ValueId id) const { return id.valid() && value(id).requires_grad; }

std::int64_t SavedCall::size(ValueId id, int dim) const {
  const Sizes& shape = value(id).shape;
  return shape[from_front(dim, shape.size())].eval(batch_);
}

std::int64_t SavedCall::stride(ValueId id, int dim) const {
  const Sizes& strides = value(id).strides;
  return strides[from_front(dim, strides.size())].eval(batch_);
}

std::int64_t SavedCall::numel(ValueId id) const {
  std::int64_t count = 1;
  for (const Expr& size : value(id).shape) count *= size.eval(batch_);
  return count;
}

bool SavedCall::merges(ValueId id, int first, int last) const {
  if (numel(id) == 0) return true;
  std::int64_t expected = -1;
  for (int dim = last; dim >= first; --dim) {
    if (size(id, dim) == 1) continue;
    if (expected >= 0 && stride(id, dim) != expected) return false;
    expected = stride(id, dim) * size(id, dim);
  }
  return true;
}

void SavedCall::keep(ValueId id) {
  if (!id.valid() || value(id).scalar) return;
  if (accelerator_ && is_copied_from_attention(*this, id)) return keep_copy(id);
  const SavedTensor tensor{id, {}};
  const auto row = kept_.begin() + static_cast<std::ptrdiff_t>(first_);
  if (std::find(row, kept_.end(), tensor) == kept_.end()) kept_.push_back(tensor);
}

void SavedCall::keep_before(ValueId id) {
  if (in_place() && id == tensor(0, "self")) {
    keep_copy(id);
  } else {
    keep(id);
  }
}

void SavedCall::keep_own(Bytes bytes) {
  if (bytes.count > 0) kept_.push_back({ValueId{}, bytes});
}

void SavedCall::keep_own(std::int64_t elements, DType dtype) {
  keep_own(Bytes{elements * element_size(dtype)});
}

void SavedCall::keep_copy(ValueId id) { keep_own(numel(id), value(id).dtype); }

}  // namespace kerf
