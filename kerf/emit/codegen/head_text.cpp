// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/codegen/head_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "kerf/emit/codegen/code.h"
#include "kerf/emit/codegen/opaque_call.h"
#include "kerf/emit/codegen/python_text.h"
#include "kerf/emit/report/scopes.h"
#include "kerf/graph/operator.h"

namespace kerf::codegen {
namespace {

std::string device_name(const Plan& plan, StageId stage) {
  return plan.cluster.device(plan.stage(stage).device).name;
}

std::string mode_note(const Graph& graph, const ModeDifferences* modes) {
  if (modes != nullptr) return "They have the model's train and eval modes.";
  const std::string_view mode = graph.data().training ? "train" : "eval";
  return fmt::format(
      "They do what the model does in {} mode, in which it was traced, and refuse the other.",
      mode);
}

// Namespaces of operators that PyTorch does not have by itself.
std::set<std::string> foreign_namespaces(const Graph& graph) {
  std::set<std::string> out;
  for (const Node& node : graph.nodes()) {
    const std::string space = node.op.substr(0, node.op.find('.'));
    if (node.op != "opaque" && space != "aten" && space != "prims") out.insert(space);
  }
  return out;
}

std::vector<std::string> notes(const Graph& graph, const Plan& plan, const Borders& borders,
                               const ModeDifferences* modes) {
  std::vector<std::string> out{mode_note(graph, modes)};
  const auto any = [&](auto&& test) {
    return std::any_of(graph.nodes().begin(), graph.nodes().end(), test);
  };
  if (any([](const Node& node) { return node.random; })) {
    out.emplace_back("Random numbers come from PyTorch's own stream, in the order of the stages.");
  }
  for (const Border& border : borders.stages) {
    for (const std::string& path : border.blocks) {
      out.push_back(fmt::format("Module '{}' runs as it is: stage {} needs the model.", path,
                                border.stage.index()));
    }
  }
  for (const std::string& space : foreign_namespaces(graph)) {
    out.push_back(fmt::format("Operators of '{}' are used: import what registers them.", space));
  }
  const bool regions = any([](const Node& node) { return !node.region.empty(); });
  if (regions && plan.recomputed.empty()) {
    out.emplace_back("What the model checkpoints is kept here: the plan computes nothing again.");
  }
  return out;
}

BatchSource input_batch(const Graph& graph) {
  for (const GraphInput& input : graph.inputs()) {
    const Value& value = graph.value(input.value);
    for (std::size_t d = 0; d < value.shape.size(); ++d) {
      if (value.shape[d] == Expr::batch()) return {input.value, d, 0, 1};
    }
  }
  for (const GraphInput& input : graph.inputs()) {
    const Value& value = graph.value(input.value);
    for (std::size_t d = 0; d < value.shape.size(); ++d) {
      const Expr& size = value.shape[d];
      if (size.is_constant()) continue;
      const std::int64_t factor = size.eval(2) - size.eval(1);
      if (factor > 0 && size == Expr::linear(0, factor)) return {input.value, d, 0, factor};
    }
  }
  return {};
}

}  // namespace

std::string stage_title(const Graph& graph, const Plan& plan, StageId stage) {
  const std::string range = scope_ranges(plan, graph)[stage.index()];
  const std::string what = range.empty() ? "operators of the model" : range;
  return comment_text(what + ", on " + device_name(plan, stage)) + ".";
}

std::string head_text(const Graph& graph, const Plan& plan, const Borders& borders,
                      const ModeDifferences* modes) {
  const std::size_t count = plan.num_stages();
  std::string out = fmt::format("\"\"\"{} in {} pipeline stage{}, written by kerf emit.\n\n",
                                comment_text(graph.name()), count, count == 1 ? "" : "s");
  for (std::size_t s = 0; s < count; ++s) {
    const std::string name = fmt::format("    Stage{}  ", s);
    const std::string indent(name.size(), ' ');
    const std::size_t room = kLineWidth - name.size();
    out += name + folded(stage_title(graph, plan, StageId(s)), room, indent) + "\n";
  }
  out +=
      "\n    stages = make_stages(model)  # with the weights of the model\n"
      "    result = run(stages, ...)  # as the model is called\n\n";
  for (const std::string& note : notes(graph, plan, borders, modes)) {
    out += folded(comment_text(note), kLineWidth, "") + "\n";
  }
  out +=
      "\nTo compare them with the model: python FILE --check package.module:make_case, a function "
      "that\ngives the model, its positional and its named arguments.\n\"\"\"\n\n";
  return out;
}

void write_input_check(const Graph& graph, const Names& names, const ModeDifferences* modes,
                       Lines& lines) {
  const BatchSource source = graph.is_static() ? BatchSource{} : input_batch(graph);
  if (source.value.valid()) {
    lines.raw("def batch_of(values):");
    const std::string factor = source.factor == 1 ? "" : fmt::format(" // {}", source.factor);
    lines.raw(fmt::format("    return values[{}].shape[{}]{}",
                          string_literal(names.of(source.value)), source.dim, factor));
    lines.blank(2);
  }
  lines.raw(
      "def check_inputs(values):\n"
      "    for name, row in config()[\"model_inputs\"].items():\n"
      "        found = values[name].dim(), values[name].dtype\n"
      "        if found != (len(row[\"shape\"]), row[\"dtype\"]):\n"
      "            refuse(f\"input '{name}'\", found, (len(row[\"shape\"]), row[\"dtype\"]))");
  if (source.value.valid()) lines.raw("    B = batch_of(values)");
  const std::string sizes = source.value.valid() ? "B" : "";
  lines.raw("    for name, row in config(" + sizes +
            ")[\"model_inputs\"].items():\n"
            "        if list(values[name].shape) != row[\"shape\"]:\n"
            "            refuse(f\"input '{name}'\", list(values[name].shape), row[\"shape\"])");
  std::vector<Condition> conditions = graph.conditions();
  if (modes != nullptr) {
    for (const Condition& condition : modes->conditions) {
      const bool known =
          std::find(conditions.begin(), conditions.end(), condition) != conditions.end();
      if (!known) conditions.push_back(condition);
    }
  }
  for (const Condition& condition : conditions) {
    const std::string left = size_text(condition.left);
    const std::string right = size_text(condition.right);
    const std::string text = fmt::format("{} {} {}", left, to_string(condition.relation), right);
    lines.raw(fmt::format("    if not {}:\n        refuse(\"the batch\", B, {})", text,
                          string_literal("one with " + text)));
  }
}

}  // namespace kerf::codegen
