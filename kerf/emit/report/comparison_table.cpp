// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/report/comparison_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "kerf/emit/report/text_table.h"

namespace kerf {
namespace {

using Align = TextTable::Align;
constexpr FormatVersion kVersion{1, 0};

Bytes fullest(const Plan& plan) {
  Bytes most;
  for (const DeviceMemory& memory : plan.memory) most = std::max(most, memory.predicted);
  return most;
}

std::string gap_text(const Plan& plan) {
  if (plan.lower_bound.value <= 0) return "-";
  return plan.gap() < 1e-5 ? "proved" : fmt::format("{:.2f} %", plan.gap() * 100);
}

// Seconds, or bytes for the objective memory.
double unit(Objective objective, double value) {
  return objective == Objective::memory ? value : value * 1e-9;
}

}  // namespace

std::string comparison_table(const Comparison& comparison) {
  const std::string objective(to_string(comparison.objective));
  TextTable table({{"method", Align::left},
                   {objective, Align::right},
                   {"bound", Align::right},
                   {"gap", Align::right},
                   {"stages", Align::right},
                   {"step", Align::right},
                   {"memory", Align::right},
                   {"seconds", Align::right},
                   {"", Align::left}});
  for (const ComparedMethod& row : comparison.methods) {
    const std::string seconds = fmt::format("{:.3f}", row.cpu_seconds);
    if (!row.found) {
      table.add({row.method, "-", "-", "-", "-", "-", "-", seconds, "no plan"});
      continue;
    }
    const Plan& plan = row.plan;
    table.add({row.method, objective_text(comparison.objective, plan.objective_value()),
               objective_text(comparison.objective, plan.lower_bound.value), gap_text(plan),
               std::to_string(plan.num_stages()), to_string(plan.step_time),
               to_string(fullest(plan)), seconds, plan.truncated ? "stopped early" : ""});
  }
  std::string out = table.str();
  if (!comparison.bound.name.empty()) {
    out +=
        fmt::format("\nlower bound ({}): {}\n", comparison.bound.name, comparison.bound.argument);
  }
  for (const ComparedMethod& row : comparison.methods) {
    if (!row.found) out += fmt::format("{}: {}\n", row.method, row.reason);
  }
  return out;
}

Json comparison_json(const Comparison& comparison) {
  Json json = format_header("kerf-comparison", kVersion);
  json["objective"] = to_string(comparison.objective);
  json["lower_bound"] = {{"name", comparison.bound.name},
                         {"value", unit(comparison.objective, comparison.bound.value)},
                         {"argument", comparison.bound.argument}};
  json["methods"] = Json::array();
  for (const ComparedMethod& row : comparison.methods) {
    Json entry;
    entry["method"] = row.method;
    entry["cpu_seconds"] = row.cpu_seconds;
    if (row.found) {
      entry["objective"] = unit(comparison.objective, row.plan.objective_value());
      entry["gap"] = row.plan.lower_bound.value > 0 ? Json(row.plan.gap()) : Json(nullptr);
      entry["stages"] = row.plan.num_stages();
      entry["step_s"] = row.plan.step_time.count * 1e-9;
      entry["memory_bytes"] = fullest(row.plan).count;
      entry["contiguous"] = row.plan.contiguous;
      entry["truncated"] = row.plan.truncated;
    } else {
      entry["reason"] = row.reason;
    }
    json["methods"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace kerf
