// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/error.h"

#include <fmt/format.h>

namespace kerf {

std::string_view to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_argument: return "invalid argument";
    case ErrorKind::invalid_graph: return "invalid graph";
    case ErrorKind::invalid_profile: return "invalid profile";
    case ErrorKind::invalid_plan: return "invalid plan";
    case ErrorKind::unsupported_operator: return "unsupported operator";
    case ErrorKind::io: return "io";
    case ErrorKind::missing_backend: return "missing backend";
    case ErrorKind::run_failed: return "run failed";
    case ErrorKind::internal: return "internal";
  }
  return "unknown";
}

void check_failed(const char* file, int line, const char* condition, std::string_view message) {
  throw Error(ErrorKind::internal,
              fmt::format("[internal] {}:{}: {} ({}); this is a bug in Kerf, please report it",
                          file, line, message, condition));
}

}  // namespace kerf
