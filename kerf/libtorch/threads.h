// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <thread>
#include <vector>

namespace kerf {

// The calling thread, and the threads its operators start, run on `cores` from now on, one thread a
// core. Other threads keep their counts: at::set_num_threads would change them all. Does nothing
// when `cores` is empty.
void own_cores(const std::vector<int>& cores);
// The same for the number of threads alone, where something may have set another since.
void own_threads(std::size_t cores);

// While it lives, operators of the thread that made it leave a core to whoever feeds a device:
// threads of a team wait for each other, and one that waits for its core holds up all.
class BesideDevice {
 public:
  BesideDevice();
  ~BesideDevice();
  BesideDevice(const BesideDevice&) = delete;
  BesideDevice& operator=(const BesideDevice&) = delete;

 private:
  int threads_;  // before
};

// A thread runs on the other cores of this process, if there are any.
void keep_off_core(std::thread::native_handle_type thread, int core);

// The cores this process may use.
std::vector<int> process_cores();

}  // namespace kerf
