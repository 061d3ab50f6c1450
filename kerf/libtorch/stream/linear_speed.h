// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace kerf {

// Seconds per byte of weights that products of so many rows with weights of this type take on a
// device, by number of rows, ascending; medians of a few. The host's weights are not in a cache
// before. Where many rows take very long already, more take proportionally longer. About a second
// on a slow machine.
std::vector<double> linear_seconds_per_byte(at::ScalarType type, at::Device device,
                                            const std::vector<std::int64_t>& rows);

}  // namespace kerf
