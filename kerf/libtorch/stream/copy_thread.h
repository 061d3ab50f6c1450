// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "kerf/libtorch/stream/stream_slots.h"
#include "kerf/runtime/stream/mover.h"

namespace kerf {

// Fills slots with units' weights while others compute.
class CopyThread : public Mover {
 public:
  // `pieces(unit)`: what the unit consists of now. Called on the thread that calls `start`.
  using Pieces = std::function<std::vector<StreamSlots::Piece>(std::size_t unit)>;

  CopyThread(Pieces pieces, StreamSlots& slots);
  ~CopyThread() override;

  void start(std::size_t unit, std::size_t slot) override;
  void wait(std::size_t slot) override;
  void release(std::size_t slot) override { slots_.release(slot); }
  // What was started is over.
  void settle();

 private:
  struct Job {
    std::size_t slot = 0;
    std::size_t number = 0;
    std::vector<StreamSlots::Piece> pieces;
  };
  struct State {
    std::size_t started = 0;  // number of the last job
    std::size_t done = 0;     // number of the last that ended
    std::exception_ptr failure;
  };
  void loop();
  void keep_off_this_core();
  bool is_quick(const Job& job) const;
  // Fills the slot, and says what went wrong.
  std::exception_ptr run(Job& job);

  Pieces pieces_;
  StreamSlots& slots_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<State> states_;           // by slot
  std::optional<std::size_t> filling_;  // the slot that the thread is at
  bool closing_ = false;
  int callers_core_ = -1;
  std::thread thread_;
};

}  // namespace kerf
