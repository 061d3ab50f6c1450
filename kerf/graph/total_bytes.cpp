// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/total_bytes.h"

namespace kerf {

double total_bytes(std::span<const Storage> storages, std::span<const Value> values,
                   std::int64_t batch) {
  double total = 0;
  for (const Storage& storage : storages) total += static_cast<double>(storage.bytes.eval(batch));
  for (const Value& value : values) {
    if (value.scalar) continue;
    auto bytes = static_cast<double>(element_size(value.dtype));
    for (const Expr& size : value.shape) bytes *= static_cast<double>(size.eval(batch));
    total += bytes;
  }
  return total;
}

}  // namespace kerf
