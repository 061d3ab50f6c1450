// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/codegen/stage_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "kerf/base/error.h"
#include "kerf/emit/codegen/python_text.h"
#include "kerf/graph/operator.h"

namespace kerf::codegen {
namespace {

bool is_index(std::string_view text) {
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  return !text.empty() && text.size() < 10 && std::all_of(text.begin(), text.end(), digit) &&
         (text.size() == 1 || text[0] != '0');
}

}  // namespace

void check_top_names(const Graph& graph) {
  // What the class Stage, or nn.Module for all modules, has by these names.
  static const std::set<std::string_view> kTaken{"INPUTS",    "OUTPUTS", "LAST_USES",
                                                 "WEIGHTS",   "BLOCKS",  "CONSTANTS",
                                                 "constants", "device",  "forward"};
  for (const Weight& weight : graph.weights()) {
    if (weight.kind == WeightKind::constant) continue;
    for (const std::string& name : weight.names) {
      const std::string_view first = std::string_view(name).substr(0, name.find('.'));
      if (!kTaken.contains(first)) continue;
      throw Error(ErrorKind::unsupported_operator,
                  fmt::format("[emit.stages] the model has a '{}', a name that stages use "
                              "themselves; expected another; rename it in the model",
                              first));
    }
  }
}

ValueId changed_in_place(const Graph& graph, const Node& node) {
  const std::string_view packet = packet_of(node.op);
  const bool named =
      packet.starts_with("aten.") && packet.ends_with('_') && !packet.ends_with("__");
  if (!named || node.outputs.size() != 1 || !node.outputs[0].valid() || node.args.empty())
    return {};
  const auto* first = node.args[0].value.find<ValueId>();
  if (first == nullptr || graph.value(*first).scalar) return {};
  const bool written =
      std::find(node.written.begin(), node.written.end(), *first) != node.written.end();
  return written ? *first : ValueId{};
}

std::string attribute_text(std::string_view path) {
  std::string out = "self";
  while (!path.empty()) {
    const std::size_t dot = path.find('.');
    const std::string_view part = path.substr(0, dot);
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
    if (is_attribute(part)) {
      out += "." + std::string(part);
    } else if (is_index(part)) {
      out += "[" + std::string(part) + "]";
    } else {
      out += "[" + string_literal(part) + "]";
    }
  }
  return out;
}

std::vector<std::string> constant_names(const Graph& graph) {
  std::vector<std::string> out(graph.weights().size());
  std::set<std::string> used;
  for (std::size_t w = 0; w < out.size(); ++w) {
    const Weight& weight = graph.weights()[w];
    if (weight.kind != WeightKind::constant) continue;
    const std::string base = last_name(weight.names[0]);
    out[w] = base;
    for (int n = 1; !used.insert(out[w]).second; ++n) out[w] = fmt::format("{}_{}", base, n);
  }
  return out;
}

std::string StageNames::weight_text(std::string_view path, Names& names) {
  constexpr std::size_t kLong = 60;
  const std::string text = attribute_text(path);
  const std::size_t dot = path.rfind('.');
  if (text.size() <= kLong || dot == std::string_view::npos) return text;
  const std::string owner(path.substr(0, dot));
  if (!module_names_.contains(owner)) {
    const std::string around = weight_text(owner, names);
    const std::string name = names.make(last_name(owner));
    modules_.push_back(name + " = " + around);
    module_names_.emplace(owner, name);
  }
  return module_names_.at(owner) + attribute_text(path.substr(dot + 1)).substr(4);
}

StageNames::StageNames(const Graph& graph, const Border& border, Names& names) {
  const std::vector<std::string> constants = constant_names(graph);
  for (const std::size_t w : border.constants) {
    const ValueId id = graph.weights()[w].value;
    texts_[key(id)] = "self.constants[" + string_literal(constants[w]) + "]";
  }
  // Only what the code mentions gets short names: modules that run as they are have their weights.
  std::set<std::uint32_t> mentioned;
  for (const ValueId id : border.gives) mentioned.insert(key(id));
  for (const NodeId id : border.nodes) {
    const Node& node = graph.node(id);
    if (node.op == "opaque") continue;
    for (const ValueId input : graph.inputs_of(id)) mentioned.insert(key(input));
  }
  for (const std::size_t w : border.owns) {
    const Weight& weight = graph.weights()[w];
    const std::string& path = weight.names[0];
    const bool named = mentioned.contains(key(weight.value));
    texts_[key(weight.value)] = named ? weight_text(path, names) : attribute_text(path);
  }
  for (const ValueId id : border.takes) {
    texts_[key(id)] = names.of(id);
    roots_.emplace(key(id), id);
  }
  for (const NodeId id : border.nodes) {
    const Node& node = graph.node(id);
    const ValueId changed = changed_in_place(graph, node);
    for (const ValueId output : node.outputs) {
      if (!output.valid()) continue;
      const bool local = !changed.valid() || is_local(changed);
      texts_[key(output)] = changed.valid() ? text(changed) : names.of(output);
      if (local) roots_.emplace(key(output), changed.valid() ? variable(changed) : output);
    }
  }
}

}  // namespace kerf::codegen
