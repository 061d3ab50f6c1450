// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/codegen/opaque_call.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "kerf/base/error.h"
#include "kerf/emit/codegen/pattern.h"
#include "kerf/emit/codegen/python_text.h"
#include "kerf/graph/arguments.h"

namespace kerf::codegen {
namespace {

[[noreturn]] void malformed(const Graph& graph, NodeId node) {
  throw Error(
      ErrorKind::invalid_graph,
      fmt::format("[emit.stages] {} is a module that runs as it is, without its path or the "
                  "form of its call; expected what kerf.trace wrote; trace the model again",
                  graph.describe(node)));
}

[[noreturn]] void refuse_changes(const Graph& graph, NodeId node) {
  throw Error(ErrorKind::unsupported_operator,
              fmt::format("[emit.stages] module '{}' runs as it is, and changes objects that it is "
                          "called with; expected one that changes tensors at most; run the plan "
                          "with kerf.Pipeline",
                          block_path(graph, node)));
}

const std::string& text_of(const Graph& graph, NodeId id, std::string_view key) {
  for (const NamedArgument& argument : graph.node(id).args) {
    const auto* text = argument.value.find<std::string>();
    if (argument.name == key && text != nullptr) return *text;
  }
  malformed(graph, id);
}

const Argument::List& tensors_of(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  const auto* list = node.args.empty() ? nullptr : node.args[0].value.find<Argument::List>();
  if (list == nullptr) malformed(graph, id);
  return *list;
}

// What the file needs help for inside a call is made by `fill`.
Code value_of(PatternWriter& writer, const Json& spec) {
  const std::size_t before = writer.kinds().size();
  Code code = writer.write(spec);
  if (writer.kinds().size() == before) return code;
  return {"fill", Bracket::call, {std::move(code), "{}"}};
}

}  // namespace

const std::string& block_path(const Graph& graph, NodeId node) {
  return text_of(graph, node, "module");
}

bool block_uses_batch(const Graph& graph, NodeId node) {
  if (graph.node(node).op != "opaque") return false;
  const auto has = [&](std::string_view key) {
    return text_of(graph, node, key).find("\"sym\"") != std::string::npos;
  };
  return has("in_spec") || has("out_spec");
}

BlockCall block_call(const Graph& graph, NodeId id, const std::string& module,
                     const NameValue& name) {
  const Node& node = graph.node(id);
  const Argument::List& tensors = tensors_of(graph, id);
  const std::string what = "the call of module '" + block_path(graph, id) + "'";
  PatternWriter given(
      what,
      [&](std::size_t number) -> Code {
        if (number >= tensors.size()) malformed(graph, id);
        return argument_code(tensors[number], name);
      },
      "self.device");
  PatternWriter made(what, [&](std::size_t number) -> Code {
    if (number >= node.outputs.size() || !node.outputs[number].valid()) malformed(graph, id);
    return {"Tensor", Bracket::call, {std::to_string(number)}};
  });
  BlockCall out;
  try {
    const Json call = parse_spec(text_of(graph, id, "in_spec"), what).at("list");
    std::vector<Code> items;
    for (const Json& argument : call.at(0).at("list")) items.push_back(value_of(given, argument));
    for (const Json& pair : call.at(1).at("dict")) {
      const auto key = pair.at(0).get<std::string>();
      if (!is_attribute(key)) malformed(graph, id);
      items.push_back(value_of(given, pair.at(1)).after(key + "="));
    }
    out.call = Code(module, Bracket::call, std::move(items));
    // What it gives, and its arguments if it has changed those.
    const Json outcome = parse_spec(text_of(graph, id, "out_spec"), what).at("list");
    if (!outcome.at(1).is_null()) refuse_changes(graph, id);
    const Json& result = outcome.at(0);
    out.lone = result == Json{{"t", 0}};
    out.result = made.write(result);
    // Objects are numbered over all the arguments, which are made one by one.
    if (given.kinds().contains("Again")) malformed(graph, id);
  } catch (const Json::exception&) {
    malformed(graph, id);
  }
  out.kinds.insert(given.kinds().begin(), given.kinds().end());
  out.kinds.insert(made.kinds().begin(), made.kinds().end());
  return out;
}

}  // namespace kerf::codegen
