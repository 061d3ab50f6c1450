// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/report/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "kerf/emit/report/figures.h"
#include "kerf/emit/report/plan_rows.h"
#include "kerf/plan/recording_memory.h"

namespace kerf {
namespace {

std::string heading(const Plan& plan) {
  std::string out =
      fmt::format("{}: {} on {}, method {}", plan.graph_name, counted(plan.num_stages(), "stage"),
                  counted(plan.cluster.num_devices(), "device"), plan.method);
  if (plan.truncated) out += " (stopped early: a better plan may exist)";
  if (plan.timed_out) out += " (stopped by the clock: another run may give another plan)";
  return out + '\n';
}

std::string batches(const Plan& plan) {
  if (plan.batch == 0) return "fixed, 1 micro-batch";
  if (plan.n_microbatches == 1) return fmt::format("{} in 1 micro-batch", plan.batch);
  const bool uneven = plan.batch % plan.n_microbatches != 0;
  return fmt::format("{} in {} micro-batches of {}{}", plan.batch, plan.n_microbatches,
                     uneven ? "at most " : "", plan.micro_batch);
}

std::string profile_line(const Plan& plan) {
  return fmt::format("{} on {}{}", to_string(plan.profile_source), plan.profile_kind,
                     plan.profile_batch == 0 ? std::string(", fixed batch")
                                             : fmt::format(", batch {}", plan.profile_batch));
}

// "nothing (none)", or "2 blocks (auto), 1.20 ms per micro-batch: h.0, h.1".
std::string recompute_text(const Plan& plan) {
  constexpr std::size_t kMostNames = 6;
  if (plan.recomputed.empty()) return fmt::format("nothing ({})", plan.recompute);
  Nanoseconds time;
  for (const Stage& stage : plan.stages) time += stage.recompute;
  const auto names = std::span(plan.recomputed);
  const std::string more = names.size() > kMostNames ? ", ..." : "";
  return fmt::format("{} ({}), {} per micro-batch: {}{}", counted(names.size(), "block"),
                     plan.recompute, to_string(time),
                     fmt::join(names.first(std::min(names.size(), kMostNames)), ", "), more);
}

std::string bound_text(const Plan& plan) {
  const LowerBound& bound = plan.lower_bound;
  if (bound.name.empty()) return "none known";
  std::string out = fmt::format("{} ({})", objective_text(plan.objective, bound.value), bound.name);
  if (bound.value > 0) {
    const double gap = plan.gap();
    constexpr double kRounding = 1e-9;
    if (gap <= kRounding) {
      out += ", reached";
    } else {
      out += gap < 5e-4 ? ", gap below 0.1 %" : fmt::format(", gap {}", percent(gap));
    }
  }
  return out;
}

// "2 more copies: cpu:2, cpu:3; cpu:4, cpu:5". Devices in the order of the stages, each once.
std::string replicas_text(const Plan& plan) {
  constexpr std::size_t kMostShown = 4;
  const std::size_t count = plan.replicas.size();
  std::string out = fmt::format("{} more {}", count, count == 1 ? "copy" : "copies");
  for (std::size_t r = 0; r < std::min(count, kMostShown); ++r) {
    std::vector<DeviceId> seen;
    for (const DeviceId device : plan.replicas[r]) {
      if (std::find(seen.begin(), seen.end(), device) != seen.end()) continue;
      out += seen.empty() ? (r == 0 ? ": " : "; ") : ", ";
      out += plan.cluster.device(device).name;
      seen.push_back(device);
    }
  }
  return count > kMostShown ? out + "; ..." : out;
}

// "up to 12.0 MiB more on cuda:0, 8.00 MiB on cuda:1"; empty without accelerators.
std::string recordings_text(const Plan& plan) {
  std::string out;
  for (std::size_t d = 0; d < plan.cluster.num_devices(); ++d) {
    const Bytes bytes = recording_memory(plan, DeviceId(d));
    if (bytes.count == 0) continue;
    const DeviceMemory& memory = plan.memory[d];
    const bool fits = !memory.limited || memory.predicted + bytes <= memory.limit;
    out += fmt::format("{}{}{} on {}", out.empty() ? "CUDA graphs may take " : ", ",
                       to_string(bytes), out.empty() ? " more" : "", plan.cluster.devices[d].name);
    if (!fits) out += " (no room: not recorded)";
  }
  return out;
}

std::string predictions(const Plan& plan) {
  const auto line = [](std::string_view label, const std::string& text) {
    return fmt::format("{:<20}{}\n", label, text);
  };
  const std::string rate =
      fmt::format("{:.{}f} {} per second", plan.throughput, plan.throughput < 10 ? 2 : 0,
                  plan.batch == 0 ? "steps" : "samples");
  std::string out;
  out += line("batch", fmt::format("{}, schedule {}", batches(plan), plan.schedule));
  out += line("costs", profile_line(plan));
  out += line("busiest device", to_string(plan.busiest) + " per micro-batch");
  if (plan.objective != Objective::throughput) {
    out += line("objective", fmt::format("{}: {}", to_string(plan.objective),
                                         objective_text(plan.objective, plan.objective_value())));
  }
  out += line("lower bound", bound_text(plan));
  if (!plan.lower_bound.argument.empty()) out += line("", plan.lower_bound.argument);
  out += line("bytes cut", fmt::format("{} per micro-batch", to_string(plan.cut_bytes())));
  if (plan.training) {
    out +=
        line("gradients sent", fmt::format("{} per micro-batch", to_string(plan.gradient_bytes())));
    out += line("optimizer", plan.optimizer);
    out += line("computed again", recompute_text(plan));
  }
  out += line("bubble", percent(plan.bubble));
  out += line("latency", to_string(plan.latency) + " for one micro-batch");
  if (const std::string text = recordings_text(plan); !text.empty())
    out += line("recordings", text);
  if (!plan.replicas.empty()) out += line("replicas", replicas_text(plan));
  out += line("predicted step time", fmt::format("{}, {}", to_string(plan.step_time), rate));
  return out;
}

}  // namespace

std::string plan_table(const Plan& plan, const Graph* graph) {
  std::string out = heading(plan) + '\n' + stage_rows(plan, graph) + '\n' + device_rows(plan) +
                    '\n' + predictions(plan);
  for (const std::string& note : plan.cluster.notes) {
    const bool again = std::find(plan.notes.begin(), plan.notes.end(), note) != plan.notes.end();
    if (!again) out += "note: " + note + '\n';
  }
  for (const std::string& note : plan.notes) out += "note: " + note + '\n';
  return out;
}

}  // namespace kerf
