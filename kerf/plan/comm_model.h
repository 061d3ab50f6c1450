// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kerf {

// Who pays for a tensor that one device makes and another needs.
enum class CommModel : std::uint8_t {
  // A tensor that a device needs from another is fetched once, however many of its stages use it,
  // over the link from the producer; the receiver spends latency + bytes / bandwidth on it beside
  // its own compute, the sender nothing.
  link,
  // All tensors go through host memory. The accelerator that makes one spends the time of the
  // slowest of its links to those that need it, once; each other accelerator that needs it spends
  // its link's time, once. Host devices spend nothing.
  host_staged,
  // The device that makes a tensor sends it to each device that needs it, once, while it computes;
  // only what takes longer than its compute counts.
  overlapped,
};
// Its name in files, on the command line and in Python.
std::string_view to_string(CommModel model);
// Throws Error(invalid_argument), which lists the names.
CommModel parse_comm_model(std::string_view name);
std::vector<std::string> comm_model_names();

}  // namespace kerf
