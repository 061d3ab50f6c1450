// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>

#include "kerf/graph/graph.h"
#include "python/src/arguments.h"

namespace kerf::bindings {
namespace {

std::vector<std::string> value_names(const Graph& graph, const std::vector<ValueId>& values) {
  std::vector<std::string> out;
  for (const ValueId id : values) out.push_back(graph.value(id).name);
  return out;
}

py::dict result_record(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  py::dict out;
  out["id"] = id.index();
  out["dtype"] = std::string(torch_name(value.dtype));
  out["scalar"] = value.scalar;
  py::list shape;
  for (const Expr& size : value.shape.list()) shape.append(to_object(Argument{size}));
  out["shape"] = shape;
  return out;
}

py::dict call_record(const Graph& graph, const Node& node) {
  py::dict out;
  out["name"] = node.name;
  out["op"] = node.op;
  py::list args;
  py::dict kwargs;
  for (const NamedArgument& argument : node.args) {
    if (argument.name.empty()) {
      args.append(to_object(argument.value));
    } else {
      kwargs[py::str(argument.name)] = to_object(argument.value);
    }
  }
  out["args"] = args;
  out["kwargs"] = kwargs;
  py::list outputs;
  for (const ValueId id : node.outputs) {
    outputs.append(id.valid() ? py::object(result_record(graph, id)) : py::none());
  }
  out["outputs"] = outputs;
  out["written"] = value_names(graph, node.written);
  out["may_alias"] = value_names(graph, node.may_alias);
  out["random"] = node.random;
  out["region"] = node.region;
  out["grad_enabled"] = node.grad_enabled;
  py::list autocast;
  for (const Autocast& state : node.autocast) {
    autocast.append(
        py::make_tuple(state.device_type, std::string(to_string(state.dtype)), state.enabled));
  }
  out["autocast"] = autocast;
  return out;
}

}  // namespace

void init_calls(py::module_& m) {
  // For tests that call the operators of a graph by themselves. Inputs have the first numbers among
  // values, weights the next.
  m.def(
      "calls",
      [](const Graph& graph) {
        py::list out;
        for (const Node& node : graph.nodes()) out.append(call_record(graph, node));
        return out;
      },
      py::arg("graph"));
  m.def(
      "leaves",
      [](const Graph& graph) {
        py::list out;
        for (const GraphOutput& output : graph.outputs()) out.append(to_object(output.leaf));
        return out;
      },
      py::arg("graph"));
}

}  // namespace kerf::bindings
