// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/formula/backward.h"

namespace kerf::formula {

std::vector<ValueId> Backward::wanted() const {
  std::vector<ValueId> found;
  for (const ValueId input : call_.inputs()) {
    if (wanted(input)) found.push_back(input);
  }
  return found;
}

void Backward::sum_to(ValueId input, double elements) {
  if (call_.elements(input) >= elements) return;
  const auto read = static_cast<std::int64_t>(elements) * element_size(call_.value(input).dtype);
  add(input, elements, Bytes{read} + call_.bytes(input));
}

}  // namespace kerf::formula
