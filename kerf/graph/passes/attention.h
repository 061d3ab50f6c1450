// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Where the arguments of aten::scaled_dot_product_attention(query, key, value, attn_mask,
// dropout_p, is_causal, *, scale, enable_gqa) stand.
#pragma once

#include <cstddef>

namespace kerf::attention {

inline constexpr std::size_t kQuery = 0;
inline constexpr std::size_t kKey = 1;
inline constexpr std::size_t kValue = 2;
inline constexpr std::size_t kMask = 3;
inline constexpr std::size_t kIsCausal = 5;

}  // namespace kerf::attention
