// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/codegen/config_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "kerf/emit/codegen/python_text.h"
#include "kerf/emit/codegen/value_text.h"
#include "kerf/graph/expr.h"

namespace kerf::codegen {
namespace {

class ConfigWriter {
 public:
  ConfigWriter(const Graph& graph, const Plan& plan, const Borders& borders, const Names& names)
      : graph_(graph), plan_(plan), borders_(borders), names_(names) {}

  Code write() const {
    std::vector<Code> rows;
    if (const int dim = batch_dim(); dim >= 0)
      rows.emplace_back(fmt::format("\"batch_dim\": {}", dim));
    rows.push_back(inputs().after("\"model_inputs\": "));
    rows.push_back(outputs().after("\"model_outputs\": "));
    rows.push_back(stages().after("\"stages\": "));
    rows.push_back(device_map().after("\"stage_to_device_map\": "));
    return {"return ", Bracket::dict, std::move(rows)};
  }

 private:
  static Code dict(std::vector<Code> rows) {
    if (rows.empty()) return "{}";
    return {"", Bracket::dict, std::move(rows)};
  }
  static Code numbers(const std::vector<int>& values) {
    std::vector<Code> items;
    for (const int value : values) items.emplace_back(std::to_string(value));
    return {"", Bracket::list, std::move(items)};
  }

  // The dimension of the samples where all inputs have them in one.
  int batch_dim() const {
    int found = -1;
    for (const GraphInput& input : graph_.inputs()) {
      const Sizes& shape = graph_.value(input.value).shape;
      const auto at = std::find(shape.begin(), shape.end(), Expr::batch());
      if (at == shape.end()) continue;
      const int dim = static_cast<int>(at - shape.begin());
      if (found >= 0 && found != dim) return -1;
      found = dim;
    }
    return found;
  }

  std::vector<Code> tensor_rows(ValueId id) const {
    const Value& value = graph_.value(id);
    std::vector<Code> sizes;
    for (const Expr& size : value.shape) sizes.emplace_back(size_text(size));
    Code shape = value.scalar ? Code("None") : Code("", Bracket::list, std::move(sizes));
    return {shape.after("\"shape\": "), "\"dtype\": " + dtype_text(value.dtype),
            std::string("\"is_batched\": ") + (value.depends_on_batch() ? "True" : "False")};
  }

  // Once it has been written to, perhaps.
  bool needs_gradient(ValueId id) const {
    const Value& value = graph_.value(id);
    return std::any_of(graph_.values().begin(), graph_.values().end(), [&](const Value& other) {
      const bool same = value.storage.valid() && other.storage == value.storage;
      return other.requires_grad && (same || other.name == value.name);
    });
  }

  Code row(ValueId id, Code last, bool gradient) const {
    std::vector<Code> rows = tensor_rows(id);
    const bool grad = needs_gradient(id);
    if (gradient) rows.emplace_back(std::string("\"req_grad\": ") + (grad ? "True" : "False"));
    rows.push_back(std::move(last));
    return dict(std::move(rows));
  }

  Code inputs() const {
    std::vector<Code> rows;
    for (const GraphInput& input : graph_.inputs()) {
      const Travel& travel = borders_.travels[input.value.index()];
      rows.push_back(row(input.value, numbers(travel.to).after("\"used_by\": "), false)
                         .after(string_literal(names_.of(input.value)) + ": "));
    }
    return dict(std::move(rows));
  }

  Code outputs() const {
    std::vector<Code> rows;
    std::vector<ValueId> met;
    for (const GraphOutput& output : graph_.outputs()) {
      const auto* id = output.leaf.find<ValueId>();
      if (id == nullptr || std::find(met.begin(), met.end(), *id) != met.end()) continue;
      met.push_back(*id);
      const Travel& travel = borders_.travels[id->index()];
      rows.push_back(row(*id, fmt::format("\"created_by\": {}", travel.from), false)
                         .after(string_literal(names_.of(*id)) + ": "));
    }
    return dict(std::move(rows));
  }

  Code stage_inputs(const Border& border) const {
    std::vector<Code> rows;
    for (const ValueId id : border.takes) {
      const int stage = static_cast<int>(border.stage.index());
      const int from = borders_.travels[id.index()].giver_of(stage);
      rows.push_back(row(id, fmt::format("\"created_by\": {}", from), true)
                         .after(string_literal(names_.of(id)) + ": "));
    }
    if (border.uses_batch && !border.batch) {
      rows.push_back(dict({"\"shape\": None", "\"dtype\": int", "\"is_batched\": True",
                           "\"req_grad\": False", "\"created_by\": -1"})
                         .after("\"B\": "));
    }
    return dict(std::move(rows));
  }

  Code stage_outputs(const Border& border) const {
    std::vector<Code> rows;
    for (const ValueId id : border.gives) {
      const Travel& travel = borders_.travels[id.index()];
      const std::vector<int> to = travel.given_by(static_cast<int>(border.stage.index()));
      rows.push_back(row(id, numbers(to).after("\"used_by\": "), true)
                         .after(string_literal(names_.of(id)) + ": "));
    }
    return dict(std::move(rows));
  }

  // Stages between each and the result, by the longest way.
  std::vector<int> depths() const {
    std::vector<int> out(borders_.stages.size(), 0);
    for (std::size_t s = out.size(); s-- > 0;) {
      for (const ValueId id : borders_.stages[s].gives) {
        for (const int to : borders_.travels[id.index()].given_by(static_cast<int>(s))) {
          if (to >= 0) out[s] = std::max(out[s], out[static_cast<std::size_t>(to)] + 1);
        }
      }
    }
    return out;
  }

  Code stages() const {
    const std::vector<int> depth = depths();
    std::vector<Code> rows;
    for (std::size_t s = 0; s < borders_.stages.size(); ++s) {
      const std::string device = plan_.cluster.device(plan_.stages[s].device).name;
      rows.push_back(dict({fmt::format("\"class\": Stage{}", s),
                           stage_inputs(borders_.stages[s]).after("\"inputs\": "),
                           stage_outputs(borders_.stages[s]).after("\"outputs\": "),
                           "\"devices\": [" + string_literal(device) + "]",
                           fmt::format("\"stage_depth\": {}", depth[s])})
                         .after(fmt::format("{}: ", s)));
    }
    return dict(std::move(rows));
  }

  // Devices by the order in which stages meet them.
  Code device_map() const {
    std::vector<DeviceId> met;
    std::vector<int> out;
    for (const Stage& stage : plan_.stages) {
      const auto at = std::find(met.begin(), met.end(), stage.device);
      out.push_back(static_cast<int>(at - met.begin()));
      if (at == met.end()) met.push_back(stage.device);
    }
    return numbers(out);
  }

  const Graph& graph_;
  const Plan& plan_;
  const Borders& borders_;
  const Names& names_;
};

}  // namespace

void write_config(const Graph& graph, const Plan& plan, const Borders& borders, const Names& names,
                  Lines& lines) {
  const bool sized = !graph.is_static();
  lines.add(Code("def config", Bracket::call,
                 sized ? std::vector<Code>{fmt::format("B={}", graph.data().example_batch)}
                       : std::vector<Code>{},
                 ":"));
  lines.indent();
  lines.raw(sized
                ? "\"\"\"What goes where, for a (micro-)batch of B samples; -1 is the caller.\"\"\""
                : "\"\"\"What goes where; -1 is the caller.\"\"\"");
  lines.add(ConfigWriter(graph, plan, borders, names).write());
  lines.dedent();
}

}  // namespace kerf::codegen
