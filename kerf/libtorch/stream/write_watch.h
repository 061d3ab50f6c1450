// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace kerf {

// Whether a tensor's memory was written, whoever did it: through .data and views, too, which no
// version counts. Nothing is copied, and what reads costs nothing. Code that asks for a pointer to
// write counts as writing, whether or not it does; a pointer that somebody had before, does not.
//
//   watch_writes(weight);   ...   if (!is_watched(weight)) ...   // somebody may have written
bool is_watched(const at::Tensor& tensor);
// False where the memory cannot be watched: a mapped file, memory of somebody else's allocator.
bool watch_writes(const at::Tensor& tensor);

// A watched tensor at an address. `free` is called with it when nobody uses it any more.
at::Tensor make_watched(void* address, c10::DeleterFnPtr free, const at::TensorOptions& options,
                        at::IntArrayRef shape, at::IntArrayRef strides);

}  // namespace kerf
