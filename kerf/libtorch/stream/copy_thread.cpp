// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/stream/file_mover.h"

#include <cstring>
#include <utility>

#include "kerf/libtorch/stream/mapped_file.h"

namespace kerf {

FileMover::FileMover(Pieces pieces, std::vector<std::byte*> slots)
    : pieces_(std::move(pieces)), slots_(std::move(slots)), states_(slots_.size()) {
  thread_ = std::thread([this] { loop(); });
}

FileMover::~FileMover() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void FileMover::start(std::size_t unit, std::size_t slot) {
  Job job{slot, 0, pieces_(unit)};
  {
    std::unique_lock lock(mutex_);
    // A copy that nobody waited for must not go on into what follows it; one that has not begun is
    // not made.
    std::erase_if(jobs_, [&](const Job& waiting) { return waiting.slot == slot; });
    job.number = ++states_[slot].started;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void FileMover::wait(std::size_t slot) {
  std::unique_lock lock(mutex_);
  State& state = states_[slot];
  changed_.wait(lock, [&] { return state.done == state.started; });
  if (state.failure) std::rethrow_exception(std::exchange(state.failure, nullptr));
}

// One at a time and in the order they were asked for, so two copies never share a slot.
void FileMover::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || !jobs_.empty(); });
    if (closing_) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      copy(job);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    states_[job.slot].done = job.number;
    states_[job.slot].failure = failure;
    changed_.notify_all();
  }
}

void FileMover::copy(const Job& job) const {
  for (const Piece& piece : job.pieces) {
    std::byte* const to = slots_[job.slot] + piece.offset;
    const void* const from = piece.home.const_data_ptr();
    if (const auto file = MappedFile::at(from)) {
      file->read(from, piece.home.nbytes(), to);
    } else if (piece.home.nbytes() > 0) {
      std::memcpy(to, from, piece.home.nbytes());
    }
  }
}

}  // namespace kerf
