// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/driver/memory_advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "kerf/driver/replan.h"

namespace kerf {
namespace {

constexpr int kMostOffers = 2;
constexpr double kWorthIt = 0.95;  // of what is predicted now

// The same stages without limits: what they need is asked for, not whether it fits.
Plan without_limits(Plan plan) {
  for (Device& device : plan.cluster.devices) device.memory_limited = false;
  for (DeviceMemory& memory : plan.memory) {
    memory.limited = false;
    memory.limit = {};
  }
  return plan;
}

std::optional<Bytes> predict(const Plan& plan, const Graph& graph, DeviceId device, int count,
                             std::int64_t batch) {
  try {
    const auto outcome =
        replan(plan, graph, nullptr, count, batch > 0 ? std::optional(batch) : std::nullopt);
    if (!outcome) return std::nullopt;
    return outcome->memory.at(device.index()).predicted;
  } catch (const Error&) {  // the graph has conditions that such micro-batches do not meet
    return std::nullopt;
  }
}

}  // namespace

std::string memory_advice(const Plan& plan, const Graph& graph, DeviceId device,
                          std::int64_t batch) {
  const DeviceMemory& planned = plan.memory.at(device.index());
  const Plan free = without_limits(plan);
  const Bytes now =
      predict(free, graph, device, plan.n_microbatches, batch).value_or(planned.predicted);
  std::vector<std::string> offers;
  Bytes least = now;
  for (std::int64_t count = 2LL * plan.n_microbatches;
       count <= batch && offers.size() < kMostOffers; count *= 2) {
    const auto needed = predict(free, graph, device, static_cast<int>(count), batch);
    if (!needed || static_cast<double>(needed->count) > kWorthIt * static_cast<double>(least.count))
      continue;
    least = *needed;
    offers.push_back(fmt::format("n_microbatches={} needs {}", count, to_string(*needed)));
  }
  std::string out =
      fmt::format("the plan predicts {} for {} with this batch, and something else may use it too",
                  to_string(now), plan.cluster.device(device).name);
  out += offers.empty()
             ? "; more micro-batches would not need less: plan with a smaller memory limit"
             : fmt::format("; {}, or plan with a smaller memory limit", fmt::join(offers, ", "));
  if (plan.training && plan.recomputed.empty()) out += " or recompute='all'";
  return out;
}

}  // namespace kerf
