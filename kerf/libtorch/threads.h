// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace kerf {

// The calling thread, and the threads its operators start, run on `cores` from now on, one thread a
// core. Other threads keep their counts: at::set_num_threads would change them all. Does nothing
// when `cores` is empty.
void own_cores(const std::vector<int>& cores);

// The cores this process may use.
std::vector<int> process_cores();

}  // namespace kerf
