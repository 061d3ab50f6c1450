// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/runtime/channel.h"

#include <thread>

namespace kerf {
namespace {

// A sleeping worker costs the sender a system call and the receiver tens of microseconds; most
// waits in a full pipeline are shorter than that. Past this many looks the worker sleeps, so that
// a long wait burns no core that another device owns.
constexpr int kLooksBeforeSleep = 2000;

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

Channel::Channel(const std::vector<std::size_t>& num_received)
    : boxes_(new Box[num_received.size()]) {
  for (std::size_t t = 0; t < num_received.size(); ++t) {
    boxes_[t].parcels.resize(num_received[t]);
    boxes_[t].missing = num_received[t];
  }
}

void Channel::deliver(TaskId task, std::size_t place, ParcelPtr parcel) {
  Box& b = boxes_[task.index()];
  b.parcels[place] = std::move(parcel);  // places are distinct: no two senders share one
  if (b.missing.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  // The lock orders this wake-up after the receiver's last look.
  { const std::lock_guard lock(mutex_); }
  arrived_.notify_one();
}

std::optional<std::vector<ParcelPtr>> Channel::take(TaskId task) {
  Box& b = boxes_[task.index()];
  const auto ready = [&] {
    return b.missing.load(std::memory_order_acquire) == 0 ||
           stopped_.load(std::memory_order_acquire);
  };
  for (int look = 0; look < kLooksBeforeSleep && !ready(); ++look) pause_briefly();
  if (!ready()) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, ready);
  }
  if (stopped_.load(std::memory_order_acquire)) return std::nullopt;
  return std::move(b.parcels);
}

void Channel::stop() {
  stopped_.store(true, std::memory_order_release);
  { const std::lock_guard lock(mutex_); }
  arrived_.notify_all();
}

}  // namespace kerf
