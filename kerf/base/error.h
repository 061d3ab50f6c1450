// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// One exception type. Misuse and bad input throw it; an expected answer such as "no plan fits" is a
// value and does not. Messages read `[room.function] what was found; what was expected; what to
// do`.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace kerf {

enum class ErrorKind {
  invalid_argument,      // a parameter of a call: device name, memory size, method name
  invalid_graph,         // a graph or its text form
  invalid_profile,       // a profile, or a profile of another graph
  invalid_plan,          // a plan, or a plan of another graph
  unsupported_operator,  // an operator or construct Kerf cannot handle
  io,                    // files
  missing_backend,       // a device or library that is not here
  run_failed,            // a stage failed while running
  internal,              // a broken invariant: a bug in Kerf
};

std::string_view to_string(ErrorKind kind);

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// Throws Error(internal) with the place and the condition: not for user mistakes.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               std::string_view message);

}  // namespace kerf

// A broken invariant is a bug. KERF_CHECK is always on, KERF_DCHECK in debug builds.
#define KERF_CHECK(condition, message)                                               \
  do {                                                                               \
    if (!(condition)) ::kerf::check_failed(__FILE__, __LINE__, #condition, message); \
  } while (false)

#ifdef NDEBUG
#define KERF_DCHECK(condition, message) \
  do {                                  \
  } while (false)
#else
#define KERF_DCHECK(condition, message) KERF_CHECK(condition, message)
#endif
