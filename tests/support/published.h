// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Placement problems that others published (tests/data/README.md).
#pragma once

#include <filesystem>
#include <string>

namespace kerf {

// `kind`: throughput or latency.
inline std::filesystem::path published_file(const std::string& kind, const std::string& name) {
  return std::filesystem::path(KERF_SOURCE_DIR) / "tests/data/dnn-partitioning" / kind /
         (name + ".json");
}

}  // namespace kerf
