// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "kerf/base/file.h"

namespace kerf {

// Compares with tests/emit/golden/<name>. KERF_UPDATE_GOLDEN=1 writes the file instead: read the
// difference before committing it.
inline void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(KERF_SOURCE_DIR "/tests/emit/golden/") + name;
  if (std::getenv("KERF_UPDATE_GOLDEN") != nullptr) write_file(path, text);
  EXPECT_EQ(text, read_file(path));
}

}  // namespace kerf
