// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Long calls from Python: the interpreter lock is free meanwhile, and signals are answered.
//
//   m.def("plan", interruptible(&plan_graph), ...);
//   interruptible_call([&] { result = pipeline.run(...); });
#pragma once

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <exception>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "kerf/base/interrupt.h"

namespace kerf::bindings {

// Do signal handlers run on the calling thread, which holds the interpreter lock?
inline bool handles_signals() {
  // Asking Python takes longer than launching a recorded stage. A process that was forked by
  // another thread has another main thread.
  static pid_t asked_in = 0;
  static unsigned long main_thread = 0;
  if (asked_in != getpid()) {
    main_thread = pybind11::module_::import("threading")
                      .attr("main_thread")()
                      .attr("ident")
                      .cast<unsigned long>();
    asked_in = getpid();
  }
  return main_thread == PyThread_get_thread_ident();
}

// Calls `work` without the interpreter lock. Where work polls (kerf/base/interrupt.h) Python's
// signal handlers are called, on the main thread, where they belong; what a handler raises ends the
// work and leaves here as it is, KeyboardInterrupt or another. `on_raise` is called then, with the
// lock: it may help the work to an end. On other threads, which work for a call that polls, that
// call's end is this one's, and `on_raise` is called too.
//
// Not by guard objects: when the interpreter is ending, taking the lock again ends the calling
// thread, and a thread must not end inside a destructor.
template <class Work>
void interruptible_call(Work&& work, const std::function<void()>& on_raise = [] {}) {
  std::exception_ptr raised;   // by a signal handler
  std::exception_ptr failure;  // of the work
  const bool polls = handles_signals();
  PyThreadState* state = PyEval_SaveThread();
  const auto poll = [&] {
    PyEval_RestoreThread(state);
    if (PyErr_CheckSignals() != 0) {
      const auto now = std::make_exception_ptr(pybind11::error_already_set());
      if (!raised) raised = now;
      on_raise();
    }
    state = PyEval_SaveThread();
    if (raised) throw Interrupted();
  };
  const auto pass_on = [&, outer = current_poll()] {
    const PollScope inherited(outer);
    try {
      poll_interrupt();
    } catch (...) {
      PyEval_RestoreThread(state);
      on_raise();
      state = PyEval_SaveThread();
      throw;
    }
  };
  try {
    const PollScope scope(polls ? std::function<void()>(poll) : pass_on);
    work();
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  PyEval_RestoreThread(state);
  if (raised) std::rethrow_exception(raised);
  if (failure) std::rethrow_exception(failure);
}

// A function to bind that does the same as `function`, interruptibly.
template <class Result, class... Arguments>
auto interruptible(Result (*function)(Arguments...)) {
  return [function](Arguments... arguments) -> Result {
    if constexpr (std::is_void_v<Result>) {
      interruptible_call([&] { function(std::forward<Arguments>(arguments)...); });
    } else {
      std::optional<Result> result;
      interruptible_call([&] { result.emplace(function(std::forward<Arguments>(arguments)...)); });
      return std::move(*result);
    }
  };
}

}  // namespace kerf::bindings
