// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/step_memory/step_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "kerf/base/error.h"
#include "kerf/simulate/step_memory/step.h"

namespace kerf {
namespace {

void check_trainable(const Graph& graph) {
  if (!graph.data().training) {
    throw Error(
        ErrorKind::invalid_argument,
        "[simulate.step_memory] training of a graph that was traced in eval mode, in which dropout "
        "drops nothing and batch norm keeps no statistics of the batch; expected one traced in "
        "train mode; trace it again: kerf.trace(model.train(), ...)");
  }
  const bool has_gradients =
      std::any_of(graph.outputs().begin(), graph.outputs().end(), [&](const GraphOutput& output) {
        const auto* const value = output.leaf.find<ValueId>();
        return value != nullptr && graph.value(*value).requires_grad;
      });
  if (!has_gradients) {
    throw Error(ErrorKind::invalid_argument,
                "[simulate.step_memory] training of a graph none of whose results requires a "
                "gradient; expected a trainable parameter; unfreeze one and trace again");
  }
}

std::int64_t checked_batch(const Graph& graph, std::int64_t batch) {
  if (batch == 0) return graph.data().example_batch;
  if (batch < 0) {
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("[simulate.step_memory] batch {}; expected a number of samples", batch));
  }
  if (graph.is_static()) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[simulate.step_memory] batch {} of a graph whose batch is static; "
                            "expected none; trace it at that batch",
                            batch));
  }
  return batch;
}

void check_profile(const Graph& graph, const StepRequest& request) {
  const Profile& profile = *request.profile;
  check_profile_matches(profile, graph);
  const auto refuse = [](std::string_view found, std::string_view expected) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[simulate.step_memory] {}; expected {}", found, expected));
  };
  if (profile.source != Source::measured || !request.accelerator) {
    refuse(request.accelerator ? "a profile that was not measured" : "a profile for a host",
           "one that kerf.profile measured on an accelerator, or none");
  }
  if (!graph.is_static() && profile.batch != request.batch) {
    refuse(
        fmt::format("a profile of batch {} for a step of batch {}", profile.batch, request.batch),
        "one batch; profile this one, or leave the profile out");
  }
  if (request.optimizer != nullptr && !profile.training) {
    refuse("a profile of forward alone for a training step",
           "backward too; profile with training=True");
  }
}

}  // namespace

StepMemory step_memory(const Graph& graph, const StepRequest& request) {
  if (request.optimizer != nullptr) check_trainable(graph);
  StepRequest asked = request;
  asked.batch = checked_batch(graph, request.batch);
  if (asked.profile != nullptr) check_profile(graph, asked);
  if (asked.regions.empty()) asked.regions.assign(graph.num_nodes(), kNoRegion);
  return Step(graph, asked).run();
}

}  // namespace kerf
