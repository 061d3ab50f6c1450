// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/report/plan_rows.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kerf/emit/report/cut_out.h"
#include "kerf/emit/report/figures.h"
#include "kerf/emit/report/scopes.h"
#include "kerf/emit/report/text_table.h"

namespace kerf {
namespace {

using Align = TextTable::Align;

// A table by its columns: those of training have some that others do not.
class Columns {
 public:
  explicit Columns(std::size_t num_rows) : rows_(num_rows) {}

  // text(row): a cell.
  template <class Text>
  void add(std::string title, Align align, const Text& text) {
    heads_.push_back({std::move(title), align});
    for (std::size_t r = 0; r < rows_.size(); ++r) rows_[r].push_back(text(r));
  }
  template <class Text>
  void add(std::string title, const Text& text) {
    add(std::move(title), Align::right, text);
  }

  std::string str() && {
    TextTable table(std::move(heads_));
    for (std::vector<std::string>& row : rows_) table.add(std::move(row));
    return table.str();
  }

 private:
  std::vector<TextTable::Column> heads_;
  std::vector<std::vector<std::string>> rows_;
};

void add_times(Columns& columns, const Plan& plan) {
  const std::vector<Stage>& stages = plan.stages;
  columns.add(plan.training ? "forward" : "time",
              [&](std::size_t s) { return to_string(stages[s].time); });
  if (!plan.training) return;
  columns.add("backward", [&](std::size_t s) { return time_or_dash(stages[s].backward); });
  if (step_shape(plan).apart) {
    columns.add("for weights",
                [&](std::size_t s) { return time_or_dash(stages[s].weight_gradients); });
  }
  if (!plan.recomputed.empty()) {
    columns.add("again", [&](std::size_t s) { return time_or_dash(stages[s].recompute); });
  }
}

void add_sizes(Columns& columns, const Plan& plan) {
  const std::vector<Stage>& stages = plan.stages;
  columns.add("weights", [&](std::size_t s) { return to_string(stages[s].weights); });
  if (plan.training) {
    columns.add("saved", [&](std::size_t s) { return bytes_or_dash(stages[s].saved); });
  }
  columns.add("activations", [&](std::size_t s) { return to_string(stages[s].activations); });
  const std::vector<Bytes> cut = cut_bytes_of_stages(plan);
  columns.add("bytes cut", [&](std::size_t s) { return bytes_or_dash(cut[s]); });
  if (!plan.training) return;
  const std::vector<Bytes> sent = gradient_bytes_of_stages(plan);
  columns.add("sent back", [&](std::size_t s) { return bytes_or_dash(sent[s]); });
}

std::string used_text(const DeviceMemory& memory) {
  if (!memory.limited) return "";
  const auto limit = static_cast<double>(memory.limit.count);
  return percent(limit > 0 ? static_cast<double>(memory.predicted.count) / limit : 0);
}

}  // namespace

std::string stage_rows(const Plan& plan, const Graph* graph) {
  Columns columns(plan.num_stages());
  const std::vector<Stage>& stages = plan.stages;
  columns.add("stage", [](std::size_t s) { return std::to_string(s); });
  columns.add("device", Align::left,
              [&](std::size_t s) { return plan.cluster.device(stages[s].device).name; });
  columns.add("nodes", [&](std::size_t s) { return std::to_string(stages[s].nodes.size()); });
  add_times(columns, plan);
  add_sizes(columns, plan);
  if (graph != nullptr) {
    const std::vector<std::string> modules = scope_ranges(plan, *graph);
    columns.add("modules", Align::left, [&](std::size_t s) { return modules[s]; });
  }
  return std::move(columns).str();
}

std::string device_rows(const Plan& plan) {
  Columns columns(plan.cluster.num_devices());
  const std::vector<DeviceMemory>& memory = plan.memory;
  columns.add("device", Align::left, [&](std::size_t d) { return plan.cluster.devices[d].name; });
  columns.add("compute", [&](std::size_t d) { return time_or_dash(plan.loads[d].compute); });
  columns.add("transfers",
              [&](std::size_t d) { return time_or_dash(plan.loads[d].communication); });
  columns.add("weights", [&](std::size_t d) { return to_string(memory[d].weights); });
  if (plan.training) {
    columns.add("gradients", [&](std::size_t d) { return bytes_or_dash(memory[d].gradients); });
    columns.add("optimizer", [&](std::size_t d) { return bytes_or_dash(memory[d].optimizer); });
  }
  columns.add("activations", [&](std::size_t d) { return to_string(memory[d].activations); });
  columns.add("memory", [&](std::size_t d) { return to_string(memory[d].predicted); });
  columns.add("limit", [&](std::size_t d) {
    return memory[d].limited ? to_string(memory[d].limit) : std::string("none");
  });
  columns.add("used", [&](std::size_t d) { return used_text(memory[d]); });
  return std::move(columns).str();
}

}  // namespace kerf
