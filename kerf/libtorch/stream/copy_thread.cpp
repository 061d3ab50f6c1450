// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/stream/copy_thread.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "kerf/libtorch/threads.h"

namespace kerf {

CopyThread::CopyThread(Pieces pieces, StreamSlots& slots)
    : pieces_(std::move(pieces)), slots_(slots), states_(slots.size()) {
  thread_ = std::thread([this] { loop(); });
}

CopyThread::~CopyThread() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CopyThread::start(std::size_t unit, std::size_t slot) {
  Job job{slot, 0, pieces_(unit)};
  {
    std::unique_lock lock(mutex_);
    // A copy that nobody waited for must not go on into what follows it; one that has not begun is
    // not made.
    std::erase_if(jobs_, [&](const Job& waiting) { return waiting.slot == slot; });
    State& state = states_[slot];
    const bool is_free = filling_ != slot;
    job.number = ++state.started;
    if (is_free && is_quick(job)) {
      state.failure = run(job);
      state.done = job.number;
      return;
    }
    jobs_.push_back(std::move(job));
  }
  keep_off_this_core();
  changed_.notify_all();
}

// Where teams of threads that wait keep all cores busy, the system would let it run in place of the
// one thread that computes: the caller, which it wakes up beside.
void CopyThread::keep_off_this_core() {
  const int core = ::sched_getcpu();
  if (core == callers_core_) return;
  callers_core_ = core;
  keep_off_core(thread_.native_handle(), core);
}

bool CopyThread::is_quick(const Job& job) const {
  std::size_t bytes = 0;
  for (const StreamSlots::Piece& piece : job.pieces) bytes += piece.home.nbytes();
  return bytes <= slots_.quick_bytes();
}

std::exception_ptr CopyThread::run(Job& job) {
  std::exception_ptr failure;
  try {
    slots_.fill(job.slot, job.pieces);
  } catch (...) {
    failure = std::current_exception();
  }
  job.pieces.clear();  // homes' owners are counted, see StreamedWeights
  return failure;
}

void CopyThread::wait(std::size_t slot) {
  std::unique_lock lock(mutex_);
  State& state = states_[slot];
  if (state.done != state.started) {
    slots_.set_awaited(true);
    changed_.wait(lock, [&] { return state.done == state.started; });
    slots_.set_awaited(false);
  }
  if (state.failure) std::rethrow_exception(std::exchange(state.failure, nullptr));
  lock.unlock();
  slots_.wait(slot);
}

void CopyThread::settle() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return std::all_of(states_.begin(), states_.end(),
                         [](const State& state) { return state.done == state.started; });
    });
  }
  slots_.settle();
}

// One at a time and in the order they were asked for, so two copies never share a slot.
void CopyThread::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || !jobs_.empty(); });
    if (closing_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    filling_ = job.slot;
    lock.unlock();
    const std::exception_ptr failure = run(job);
    lock.lock();
    filling_.reset();
    states_[job.slot].done = job.number;
    states_[job.slot].failure = failure;
    changed_.notify_all();
  }
}

}  // namespace kerf
