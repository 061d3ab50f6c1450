// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/weight_store.h"

#include <fmt/format.h>

#include "kerf/base/error.h"
#include "kerf/libtorch/convert.h"

namespace kerf {

WeightStore::WeightStore(const Graph& graph, std::vector<at::Tensor> tensors) : graph_(graph) {
  replace(std::move(tensors));
}

void WeightStore::replace(std::vector<at::Tensor> tensors) {
  KERF_CHECK(tensors.size() == graph_.weights().size(), "one tensor for each weight of the graph");
  for (std::size_t i = 0; i < tensors.size(); ++i) check(i, tensors[i]);
  earlier_edits_ = num_edits() + 1;
  tensors_ = std::move(tensors);
  given_.clear();
  given_sizes_.clear();
  for (const at::Tensor& tensor : tensors_) {
    const auto dim = static_cast<std::size_t>(tensor.dim());
    given_.push_back({tensor.device(), tensor.scalar_type(), given_sizes_.size(), dim});
    given_sizes_.insert(given_sizes_.end(), tensor.sizes().begin(), tensor.sizes().end());
  }
  for (auto& [key, copy] : copies_) copy.fresh = false;
}

std::uint64_t WeightStore::num_edits() const {
  std::uint64_t edits = earlier_edits_;
  for (const at::Tensor& tensor : tensors_) {
    if (!tensor.is_inference()) edits += static_cast<std::uint64_t>(tensor._version());
  }
  return edits;
}

void WeightStore::check(std::size_t weight, const at::Tensor& tensor) const {
  const Weight& record = graph_.weights()[weight];
  const Value& value = graph_.value(record.value);
  bool same = tensor.dim() == static_cast<std::int64_t>(value.shape.size()) &&
              tensor.scalar_type() == to_scalar_type(value.dtype);
  for (std::size_t d = 0; same && d < value.shape.size(); ++d) {
    same = tensor.size(static_cast<std::int64_t>(d)) == value.shape[d].constant();
  }
  if (same) return;
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("[libtorch.weights] weight '{}' is {}; the graph was traced with {}; give "
                  "the model that was traced, or trace this one",
                  record.names[0], describe(c10::IValue(tensor)), describe(value)));
}

// A model's tensors lie all over the memory, and in no cache after a step on an accelerator: ask
// for them all at once rather than one after the other.
void WeightStore::prefetch() const {
  constexpr std::size_t kCacheLine = 64;
  for (const at::Tensor& tensor : tensors_) {
    const auto* const bytes = reinterpret_cast<const char*>(tensor.unsafeGetTensorImpl());
    for (std::size_t at = 0; at < sizeof(c10::TensorImpl); at += kCacheLine) {
      __builtin_prefetch(bytes + at);
    }
  }
  for (const at::Tensor& tensor : tensors_) {
    __builtin_prefetch(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  }
}

void WeightStore::prepare_run() {
  prefetch();
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Given& given = given_[i];
    if (tensors_[i].device() == given.device && tensors_[i].scalar_type() == given.dtype &&
        tensors_[i].sizes() ==
            c10::IntArrayRef(given_sizes_.data() + given.first_size, given.dim)) {
      continue;
    }
    const Value& value = graph_.value(graph_.weights()[i].value);
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format(
            "[libtorch.weights] weight '{}' is now {}; it was {} on {} when the pipeline was made; "
            "change the model first, trace it again if shapes differ, and make a new kerf.Pipeline",
            graph_.weights()[i].names[0], describe(c10::IValue(tensors_[i])), describe(value),
            given.device.str()));
  }
  for (auto& [key, copy] : copies_) refresh(key.first, copy);
}

void WeightStore::refresh(std::size_t weight, Copy& copy) {
  const at::Tensor& source = tensors_[weight];
  const auto version = static_cast<std::uint32_t>(source._version());
  if (copy.fresh && copy.source_data == source.const_data_ptr() && copy.source_version == version) {
    return;
  }
  copy.tensor.copy_(source.detach());
  copy.source_data = source.const_data_ptr();
  copy.source_version = version;
  copy.fresh = true;
}

const at::Tensor& WeightStore::on(std::size_t weight, c10::Device device) {
  const at::Tensor& source = tensors_[weight];
  if (source.device() == device) return source;
  if (source.is_meta()) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[libtorch.weights] weight '{}' has no data: it is on the meta device; "
                            "expected a weight with numbers; load the model's weights first",
                            graph_.weights()[weight].names[0]));
  }
  const std::lock_guard lock(copies_mutex_);
  Copy& copy = copies_[{weight, device.str()}];
  if (!copy.tensor.defined()) {
    copy.tensor =
        source.detach().to(device, source.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  }
  return copy.tensor;
}

}  // namespace kerf
