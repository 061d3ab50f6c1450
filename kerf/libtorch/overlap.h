// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Whether tensors have bytes in common: exactly, not by the ranges they lie in. Parts of one tensor
// lie in each other's ranges and share nothing.
#pragma once

#include <ATen/core/Tensor.h>

namespace kerf {

// Where it is too hard to say (overlapping windows of odd strides), they may.
bool may_share_bytes(const at::Tensor& a, const at::Tensor& b);

// May element i along `dim_a` and element j along `dim_b` share bytes for i != j? With a dimension
// of -1: any elements.
bool may_share_across(const at::Tensor& a, std::int64_t dim_a, const at::Tensor& b,
                      std::int64_t dim_b);

}  // namespace kerf
