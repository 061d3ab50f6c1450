// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace kerf {

// All bytes of a tensor's storage, seen as one flat tensor.
at::Tensor flat_bytes(const at::Tensor& tensor);
// The same in words of eight bytes, which are copied faster, where the size allows.
at::Tensor flat_words(const at::Tensor& tensor);

// A tensor that sees `storage` as `like` sees its own: dtype, sizes, strides, offset.
at::Tensor view_of(const c10::Storage& storage, const at::Tensor& like);

}  // namespace kerf
