// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <vector>

#include "kerf/libtorch/stream/pages.h"

namespace kerf {

struct FetchFailure {
  std::size_t which;  // of the runs of pages
  int error;          // errno
};

// Brings pages of mapped files to where they are mapped. Where the disk is slower than whoever
// waits for them, several threads do, so that it always has requests; otherwise the calling thread
// alone, which disturbs others least. Returns when all are there, or some failed.
std::optional<FetchFailure> fetch_pages(const std::vector<Pages>& runs,
                                        const std::atomic<bool>& is_awaited);
bool system_can_fetch_pages();

}  // namespace kerf
