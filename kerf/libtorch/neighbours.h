// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Other devices of the machine at work while one is measured: they share caches and memory with it.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "kerf/libtorch/step_clock.h"

namespace kerf {

// Threads that work on demand, each stopped between two steps the rest of the time.
//
//   Neighbours neighbours({work, work});   // they have prepared, and wait
//   { const Neighbours::AtWork at_work(neighbours);  ... }
//   neighbours.check();                    // throws what one of them threw
class Neighbours {
 public:
  // Told before each step, on the neighbour's thread; no time is taken.
  class Gate : public StepClock {
   public:
    virtual ~Gate() = default;
    // To be called when it has prepared, and before each pass: waits until there is work. False
    // when there will be none.
    virtual bool next_pass() = 0;

   protected:
    Gate() : StepClock(0) {}
  };
  // What a neighbour does on its thread: prepares, then passes as long as there are any.
  using Work = std::function<void(Gate&)>;

  // Returns when all have prepared, or have failed; polls meanwhile. One thread for each of
  // `works`.
  explicit Neighbours(std::vector<Work> works);
  ~Neighbours();  // ends them
  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;

  bool empty() const { return threads_.empty(); }
  // Throws what a neighbour has thrown, once none works.
  void check();

  // While it lives they work; afterwards each has come to rest.
  class AtWork {
   public:
    explicit AtWork(Neighbours& neighbours);
    ~AtWork();
    AtWork(const AtWork&) = delete;
    AtWork& operator=(const AtWork&) = delete;

   private:
    Neighbours& neighbours_;
  };

 private:
  struct State;
  class OwnGate;
  bool rest_within(double seconds);  // have all come to rest?
  void end();

  std::unique_ptr<State> state_;
  std::vector<std::thread> threads_;
};

}  // namespace kerf
