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

// PyTorch brings an OpenMP runtime of its own, another than the system's, and an MKL inside it: the
// settings must go to those, so they are looked up among the libraries PyTorch itself has loaded.
template <class Function>
Function find_in_pytorch(const char* symbol) {
  void* library = ::dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
  return library == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(library, symbol));
}

using SetThreads = void (*)(int);
using SetOwnThreads = int (*)(int);  // MKL's; the name in lower case is Fortran's, by reference

// OpenMP keeps the number of threads of the next team per calling thread. MKL does too once
// PyTorch has told it one, which it does in a thread's first setting after torch.set_num_threads:
// a product would then be shared by that many threads, all of them on this thread's cores.
void set_own_team_size(int count) {
  static const auto set_openmp = find_in_pytorch<SetThreads>("omp_set_num_threads");
  static const auto set_mkl = find_in_pytorch<SetOwnThreads>("MKL_Set_Num_Threads_Local");
  at::get_num_threads();  // makes PyTorch's own first setting for this thread, before ours
  if (set_openmp != nullptr) set_openmp(count);
  if (set_mkl != nullptr) set_mkl(count);
}

void keep_on(pthread_t thread, const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  // A container may not allow it; the cores are then shared as the system sees fit.
  ::pthread_setaffinity_np(thread, sizeof set, &set);
}

}  // namespace

void own_threads(std::size_t cores) {
  if (cores > 0) set_own_team_size(static_cast<int>(cores));
}

BesideDevice::BesideDevice() : threads_(at::get_num_threads()) {
  constexpr int kFew = 4;  // a core less would be felt
  if (threads_ >= kFew) set_own_team_size(threads_ - 1);
}

BesideDevice::~BesideDevice() { set_own_team_size(threads_); }

void own_cores(const std::vector<int>& cores) {
  if (cores.empty()) return;
  keep_on(::pthread_self(), cores);
  own_threads(cores.size());
}

void keep_off_core(std::thread::native_handle_type thread, int core) {
  std::vector<int> others = process_cores();
  std::erase(others, core);
  if (!others.empty()) keep_on(thread, others);
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
