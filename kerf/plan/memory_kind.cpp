// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/memory_kind.h"

namespace kerf {

std::string_view to_string(MemoryKind kind) {
  constexpr std::string_view kNames[kNumMemoryKinds] = {"weights", "gradients",   "optimizer",
                                                        "saved",   "temporaries", "inputs",
                                                        "results", "workspace"};
  return kNames[static_cast<std::size_t>(kind)];
}

Bytes sum(const MemoryKinds& bytes) {
  Bytes all;
  for (const Bytes each : bytes) all += each;
  return all;
}

}  // namespace kerf
