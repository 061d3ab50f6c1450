// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/saved/stack.h"

namespace kerf {

std::int64_t num_matrices(const SavedCall& call) {
  const ValueId result = call.result();
  std::int64_t count = 1;
  for (int dim = 0; dim < call.rank(result) - 2; ++dim) count *= call.size(result, dim);
  return count;
}

void keep_stack(SavedCall& call, ValueId operand) {
  const ValueId result = call.result();
  const int missing = call.rank(result) - call.rank(operand);
  bool is_view = true;
  std::int64_t expected = -1;
  for (int dim = call.rank(result) - 3; dim >= 0; --dim) {
    const std::int64_t size = call.size(result, dim);
    if (size == 1) continue;
    const bool is_spread = dim < missing || call.size(operand, dim - missing) != size;
    const std::int64_t stride = is_spread ? 0 : call.stride(operand, dim - missing);
    is_view = is_view && (expected < 0 || stride == expected);
    expected = stride * size;
  }
  if (is_view) {
    call.keep(operand);
  } else {
    call.keep_own(num_matrices(call) * call.size(operand, -1) * call.size(operand, -2),
                  call.value(operand).dtype);
  }
}

}  // namespace kerf
