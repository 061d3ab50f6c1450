// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/driver/stream_window.h"

#include <fmt/format.h>

#include <algorithm>

#include "kerf/driver/replan.h"
#include "kerf/graph/pure.h"

namespace kerf {

std::string why_not_overlapped(const Plan& plan, const Graph& graph, bool batch_independent) {
  const auto devices = plan.stage_devices();
  if (std::all_of(devices.begin(), devices.end(),
                  [&](DeviceId device) { return device == devices.front(); })) {
    return "all stages are on one device";
  }
  if (!leaves_nothing(graph)) return "the model writes inputs or buffers";
  const auto block = std::find_if(graph.nodes().begin(), graph.nodes().end(),
                                  [](const Node& node) { return node.op == "opaque"; });
  if (block == graph.nodes().end() || batch_independent) return {};
  return fmt::format("block '{}' runs as Python, and may keep something from batch to batch",
                     graph.scope(block->scope).path);
}

bool fits_stream(const Plan& plan, const Graph& graph, int window) {
  const bool limited = std::any_of(plan.memory.begin(), plan.memory.end(),
                                   [](const DeviceMemory& memory) { return memory.limited; });
  if (!limited || window == 1) return true;
  if (graph.is_static() || plan.training) return false;
  return static_cast<bool>(
      replan(plan, graph, nullptr, plan.n_microbatches * window, plan.batch * window));
}

int stream_window(const Plan& plan, const Graph& graph) {
  int window = static_cast<int>(plan.num_stages()) + 1;
  while (!fits_stream(plan, graph, window)) --window;
  return window;
}

}  // namespace kerf
