// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

namespace kerf {
namespace {

// PyTorch brings an OpenMP runtime of its own, another than the system's: the setting must go to
// that one, so it is looked up among the libraries PyTorch itself has loaded.
using SetThreads = void (*)(int);

SetThreads find_in_pytorch(const char* symbol) {
  void* library = ::dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
  return library == nullptr ? nullptr : reinterpret_cast<SetThreads>(::dlsym(library, symbol));
}

// OpenMP keeps the number of threads of the next team per calling thread.
void set_own_team_size(int count) {
  static const SetThreads set_openmp = find_in_pytorch("omp_set_num_threads");
  at::init_num_threads();  // PyTorch's own lazy setting for this thread, before ours
  if (set_openmp != nullptr) set_openmp(count);
}

}  // namespace

void own_cores(const std::vector<int>& cores) {
  if (cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  // A container may not allow it; the cores are then shared as the system sees fit.
  ::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);
  set_own_team_size(static_cast<int>(cores.size()));
}

std::vector<int> process_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> out;
  // Of the process, not of the calling thread.
  if (::sched_getaffinity(::getpid(), sizeof set, &set) != 0) return out;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) out.push_back(core);
  }
  return out;
}

}  // namespace kerf
