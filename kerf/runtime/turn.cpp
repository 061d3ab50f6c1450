// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/runtime/turn.h"

#include <algorithm>
#include <chrono>
#include <mutex>

#include "kerf/base/error.h"
#include "kerf/base/interrupt.h"

namespace kerf {
namespace {

// Guards every Turn and Turns. Held for a few steps, never while anything waits or runs.
std::mutex& turns_mutex() {
  static std::mutex mutex;
  return mutex;
}

thread_local Turn* innermost = nullptr;

}  // namespace

Turn::Turn(Turns& turns, Cycle cycle) : turns_(turns), outer_(innermost) {
  wait(cycle);
  innermost = this;
}

Turn::Turn(Turns& turns, std::function<bool()> is_over)
    : turns_(turns), is_over_(std::move(is_over)), outer_(innermost) {
  wait(Cycle::refuse);
}

Turn::~Turn() {
  if (!is_over_) innermost = outer_;
  bool held = false;
  {
    const std::lock_guard lock(turns_mutex());
    if (outer_ != nullptr) std::erase(outer_->inner_, this);
    for (Turn* const inner : inner_) inner->outer_ = nullptr;  // loose ones
    held = turns_.holder_ == this;
    if (held) turns_.holder_ = nullptr;
  }
  if (held) turns_.free_.notify_one();
}

bool Turn::is_held() const {
  const std::lock_guard lock(turns_mutex());
  return turns_.holder_ == this;
}

bool Turn::is_free() const {
  const Turn* const holder = turns_.holder_;
  return holder == nullptr || (holder->is_over_ && holder->is_over_());
}

void Turn::wait(Cycle cycle) {
  std::unique_lock lock(turns_mutex());
  while (!is_free()) {
    if (waits_for_ever(cycle)) {
      if (cycle == Cycle::refuse) refuse();
      break;
    }
    if (outer_ != nullptr) outer_->waiting_.push_back({&turns_, cycle});
    turns_.free_.wait_for(lock, std::chrono::duration<double>(kPollSeconds));
    if (outer_ != nullptr) {
      auto& waiting = outer_->waiting_;
      waiting.erase(std::find_if(waiting.begin(), waiting.end(), [&](const Wait& w) {
        return w.turns == &turns_ && w.cycle == cycle;
      }));
    }
    lock.unlock();
    poll_interrupt();
    lock.lock();
  }
  if (is_free()) turns_.holder_ = this;
  if (outer_ != nullptr) outer_->inner_.push_back(this);
}

// Does the holder end only after what this turn lies in? A turn ends after all that lie in it and
// all it waits for. Waits that are given up do not count, unless this one is about to give up
// itself: of two that wait for each other the one gives way that can.
bool Turn::waits_for_ever(Cycle cycle) const {
  if (outer_ == nullptr) return false;
  std::vector<const Turn*> reached{turns_.holder_};
  const auto add = [&](const Turn* turn) {
    if (turn == nullptr) return;
    if (std::find(reached.begin(), reached.end(), turn) == reached.end()) reached.push_back(turn);
  };
  for (std::size_t i = 0; i < reached.size(); ++i) {
    if (reached[i] == outer_) return true;
    for (const Turn* inner : reached[i]->inner_) add(inner);
    for (const Wait& wait : reached[i]->waiting_) {
      if (cycle == Cycle::go_on || wait.cycle == Cycle::refuse) add(wait.turns->holder_);
    }
  }
  return false;
}

bool Turn::waits_for_itself() const {
  const Turn* turn = outer_;
  while (turn != nullptr && turn != turns_.holder_) turn = turn->outer_;
  return turn != nullptr;
}

void Turn::refuse() const {
  throw Error(
      ErrorKind::run_failed,
      waits_for_itself()
          ? "[runtime.run] this pipeline is already running and is called again from inside "
            "that call, by an opaque block or a signal handler; expected a call after it "
            "has ended; make another pipeline for the inner call"
          : "[runtime.run] this call and one of another thread, both from inside a "
            "pipeline, would wait for each other; expected pipelines that call each other "
            "in one order; make another pipeline for the inner call");
}

InsideTurn::InsideTurn(Turn& turn) : before_(innermost) { innermost = &turn; }
InsideTurn::~InsideTurn() { innermost = before_; }

}  // namespace kerf
