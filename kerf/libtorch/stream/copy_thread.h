// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "kerf/runtime/stream/mover.h"

namespace kerf {

// Weights from files, or from other memory of the host, into slots of the host's memory: a thread
// that copies while others compute.
class FileMover : public Mover {
 public:
  struct Piece {
    at::Tensor home;         // contiguous, on the host; kept until it has been copied
    std::size_t offset = 0;  // in the slot
  };
  // `pieces(unit)`: what the unit consists of now. Called on the thread that calls `start`.
  using Pieces = std::function<std::vector<Piece>(std::size_t unit)>;

  // `slots`: where each begins.
  FileMover(Pieces pieces, std::vector<std::byte*> slots);
  ~FileMover() override;

  void start(std::size_t unit, std::size_t slot) override;
  void wait(std::size_t slot) override;
  void release(std::size_t) override {}  // what read it is over: the host does one thing at a time

 private:
  struct Job {
    std::size_t slot = 0;
    std::size_t number = 0;
    std::vector<Piece> pieces;
  };
  struct State {
    std::size_t started = 0;  // number of the last job
    std::size_t done = 0;     // number of the last that ended
    std::exception_ptr failure;
  };
  void loop();
  void copy(const Job& job) const;

  Pieces pieces_;
  std::vector<std::byte*> slots_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<State> states_;  // by slot
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace kerf
