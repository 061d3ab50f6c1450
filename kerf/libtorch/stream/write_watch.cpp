// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/stream/write_watch.h"

#include <ATen/core/TensorBody.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/COW.h>

#include <numeric>
#include <utility>

#include "kerf/base/error.h"

namespace kerf {

// PyTorch's copy-on-write storages know of the first write. Of one that has no clone the write
// takes the memory over as it is, and the storage is an ordinary one from then on.
bool is_watched(const at::Tensor& tensor) {
  return c10::impl::cow::is_cow_data_ptr(tensor.storage().data_ptr());
}

bool watch_writes(const at::Tensor& tensor) {
  if (is_watched(tensor)) return true;
  if (!tensor.storage() || tensor.storage().data() == nullptr) return false;
  // Makes both of them copy-on-write; the clone goes.
  return c10::impl::cow::lazy_clone_storage(*tensor.storage().unsafeGetStorageImpl()) != nullptr;
}

at::Tensor make_watched(void* address, c10::DeleterFnPtr free, const at::TensorOptions& options,
                        at::IntArrayRef shape, at::IntArrayRef strides) {
  const std::int64_t count =
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  const auto bytes = static_cast<std::size_t>(count) * options.dtype().itemsize();
  at::Tensor tensor = at::empty({0}, options);
  tensor.set_(c10::Storage(c10::Storage::use_byte_size_t{}, bytes,
                           c10::DataPtr(address, address, free, options.device()),
                           /*allocator=*/nullptr, /*resizable=*/false),
              0, shape, strides);
  KERF_CHECK(count == 0 || watch_writes(tensor), "memory of its own can be watched");
  return tensor;
}

}  // namespace kerf
