// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/symbolic/tensor_book.h"

#include "kerf/libtorch/symbolic/to_argument.h"

namespace kerf {
namespace {

std::vector<Expr> to_sizes(c10::IntArrayRef numbers) { return {numbers.begin(), numbers.end()}; }

template <class Map>
ValueId found_in(const Map& map, const void* key) {
  const auto found = map.find(key);
  return found == map.end() ? ValueId{} : found->second;
}

std::int64_t element_bytes(const at::Tensor& tensor) {
  return tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
}

}  // namespace

const void* TensorBook::memory_of(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return tensor.unsafeGetTensorImpl();
  return tensor.storage().unsafeGetStorageImpl();
}

ValueId TensorBook::find(const at::Tensor& tensor) const {
  return found_in(values_, tensor.unsafeGetTensorImpl());
}

ValueId TensorBook::find_memory(const at::Tensor& tensor) const {
  return found_in(latest_, memory_of(tensor));
}

void TensorBook::bind(const at::Tensor& tensor, ValueId value) {
  values_[tensor.unsafeGetTensorImpl()] = value;
  latest_[memory_of(tensor)] = value;
  held_.push_back(tensor);
  if (tensor.has_storage()) memories_.push_back(tensor.storage());
}

TensorSpec TensorBook::spec(std::string name, const at::Tensor& tensor) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.dtype = to_dtype(tensor.scalar_type());
  spec.shape = to_sizes(tensor.sizes());
  spec.requires_grad = tensor.requires_grad();
  const void* const memory = memory_of(tensor);
  spec.storage_key =
      keys_.try_emplace(memory, static_cast<std::int64_t>(keys_.size())).first->second;
  if (tensor.has_storage() && tensor.layout() == c10::kStrided) {
    spec.strides = to_sizes(tensor.strides());
    spec.offset = tensor.storage_offset() * static_cast<std::int64_t>(tensor.element_size());
    spec.storage_bytes = static_cast<std::int64_t>(tensor.storage().nbytes());
  } else {
    std::int64_t stride = 1;
    spec.strides.resize(spec.shape.size());
    for (std::size_t d = spec.shape.size(); d-- > 0;) {
      spec.strides[d] = stride;
      stride *= std::max<std::int64_t>(tensor.size(static_cast<std::int64_t>(d)), 1);
    }
    spec.storage_bytes = element_bytes(tensor);
  }
  return spec;
}

void TensorBook::note_growth(const at::Tensor& tensor, ValueId value) {
  if (!tensor.has_storage()) return;
  Expr& bytes =
      builder_.data().storages[builder_.data().values[value.index()].storage.index()].bytes;
  const auto now = static_cast<std::int64_t>(tensor.storage().nbytes());
  if (now > bytes.constant()) bytes = now;
}

}  // namespace kerf
