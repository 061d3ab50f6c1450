// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/out_of_memory.h"

#include <c10/util/Exception.h>

#include <new>
#include <string_view>

namespace kerf {

// Accelerators have a class for it, the host's allocator a sentence.
bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  return std::string_view(error.what()).find("can't allocate memory") != std::string_view::npos;
}

}  // namespace kerf
