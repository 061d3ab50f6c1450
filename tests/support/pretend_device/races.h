// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Finds work that uses memory without having waited for the work that used it before.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/pretend_device/memory.h"

namespace pretend {

// Notes that the stream's latest task uses these bytes of the block, and reports a race with
// earlier work that the stream does not come after. `also_after`: more that it comes after. A range
// is from its first byte to its last: two interleaved columns of one matrix count as one.
void note_access(Block& block, std::size_t begin, std::size_t end, bool write, Stream& stream,
                 const std::string& what, const Clock* also_after = nullptr);

std::vector<std::string> races();
void clear_races();

}  // namespace pretend
