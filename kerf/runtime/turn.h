// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Who may use a thing that serves one at a time, such as an executor, and who waits for whom. A
// call may lie inside another: an opaque block, a custom operator or a signal handler may call a
// pipeline, on the thread that runs it. So a turn knows what it lies in, and a wait that could
// never end is refused.
//
//   call of P ──► block ──► call of Q ──► block ──► call of P      waits for itself: refused
//   call of P ──► block ──► waits for Q      }
//   call of Q ──► block ──► waits for P      }                     wait for each other: refused
#pragma once

#include <condition_variable>
#include <functional>
#include <vector>

namespace kerf {

class Turn;

// The turns at one thing. Must outlive them.
class Turns {
 public:
  Turns() = default;
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

 private:
  friend class Turn;
  Turn* holder_ = nullptr;
  std::condition_variable free_;
};

// A turn, from construction to destruction, on one thread; or a loose one.
class Turn {
 public:
  // What to do where waiting would never end.
  enum class Cycle { refuse, go_on };

  // Waits for the turn, and polls meanwhile (base/interrupt.h). A wait that could never end throws
  // Error(run_failed); with `go_on` it is given up and the turn not had: for things that are better
  // used one at a time but need not be.
  explicit Turn(Turns& turns, Cycle cycle = Cycle::refuse);
  // A loose turn: for work that goes on after the caller was answered, and may be ended by another
  // thread. It passes to the next who asks once `is_over` says so, which is called by any thread
  // and must not take turns; its thread works in it only where InsideTurn says so.
  Turn(Turns& turns, std::function<bool()> is_over);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool is_held() const;

 private:
  friend class InsideTurn;
  struct Wait {
    Turns* turns;
    Cycle cycle;
  };

  bool is_free() const;
  bool waits_for_ever(Cycle cycle) const;
  void wait(Cycle cycle);
  bool waits_for_itself() const;
  [[noreturn]] void refuse() const;

  Turns& turns_;
  const std::function<bool()> is_over_;  // empty: not a loose one
  Turn* outer_;                          // what this one lies in; null: nothing, or it has ended
  std::vector<Turn*> inner_;             // the turns that lie in this one, now
  std::vector<Wait> waiting_;            // what threads that work in this turn wait for, now
};

// Makes the calling thread work in `turn` while it lives: for threads that work for its holder.
class InsideTurn {
 public:
  explicit InsideTurn(Turn& turn);
  ~InsideTurn();
  InsideTurn(const InsideTurn&) = delete;
  InsideTurn& operator=(const InsideTurn&) = delete;

 private:
  Turn* before_;
};

}  // namespace kerf
