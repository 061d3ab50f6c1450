// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace kerf {

// Of this process's memory, whole pages.
struct Pages {
  const std::byte* begin;
  const std::byte* end;
};

// Of the page that an address lies in.
std::byte* page_begin(const void* address);
// The bytes from there to the end of the last page of these.
std::size_t page_bytes(const void* from, std::size_t bytes);

// Of the pages that the bytes lie in, which are mapped from a file: those that this process has
// written, in ascending order, neighbours together; at most so many runs. All of them where the
// system does not say.
std::vector<Pages> written_pages(const void* from, std::size_t bytes,
                                 std::size_t most = std::numeric_limits<std::size_t>::max());
// Is there such a page? True if that cannot be known.
inline bool any_written(const void* from, std::size_t bytes) {
  return !written_pages(from, bytes, 1).empty();
}
bool system_knows_written_pages();

// Reads a file's bytes from an offset on; false if they end before.
bool read_all(int file, void* to, std::size_t bytes, std::size_t offset);

}  // namespace kerf
