// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Independent trials on several threads, with the outcome of running them one after the other.
#pragma once

#include <cstddef>
#include <functional>

namespace kerf::place {

// Runs trial(0) .. trial(count - 1) until one returns true ("good enough"): answers how many count,
// as if they had run in order. Later ones may have run too; the caller leaves them out. The first
// exception by number is thrown again.
std::size_t run_trials(std::size_t count, int threads,
                       const std::function<bool(std::size_t)>& trial);

}  // namespace kerf::place
