// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/graph.h"

#include <pybind11/complex.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <filesystem>

#include "kerf/graph/passes/coarsen.h"
#include "kerf/graph/passes/reorder.h"
#include "kerf/graph/pure.h"
#include "kerf/graph/text.h"
#include "python/src/module.h"
#include "python/src/verdict.h"

namespace kerf::bindings {
namespace {

py::list size_list(const std::vector<Expr>& sizes) {
  py::list out;
  for (const Expr& size : sizes) {
    if (size.is_constant()) {
      out.append(size.constant());
    } else {
      out.append(size.str());
    }
  }
  return out;
}

py::dict value_record(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  py::dict out;
  out["name"] = value.name;
  out["dtype"] = std::string(torch_name(value.dtype));
  out["scalar"] = value.scalar;
  out["shape"] = size_list(value.shape);
  out["strides"] = size_list(value.strides);
  out["storage"] = value.storage.valid() ? py::object(py::int_(value.storage.index())) : py::none();
  out["requires_grad"] = value.requires_grad;
  return out;
}

py::dict node_record(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  py::dict out;
  out["name"] = node.name;
  out["op"] = node.op;
  out["scope"] = graph.scope(node.scope).path;
  out["source"] = node.source;
  out["region"] = node.region;
  out["grad_enabled"] = node.grad_enabled;
  out["random"] = node.random;
  std::vector<std::string> inputs;
  for (const ValueId value : graph.inputs_of(id)) inputs.push_back(graph.value(value).name);
  out["inputs"] = inputs;
  std::vector<std::string> outputs;
  for (const ValueId value : node.outputs) {
    if (value.valid()) outputs.push_back(graph.value(value).name);
  }
  out["outputs"] = outputs;
  py::dict texts;  // string arguments by name, e.g. an opaque block's module
  for (const NamedArgument& argument : node.args) {
    if (const auto* text = argument.value.find<std::string>(); text && !argument.name.empty()) {
      texts[py::str(argument.name)] = *text;
    }
  }
  out["kwargs"] = texts;
  // How many an opaque block is called with; its weights are among the other arguments.
  const auto* tensors = node.args.empty() ? nullptr : node.args[0].value.find<Argument::List>();
  out["n_tensors"] = tensors != nullptr ? tensors->size() : 0;
  return out;
}

py::list weight_records(const Graph& graph) {
  py::list out;
  for (const Weight& weight : graph.weights()) {
    py::dict record = value_record(graph, weight.value);
    record["names"] = weight.names;
    record["kind"] = std::string(to_string(weight.kind));
    record["data"] = py::bytes(weight.data);
    const StorageId storage = graph.value(weight.value).storage;
    record["written"] = storage.valid() && graph.is_written(storage);
    out.append(record);
  }
  return out;
}

py::list input_records(const Graph& graph) {
  py::list out;
  for (const GraphInput& input : graph.inputs()) {
    py::dict record = value_record(graph, input.value);
    record["path"] = input.path;
    out.append(record);
  }
  return out;
}

// Data that holds no value of the graph.
py::object plain_object(const Argument& argument) {
  if (const auto* flag = argument.find<bool>()) return py::bool_(*flag);
  if (const auto* size = argument.find<Expr>()) {
    return size->is_constant() ? py::object(py::int_(size->constant()))
                               : py::object(py::str(size->str()));
  }
  if (const auto* number = argument.find<double>()) return py::float_(*number);
  if (const auto* number = argument.find<std::complex<double>>()) return py::cast(*number);
  if (const auto* text = argument.find<std::string>()) return py::str(*text);
  if (const auto* dtype = argument.find<DType>()) return py::str(std::string(torch_name(*dtype)));
  if (const auto* list = argument.find<Argument::List>()) {
    py::list out;
    for (const Argument& element : *list) out.append(plain_object(element));
    return out;
  }
  return py::none();
}

std::vector<std::string> tensor_names(const Graph& graph) {
  std::vector<std::string> out;
  for (const Value& value : graph.values()) {
    if (!value.scalar) out.push_back(value.name);
  }
  return out;
}

py::list condition_records(const Graph& graph) {
  py::list out;
  for (const Condition& condition : graph.conditions()) {
    py::dict record;
    record["left"] = condition.left.str();
    record["relation"] = std::string(to_string(condition.relation));
    record["right"] = condition.right.str();
    record["text"] = condition.str();
    record["source"] = condition.source;
    out.append(record);
  }
  return out;
}

py::list attribute_records(const Graph& graph) {
  py::list out;
  for (const Attribute& attribute : graph.data().attributes) {
    py::dict record;
    record["path"] = attribute.path;
    record["name"] = attribute.name;
    record["value"] = plain_object(attribute.value);
    out.append(record);
  }
  return out;
}

py::object leaf_object(const Graph& graph, const Argument& leaf) {
  if (const auto* id = leaf.find<ValueId>()) return value_record(graph, *id);
  return plain_object(leaf);
}

// Each leaf: {"path", "kind": "value" | "size" | "constant", "value"}; a size may hold B.
py::list output_records(const Graph& graph) {
  py::list out;
  for (const GraphOutput& output : graph.outputs()) {
    py::dict record;
    record["path"] = output.path;
    record["kind"] = output.leaf.find<ValueId>() != nullptr ? "value"
                     : output.leaf.find<Expr>() != nullptr  ? "size"
                                                            : "constant";
    record["value"] = leaf_object(graph, output.leaf);
    out.append(record);
  }
  return out;
}

py::list node_records(const Graph& graph) {
  py::list out;
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) out.append(node_record(graph, NodeId(n)));
  return out;
}

std::string graph_summary(const Graph& graph) {
  return "kerf.Graph('" + graph.name() + "', " + std::to_string(graph.num_nodes()) + " nodes, " +
         std::to_string(graph.weights().size()) + " weights, " +
         (graph.is_static() ? std::string("static batch") : std::string("batch B")) +
         (graph.data().training ? ", train)" : ", eval)");
}

std::vector<NodeId> to_ids(const std::vector<std::uint32_t>& order) {
  return {order.begin(), order.end()};
}

// What a verdict says of the operator that decided it; none when samples are separate.
template <class Field>
auto of_operator(Field field) {
  return [field](const NamedVerdict& found) -> py::object {
    if (!found.verdict.by.valid()) return py::none();
    return py::str(field(found.graph, found.graph.node(found.verdict.by)));
  };
}

void init_verdict(py::module_& m) {
  py::class_<NamedVerdict>(m, "BatchIndependence",
                           "Does a model treat the samples of a batch separately?")
      .def_property_readonly("verdict",
                             [](const NamedVerdict& v) { return to_string(v.verdict.kind); })
      .def_property_readonly("reason", [](const NamedVerdict& v) { return v.verdict.reason; })
      .def_property_readonly("reaches", [](const NamedVerdict& v) { return v.verdict.where; })
      .def_property_readonly("others", [](const NamedVerdict& v) { return v.verdict.others; })
      .def_property_readonly("batch_norms",
                             [](const NamedVerdict& v) { return v.verdict.batch_norms; })
      .def_property_readonly("operator",
                             of_operator([](const Graph&, const Node& n) { return n.op; }))
      .def_property_readonly("node",
                             of_operator([](const Graph&, const Node& n) { return n.name; }))
      .def_property_readonly(
          "scope", of_operator([](const Graph& g, const Node& n) { return g.scope(n.scope).path; }))
      .def_property_readonly("source",
                             of_operator([](const Graph&, const Node& n) { return n.source; }))
      .def("__repr__", [](const NamedVerdict& v) {
        const std::string kind(to_string(v.verdict.kind));
        return v.verdict.reason.empty() ? kind : kind + ": " + v.verdict.reason;
      });
}

}  // namespace

void init_graph(py::module_& m) {
  m.def("tensor_names", &tensor_names, py::arg("graph"),
        "Names of the values that are tensors, not numbers.");
  init_verdict(m);
  py::class_<Graph>(m, "Graph", "A traced model: frozen, verified, saved as text.")
      .def_property_readonly("name", &Graph::name, "The class of the model.")
      .def_property_readonly(
          "hash", &Graph::hash,
          "Hash of everything but notes and sources; profiles and plans carry it.")
      .def_property_readonly(
          "training", [](const Graph& g) { return g.data().training; },
          "Whether the model was traced in train mode.")
      .def_property_readonly(
          "is_static", &Graph::is_static,
          "Whether the batch is a fixed number; else sizes are expressions in B.")
      .def_property_readonly(
          "example_batch", [](const Graph& g) { return g.data().example_batch; },
          "The batch of the example it was traced with; 0 when static.")
      .def_property_readonly(
          "notes", [](const Graph& g) { return g.data().notes; },
          "What the trace found that a user should know.")
      .def_property_readonly(
          "conditions", &condition_records,
          "Conditions on the batch: a dictionary for each, with the line that tests it.")
      .def_property_readonly("attributes", &attribute_records,
                             "Attributes of modules that the trace read, with their values.")
      .def(
          "violation",
          [](const Graph& g, std::int64_t batch) -> std::optional<std::string> {
            std::string text = describe_violation(g.conditions(), batch);
            return text.empty() ? std::nullopt : std::optional(std::move(text));
          },
          py::arg("batch"), "The first condition that a batch of this size violates, in words.")
      .def_property_readonly(
          "scopes",
          [](const Graph& g) {
            std::vector<std::pair<std::string, std::string>> out;
            for (const Scope& s : g.data().scopes) out.emplace_back(s.path, s.class_name);
            return out;
          },
          "The modules of the model: pairs of path and class name.")
      .def_property_readonly(
          "in_spec", [](const Graph& g) { return g.data().in_spec; },
          "The form of the call, as JSON.")
      .def_property_readonly(
          "out_spec", [](const Graph& g) { return g.data().out_spec; },
          "The form of the result, as JSON.")
      .def_property_readonly("num_nodes", &Graph::num_nodes, "The number of operators.")
      .def_property_readonly(
          "nodes", &node_records,
          "A dictionary for each operator: name, op, scope, source, inputs, outputs.")
      .def_property_readonly("weights", &weight_records,
                             "A dictionary for each parameter, buffer and constant.")
      .def_property_readonly("inputs", &input_records,
                             "A dictionary for each tensor of the call: name, path, dtype, shape.")
      .def_property_readonly("outputs", &output_records,
                             "A dictionary for each leaf of the result: path, kind, value.")
      .def_property_readonly(
          "order_edges",
          [](const Graph& g) {
            std::vector<std::pair<std::string, std::string>> out;
            for (const Edge& e : g.order_edges()) {
              out.emplace_back(g.node(e.from).name, g.node(e.to).name);
            }
            return out;
          },
          "Pairs of nodes that must keep their order because one of them writes.")
      .def_property_readonly("is_pure", &is_pure,
                             "Whether a run can be discarded: it changes no input or weight, draws "
                             "no random numbers and calls no Python.")
      .def_property_readonly(
          "glued",
          [](const Graph& g) {
            std::vector<std::vector<std::string>> out;
            for (const auto& group : g.glued()) {
              auto& names = out.emplace_back();
              for (const NodeId id : group) names.push_back(g.node(id).name);
            }
            return out;
          },
          "Groups of nodes that stay in one stage: they share memory, or are a block.")
      .def(
          "save",
          [](const Graph& g, const std::filesystem::path& path) { save_graph(g, path.string()); },
          py::arg("path"), "Writes the text form; the file is replaced whole or not at all.")
      .def("text", &print_graph, "The text form, as `save` writes it.")
      .def(
          "batch_independence",
          [](const Graph& g, const std::set<std::string>& reduced, bool batch_independent) {
            const auto blocks = batch_independent ? OpaqueBlocks::separate : OpaqueBlocks::unknown;
            return NamedVerdict{g, judge_batch(g, analyse_batch(g, blocks), {reduced, {}})};
          },
          py::arg("reduced") = std::set<std::string>(), py::arg("batch_independent") = false,
          "Whether samples are treated separately: proved, unknown, opaque or mixes.")
      .def("__len__", &Graph::num_nodes)
      .def("__repr__", &graph_summary)
      .def("__str__", &print_graph)
      .def(
          "__eq__", [](const Graph& a, const Graph& b) { return a == b; }, py::is_operator())
      .def(py::pickle([](const Graph& g) { return print_graph(g); },
                      [](const std::string& text) { return parse_graph(text, "pickle"); }));

  m.def(
      "load_graph", [](const std::filesystem::path& path) { return load_graph(path.string()); },
      py::arg("path"), "Reads a graph that Graph.save wrote.");
  m.def(
      "parse_graph", [](const std::string& text) { return parse_graph(text); }, py::arg("text"),
      "A graph from its text form.");
  m.def(
      "find_blocks",
      [](const Graph& g, int depth, std::vector<std::string> basic_blocks) {
        py::list out;
        for (const Block& block : find_blocks(g, {depth, std::move(basic_blocks)})) {
          std::vector<std::string> names;
          for (const NodeId id : block.nodes) names.push_back(g.node(id).name);
          out.append(py::make_tuple(block.path, names));
        }
        return out;
      },
      py::arg("graph"), py::arg("depth"), py::arg("basic_blocks"),
      "Pairs of a module's path and the names of its nodes, for every block.");
  m.def(
      "coarsen",
      [](const Graph& g, int depth, std::vector<std::string> basic_blocks) {
        return coarsen(g, {depth, std::move(basic_blocks)});
      },
      py::arg("graph"), py::arg("depth"), py::arg("basic_blocks"));
  // For tests of reordering.
  m.def(
      "random_order",
      [](const Graph& g, std::uint64_t seed, bool order_edges) {
        std::vector<std::uint32_t> out;
        for (const NodeId id : random_order(g, seed, order_edges)) {
          out.push_back(static_cast<std::uint32_t>(id.index()));
        }
        return out;
      },
      py::arg("graph"), py::arg("seed"), py::arg("order_edges") = true);
  m.def(
      "reorder",
      [](const Graph& g, const std::vector<std::uint32_t>& order) {
        return reorder(g, to_ids(order));
      },
      py::arg("graph"), py::arg("order"));
}

}  // namespace kerf::bindings
