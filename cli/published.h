// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace kerf::cli {

// What `kerf plan --from FORMAT` takes.
struct PublishedOptions {
  std::string problem;
  std::string method;
  std::string objective = "throughput";
  bool contiguous = false;
  bool serial = false;
  double time_budget = 1;
  std::uint64_t seed = 0;
  int threads = 1;
  int stages = 0;  // as partition::Options has them
  std::string minimise = "stage_time";
  double imbalance = 0.03;
  bool json = false;
  std::string out;
};
int plan_published(const PublishedOptions& options);

}  // namespace kerf::cli
