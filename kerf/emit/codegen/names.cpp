// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/codegen/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "kerf/emit/codegen/call_spec.h"
#include "kerf/emit/codegen/python_text.h"
#include "kerf/graph/operator.h"

namespace kerf::codegen {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
}

bool lies_within(std::string_view path, std::string_view around) {
  return path.starts_with(around) && (path.size() == around.size() || path[around.size()] == '.');
}

// Does the result leave the module that makes it?
bool is_result_of_scope(const Graph& graph, const Node& node, ValueId id) {
  const std::string& path = graph.scope(node.scope).path;
  if (path.empty()) return false;
  const auto users = graph.consumers(id);
  return std::any_of(users.begin(), users.end(), [&](NodeId user) {
    return !lies_within(graph.scope(graph.node(user).scope).path, path);
  });
}

// "view" of "aten.view.default", "attention" where the operator's name is long.
std::string operator_name(const Node& node) {
  if (node.op == "opaque") return "block";
  const std::string_view packet = packet_of(node.op);
  std::string name(packet.substr(packet.rfind('.') + 1));
  if (name == "scaled_dot_product_attention") return "attention";
  // Python's own names, which a person would not give to a tensor.
  if (name == "slice") return "part";
  if (name == "sum") return "total";
  return name;
}

}  // namespace

std::string last_name(std::string_view path) {
  std::size_t dot = path.rfind('.');
  std::string_view last = dot == std::string_view::npos ? path : path.substr(dot + 1);
  if (is_number(last) && dot != std::string_view::npos) {
    dot = path.rfind('.', dot - 1);
    last = dot == std::string_view::npos ? path : path.substr(dot + 1);
  }
  return identifier(last);
}

Names::Names(const Graph& graph) : names_(graph.num_values()) {
  name_inputs(graph);
  for (const Weight& weight : graph.weights()) {
    const std::string& name = weight.names[0];
    const std::size_t dot = name.rfind('.');
    const std::string owner = dot == std::string::npos ? "" : last_name(name.substr(0, dot)) + "_";
    names_[weight.value.index()] =
        make(owner + name.substr(dot == std::string::npos ? 0 : dot + 1));
  }
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) name_results(graph, NodeId(n));
}

void Names::name_inputs(const Graph& graph) {
  const std::vector<std::string> wanted = input_names(graph);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    names_[graph.inputs()[i].value.index()] = make(wanted[i]);
  }
}

void Names::name_results(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId output = node.outputs[i];
    if (!output.valid()) continue;
    const bool module = node.op == "opaque" || is_result_of_scope(graph, node, output);
    std::string name = module ? last_name(graph.scope(node.scope).path) : operator_name(node);
    if (node.outputs.size() > 1) name += fmt::format("_{}", i);
    names_[output.index()] = make(name);
  }
}

std::string Names::make(std::string_view wanted) {
  const std::string base = identifier(wanted);
  std::string name = base;
  // Numbers go on where the last name of this base left off: a model has thousands of them.
  for (int& n = numbers_[base]; !used_.insert(name).second;) name = fmt::format("{}_{}", base, ++n);
  return name;
}

}  // namespace kerf::codegen
