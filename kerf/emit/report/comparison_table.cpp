// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/report/comparison_table.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

#include "kerf/emit/report/text_table.h"

namespace kerf {
namespace {

using Align = TextTable::Align;
constexpr FormatVersion kComparisonVersion{1, 1};

Bytes fullest(const Plan& plan) {
  Bytes most;
  for (const DeviceMemory& memory : plan.memory) most = std::max(most, memory.predicted);
  return most;
}

std::string gap_text(const Plan& plan) {
  if (plan.lower_bound.value <= 0) return "-";
  constexpr double kRounding = 1e-9;
  if (plan.gap() <= kRounding) return "proved";
  return plan.gap() < 5e-5 ? "< 0.01 %" : fmt::format("{:.2f} %", plan.gap() * 100);
}

// Seconds, or bytes for the objective memory.
double unit(Objective objective, double value) {
  return objective == Objective::memory ? value : value * 1e-9;
}

}  // namespace

std::string comparison_table(const Comparison& comparison) {
  // A column that would say the objective again is left out.
  const bool with_step = comparison.objective != Objective::step;
  const bool with_memory = comparison.objective != Objective::memory;
  std::vector<TextTable::Column> columns{
      {"method", Align::left},
      {std::string(to_string(comparison.objective)), Align::right},
      {"bound", Align::right},
      {"gap", Align::right},
      {"stages", Align::right}};
  if (with_step) columns.push_back({"step", Align::right});
  if (with_memory) columns.push_back({"memory", Align::right});
  columns.push_back({"seconds", Align::right});
  columns.push_back({"", Align::left});
  TextTable table(columns);
  std::map<std::string, std::string> reasons;  // methods by what they say
  for (const ComparedMethod& row : comparison.methods) {
    const std::string seconds = fmt::format("{:.3f}", row.cpu_seconds);
    std::vector<std::string> cells{row.method};
    if (row.found) {
      const Plan& plan = row.plan;
      cells.push_back(objective_text(comparison.objective, plan.objective_value()));
      cells.push_back(objective_text(comparison.objective, plan.lower_bound.value));
      cells.push_back(gap_text(plan));
      cells.push_back(std::to_string(plan.num_stages()));
      if (with_step) cells.push_back(to_string(plan.step_time));
      if (with_memory) cells.push_back(to_string(fullest(plan)));
      cells.push_back(seconds);
      cells.emplace_back(plan.timed_out   ? "stopped by the clock"
                         : plan.truncated ? "stopped early"
                                          : "");
    } else {
      cells.resize(columns.size() - 2, "-");
      cells.push_back(seconds);
      cells.emplace_back("no plan");
      // "[partition.chain] ..." but for the name.
      const std::string text = row.reason.substr(row.reason.find("] ") + 2);
      std::string& methods = reasons[text];
      methods += (methods.empty() ? "" : ", ") + row.method;
    }
    table.add(std::move(cells));
  }
  std::string out = table.str();
  if (!comparison.bound.name.empty()) {
    out +=
        fmt::format("\nlower bound ({}): {}\n", comparison.bound.name, comparison.bound.argument);
  }
  for (const auto& [text, methods] : reasons) out += fmt::format("{}: {}\n", methods, text);
  return out;
}

Json comparison_json(const Comparison& comparison) {
  Json json = format_header("kerf-comparison", kComparisonVersion);
  json["objective"] = to_string(comparison.objective);
  json["lower_bound"] = nullptr;
  if (!comparison.bound.name.empty()) {
    json["lower_bound"] = {{"name", comparison.bound.name},
                           {"value", unit(comparison.objective, comparison.bound.value)},
                           {"argument", comparison.bound.argument}};
  }
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
      entry["timed_out"] = row.plan.timed_out;
    } else {
      entry["reason"] = row.reason;
    }
    json["methods"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace kerf
