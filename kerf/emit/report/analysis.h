// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What each stage and each device does in one micro-batch, and what the split gains: the figures by
// which people judge a pipeline.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kerf/base/json.h"
#include "kerf/plan/plan.h"
#include "kerf/plan/timeline.h"

namespace kerf {

// One micro-batch. Transfers are those of tensors and gradients that come from other devices, each
// once for a device; what stays on a device is free.
struct StageAnalysis {
  DeviceId device;
  Nanoseconds forward;
  Nanoseconds backward;   // training; with what is computed again
  Nanoseconds recompute;  // the share of `backward` that computes forwards again
  Nanoseconds forward_transfers;
  Nanoseconds backward_transfers;
  Bytes received;                          // from other devices, forward
  Bytes sent;                              // to other devices, forward: once for each
  std::optional<std::int64_t> parameters;  // elements of the weights it uses; not known: no graph

  Nanoseconds compute() const { return forward + backward; }
  Nanoseconds transfers() const { return forward_transfers + backward_transfers; }
  // compute / (compute + transfers); 1 where there is nothing to do.
  double compute_share() const;
};

struct DeviceAnalysis {
  Nanoseconds forward;
  Nanoseconds backward;
  Nanoseconds transfers;   // that it pays for, by the plan's communication model
  double utilisation = 0;  // of the busiest device's time
  std::optional<std::int64_t> parameters;
  Bytes peak;  // predicted for the whole step

  Nanoseconds busy() const { return forward + backward + transfers; }
};

struct Analysis {
  std::vector<StageAnalysis> stages;
  std::vector<DeviceAnalysis> devices;
  Nanoseconds busiest;                    // with transfers
  Nanoseconds busiest_without_transfers;  // the most compute of a device
  // All compute shared out in proportion to the devices' speeds.
  Nanoseconds ideal;
  // Everything on the fastest device, nothing sent: as the plan has it, and with nothing computed
  // again.
  Nanoseconds one_device;
  Nanoseconds sequential;
  bool measured = false;                    // times are of a timeline, else predicted
  std::vector<std::string> not_contiguous;  // tensors that devices send and that have gaps

  double slowdown() const;          // busiest / ideal: 1 is a perfect split
  double expected_speedup() const;  // one_device / busiest
  double speedup() const;           // sequential / busiest
};

// Of the plan alone. With its graph, parameters are counted and layouts looked at. With the
// timeline of a run, times are the medians of its stages, and transfers those it has.
// Throws Error(invalid_plan) for another graph's plan, Error(invalid_argument) for a timeline of
// another plan.
Analysis analyse(const Plan& plan, const Graph* graph = nullptr,
                 const Timeline* measured = nullptr);

// For people: a row a stage, a row a device, and what the split gains. Ends with a newline.
std::string analysis_table(const Plan& plan, const Analysis& analysis);
// "kerf-analysis" 1.0: times in seconds, sizes in bytes.
Json analysis_json(const Plan& plan, const Analysis& analysis);

}  // namespace kerf
