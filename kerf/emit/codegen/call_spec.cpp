// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/codegen/call_spec.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "kerf/base/error.h"
#include "kerf/emit/codegen/names.h"
#include "kerf/emit/codegen/pattern.h"
#include "kerf/emit/codegen/python_text.h"
#include "kerf/emit/codegen/value_text.h"

namespace kerf::codegen {
namespace {

// A graph that was written by hand says nothing of its call: its inputs by position, its outputs as
// a tuple, or alone.
Json default_in_spec(const Graph& graph) {
  Json parameters = Json::array();
  Json arguments = Json::array();
  for (std::size_t i = 0; i < graph.inputs().size(); ++i) {
    const std::string name = graph.value(graph.inputs()[i].value).name;
    parameters.push_back(name);
    arguments.push_back({name, {{"t", i}}});
  }
  return {{"parameters", parameters}, {"defaults", Json::array()}, {"arguments", arguments}};
}

Json default_out_spec(const Graph& graph) {
  if (graph.outputs().size() == 1) return {{"result", {{"t", 0}}}};
  Json items = Json::array();
  for (std::size_t i = 0; i < graph.outputs().size(); ++i) items.push_back({{"t", i}});
  return {{"result", {{"tuple", items}}}};
}

Json in_spec(const Graph& graph) {
  const std::string& text = graph.data().in_spec;
  return text.empty() ? default_in_spec(graph) : parse_spec(text, "the graph's in_spec");
}

Json out_spec(const Graph& graph) {
  const std::string& text = graph.data().out_spec;
  return text.empty() ? default_out_spec(graph) : parse_spec(text, "the graph's out_spec");
}

[[noreturn]] void malformed(std::string_view what) {
  throw Error(ErrorKind::invalid_graph,
              fmt::format("[emit.stages] the graph's {} lacks some of its keys; expected what "
                          "kerf.trace wrote; trace the model again",
                          what));
}

// The tensors of a description, in the order in which they stand, with their paths.
void find_tensors(const Json& spec, const std::string& path, std::vector<std::string>& names) {
  if (spec.is_object() && spec.contains("t")) {
    const auto number = spec.at("t").get<std::size_t>();
    if (number < names.size() && names[number].empty()) names[number] = path;
    return;
  }
  if (!spec.is_structured()) return;
  std::size_t i = 0;
  for (const Json& item : spec) {
    const bool pair = spec.is_array() && item.is_array() && item.size() == 2 && item[0].is_string();
    if (pair) {
      find_tensors(item[1], path + "_" + item[0].get<std::string>(), names);
    } else if (spec.is_array() && item.is_structured()) {
      find_tensors(item, fmt::format("{}_{}", path, i), names);
    } else if (item.is_structured()) {
      find_tensors(item, path, names);
    }
    ++i;
  }
}

Code argument_patterns(const Graph& graph, const Json& spec, const Names& names, CallSpec& out) {
  PatternWriter writer("the call's form", [&](std::size_t number) -> Code {
    if (number >= graph.inputs().size()) malformed("in_spec");
    const ValueId id = graph.inputs()[number].value;
    return {"Tensor", Bracket::call, {string_literal(names.of(id))}};
  });
  std::vector<Code> items;
  for (const Json& pair : spec.at("arguments")) {
    const std::string key = string_literal(pair.at(0).get<std::string>());
    items.push_back(writer.write(pair.at(1)).after(key + ": "));
  }
  out.kinds.insert(writer.kinds().begin(), writer.kinds().end());
  return {"", Bracket::dict, std::move(items)};
}

Code result_pattern(const Graph& graph, const Json& spec, const Names& names, CallSpec& out) {
  PatternWriter writer("the model's result", [&](std::size_t number) -> Code {
    if (number >= graph.outputs().size()) malformed("out_spec");
    const Argument& leaf = graph.outputs()[number].leaf;
    if (const auto* id = leaf.find<ValueId>()) {
      const bool scalar = graph.value(*id).scalar;
      if (scalar) out.kinds.insert("Number");
      return {scalar ? "Number" : "Tensor", Bracket::call, {string_literal(names.of(*id))}};
    }
    if (const auto* size = leaf.find<Expr>()) {
      out.result_uses_batch = out.result_uses_batch || !size->is_constant();
    }
    return constant_text(leaf, "the model's result");
  });
  Code pattern = writer.write(spec.at("result"));
  out.kinds.insert(writer.kinds().begin(), writer.kinds().end());
  out.result_uses_batch = out.result_uses_batch || writer.uses_batch();
  return pattern;
}

}  // namespace

std::vector<std::string> input_names(const Graph& graph) {
  std::vector<std::string> names(graph.inputs().size());
  try {
    const Json spec = in_spec(graph);
    for (const Json& pair : spec.at("arguments")) {
      find_tensors(pair.at(1), pair.at(0).get<std::string>(), names);
    }
  } catch (const Json::exception&) {
    malformed("in_spec");
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) names[i] = graph.value(graph.inputs()[i].value).name;
  }
  return names;
}

CallSpec call_spec(const Graph& graph, const Names& names) {
  CallSpec out;
  try {
    const Json in = in_spec(graph);
    std::vector<Code> parameters;
    for (const Json& name : in.at("parameters")) {
      parameters.emplace_back(string_literal(name.get<std::string>()));
    }
    std::vector<Code> defaults;
    PatternWriter plain("a default", [](std::size_t) -> Code { malformed("in_spec"); });
    for (const Json& pair : in.at("defaults")) {
      const std::string key = string_literal(pair.at(0).get<std::string>());
      defaults.push_back(plain.write(pair.at(1)).after(key + ": "));
    }
    out.parameters = Code("", Bracket::tuple, std::move(parameters));
    out.defaults = Code("", Bracket::dict, std::move(defaults));
    out.arguments = argument_patterns(graph, in, names, out);
    const Json result = out_spec(graph);
    if (result.contains("arguments") && !result.at("arguments").empty()) {
      throw Error(ErrorKind::unsupported_operator,
                  "[emit.stages] the model changes objects that it is called with, such as a "
                  "cache; expected a call that changes tensors at most; trace it without them, or "
                  "run it with kerf.Pipeline");
    }
    out.result = result_pattern(graph, result, names, out);
  } catch (const Json::exception&) {
    malformed("specs");
  }
  return out;
}

}  // namespace kerf::codegen
