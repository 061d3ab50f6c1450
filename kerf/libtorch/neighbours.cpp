// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/neighbours.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "kerf/base/interrupt.h"

namespace kerf {

struct Neighbours::State {
  enum class Order : std::uint8_t { rest, work, end };
  std::atomic<Order> order{Order::rest};
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t resting = 0;  // at the gate, or gone
  std::exception_ptr failure;

  void give(Order now) {
    {
      const std::lock_guard lock(mutex);
      order = now;
    }
    changed.notify_all();
  }

  // Stays here until there is another order than to rest.
  void rest() {
    std::unique_lock lock(mutex);
    ++resting;
    changed.notify_all();
    changed.wait(lock, [&] { return order != Order::rest; });
    --resting;
  }

  void leave(std::exception_ptr thrown) {
    {
      const std::lock_guard lock(mutex);
      ++resting;
      if (!failure) failure = std::move(thrown);
    }
    changed.notify_all();
  }
};

class Neighbours::OwnGate : public Gate {
 public:
  explicit OwnGate(State& state) : state_(state) {}
  bool next_pass() override {
    pass_gate();
    return state_.order != State::Order::end;
  }
  void start() override {}
  void step(std::size_t) override { pass_gate(); }
  void stop() override {}

 private:
  void pass_gate() {
    if (state_.order.load(std::memory_order_relaxed) == State::Order::rest) state_.rest();
  }

  State& state_;
};

Neighbours::Neighbours(std::vector<Work> works) : state_(std::make_unique<State>()) {
  for (Work& work : works) {
    threads_.emplace_back([state = state_.get(), work = std::move(work)] {
      const PollScope scope([state] {
        if (state->order == State::Order::end) throw Interrupted();
      });
      std::exception_ptr thrown;
      try {
        OwnGate gate(*state);
        work(gate);
      } catch (const Interrupted&) {  // it was told to end
      } catch (...) {
        thrown = std::current_exception();
      }
      state->leave(std::move(thrown));
    });
  }
  try {
    while (!rest_within(kPollSeconds)) poll_interrupt();
  } catch (...) {
    end();
    throw;
  }
}

Neighbours::~Neighbours() { end(); }

void Neighbours::end() {
  state_->give(State::Order::end);
  for (std::thread& thread : threads_) thread.join();
}

bool Neighbours::rest_within(double seconds) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, std::chrono::duration<double>(seconds),
                                  [&] { return state_->resting == threads_.size(); });
}

void Neighbours::check() {
  const std::lock_guard lock(state_->mutex);
  if (state_->failure) std::rethrow_exception(state_->failure);
}

Neighbours::AtWork::AtWork(Neighbours& neighbours) : neighbours_(neighbours) {
  neighbours_.state_->give(State::Order::work);
}

Neighbours::AtWork::~AtWork() {
  neighbours_.state_->give(State::Order::rest);
  while (!neighbours_.rest_within(kPollSeconds)) {  // until the step that each is at has ended
  }
}

}  // namespace kerf
