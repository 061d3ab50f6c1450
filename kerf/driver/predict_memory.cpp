// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/driver/predict_memory.h"

#include "kerf/base/error.h"
#include "kerf/device/kind.h"

namespace kerf {

StepMemory predict_memory(const Graph& graph, const MemorySettings& settings) {
  StepRequest request;
  request.profile = settings.profile;
  request.list_blocks = settings.list_blocks;
  request.batch = settings.batch;
  request.accelerator = !device_kind(settings.device_kind).host;
  const Optimizer& steps = optimizer(settings.optimizer);
  if (settings.training) request.optimizer = &steps;
  if (settings.recompute.name() == "auto") {
    throw Error(ErrorKind::invalid_argument,
                "[driver.memory] recompute 'auto', which a planner decides by the memory of its "
                "devices; expected none, all, as_traced or modules; give one of them, or plan with "
                "auto");
  }
  request.regions = recompute_regions(graph, chosen_blocks(graph, settings.recompute));
  if (!graph.is_static()) {
    const std::int64_t batch = settings.batch == 0 ? graph.data().example_batch : settings.batch;
    check_conditions(graph.conditions(), batch, 1, "[driver.memory]");
  }
  return step_memory(graph, request);
}

}  // namespace kerf
