// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The FX family. Graphs come in columns, nodes are positions; what a list of partitions becomes is
// returned, since a Python list of records is copied on its way in.
#include <fmt/format.h>
#include <pybind11/stl.h>

#include <variant>

#include "kerf/partition/fx/request.h"
#include "python/src/module.h"

namespace kerf::bindings {
namespace {

namespace fx = partition::fx;

using Partitions = std::vector<fx::Partition>;
using Weights = std::vector<std::pair<std::uint32_t, std::int64_t>>;
using NodeMap = std::vector<std::pair<fx::OpIndex, std::int64_t>>;
using NodePairs = std::vector<std::pair<fx::OpIndex, fx::OpIndex>>;  // a node, one of its inputs
using DeviceMap = std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>>;

// Moves one column into the nodes; an empty one leaves them as they are.
template <class Item, class Member>
void fill(std::vector<fx::OpNode>& nodes, const char* name, std::vector<Item> column,
          Member member) {
  if (column.empty()) return;
  if (column.size() != nodes.size()) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[fx.graph] {} of {}; expected one for each of {} nodes", column.size(),
                            name, nodes.size()));
  }
  for (std::size_t n = 0; n < nodes.size(); ++n) nodes[n].*member = std::move(column[n]);
}

void fill(std::vector<fx::OpNode>& nodes, const NodePairs& pairs,
          std::vector<fx::OpIndex> fx::OpNode::*member) {
  for (const auto& [node, input] : pairs) {
    if (node >= nodes.size() || input >= nodes.size()) {
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("[fx.graph] effects of node {} on {}; expected numbers below {}",
                              node, input, nodes.size()));
    }
    (nodes[node].*member).push_back(input);
  }
}

// `inputs` of all nodes one after the other: a list for each would be a hundred thousand of them.
std::vector<fx::OpNode> with_inputs(const std::vector<fx::OpIndex>& inputs,
                                    const std::vector<std::size_t>& num_inputs) {
  std::vector<fx::OpNode> nodes(num_inputs.size());
  auto from = inputs.begin();
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    if (num_inputs[n] > static_cast<std::size_t>(inputs.end() - from)) {
      throw Error(ErrorKind::invalid_argument, "[fx.graph] more inputs counted than given");
    }
    const auto to = from + static_cast<std::ptrdiff_t>(num_inputs[n]);
    nodes[n].inputs.assign(from, to);
    from = to;
  }
  return nodes;
}

fx::OpGraph make_graph(const std::vector<fx::OpIndex>& inputs,
                       const std::vector<std::size_t>& num_inputs, std::vector<bool> leaves,
                       std::vector<std::int64_t> output_sizes,
                       std::vector<std::int64_t> total_sizes, std::vector<double> mem_latencies,
                       std::vector<double> computer_latencies, std::vector<std::string> names,
                       std::vector<std::string> targets, std::vector<std::string> target_types,
                       std::vector<bool> embeddings, std::vector<bool> embeddings_by_text,
                       const std::vector<std::pair<fx::OpIndex, Weights>>& weights,
                       const std::vector<fx::OpIndex>& results, const NodePairs& aliases,
                       const NodePairs& mutates) {
  std::vector<fx::OpNode> nodes = with_inputs(inputs, num_inputs);
  fill(nodes, "leaves", std::move(leaves), &fx::OpNode::leaf);
  fill(nodes, "output_sizes", std::move(output_sizes), &fx::OpNode::output_size);
  fill(nodes, "total_sizes", std::move(total_sizes), &fx::OpNode::total_size);
  fill(nodes, "mem_latencies", std::move(mem_latencies), &fx::OpNode::mem_latency);
  fill(nodes, "computer_latencies", std::move(computer_latencies), &fx::OpNode::computer_latency);
  fill(nodes, "names", std::move(names), &fx::OpNode::name);
  fill(nodes, "targets", std::move(targets), &fx::OpNode::target);
  fill(nodes, "target_types", std::move(target_types), &fx::OpNode::target_type);
  fill(nodes, "embeddings", std::move(embeddings), &fx::OpNode::embedding);
  fill(nodes, "embeddings_by_text", std::move(embeddings_by_text), &fx::OpNode::embedding_by_text);
  for (const auto& [node, own] : weights) nodes.at(node).weights = own;
  for (const fx::OpIndex node : results) nodes.at(node).result = true;
  fill(nodes, aliases, &fx::OpNode::aliases);
  fill(nodes, mutates, &fx::OpNode::mutates);
  return fx::OpGraph(std::move(nodes));
}

// Names that a user would write, to the core's words.
template <class Choice>
Choice choose(const char* what, const std::string& name,
              const std::vector<std::pair<const char*, Choice>>& choices) {
  std::string all;
  for (const auto& [word, choice] : choices) {
    if (name == word) return choice;
    all += (all.empty() ? "'" : ", '") + std::string(word) + "'";
  }
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[kerf.fx] {} is '{}'; expected one of {}", what, name, all));
}

fx::Request make_request(const fx::OpGraph& graph, const std::vector<fx::Device>& devices,
                         const std::string& mode, double rate, const NodeMap& node_to_partition,
                         const DeviceMap& partition_to_devices, bool mode_alone,
                         std::int64_t given_bytes, std::int64_t device_id,
                         const std::string& cost_model, const std::string& memory,
                         std::int64_t work_limit) {
  fx::Request request;
  request.graph = graph;
  request.devices = devices;
  request.mode = choose<fx::Mode>("mode", mode,
                                  {{"size_based", fx::Mode::size},
                                   {"sparse_nn", fx::Mode::sparse_nn},
                                   {"cost_aware", fx::Mode::cost_aware},
                                   {"kl_based", fx::Mode::kl},
                                   {"aot_based", fx::Mode::aot},
                                   {"single", fx::Mode::single}});
  request.rate = rate;
  request.node_to_partition = node_to_partition;
  request.partition_to_devices = partition_to_devices;
  request.mode_alone = mode_alone;
  request.given_bytes = given_bytes;
  request.device_id = device_id;
  request.cost_model = choose<fx::CostModel>(
      "cost_model", cost_model,
      {{"critical_path", fx::CostModel::critical_path}, {"serial", fx::CostModel::serial}});
  request.accounting = choose<fx::Accounting>(
      "memory", memory, {{"fx", fx::Accounting::fx}, {"exact", fx::Accounting::exact}});
  request.work_limit = work_limit;
  return request;
}

std::variant<fx::Answer, Infeasible> partition_graph(const fx::Request& request) {
  auto outcome = fx::partition_graph(request);
  if (!outcome) return outcome.reason();
  return std::move(*outcome);
}

const char* to_text(fx::OriginalError::Kind kind) {
  using enum fx::OriginalError::Kind;
  switch (kind) {
    case runtime: return "runtime";
    case key_node: return "key_node";
    case key_partition: return "key_partition";
    case key_device: return "key_device";
    case index: return "index";
    case type: return "type";
    case zero_division: return "zero_division";
    case assertion: return "assertion";
    case recursion: return "recursion";
    case endless: return "endless";
  }
  return "runtime";
}

// The package makes of it what the original raises: `kind` and `key` say what.
void bind_error(py::module_& m) {
  static const py::handle type =
      py::exception<fx::OriginalError>(m, "FxOriginalError", PyExc_RuntimeError).release();
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const fx::OriginalError& error) {
      const py::object raised = type(error.what());
      raised.attr("kind") = to_text(error.kind);
      raised.attr("key") = error.key;
      PyErr_SetObject(type.ptr(), raised.ptr());
    }
  });
}

void bind_fx_records(py::module_& m) {
  py::class_<fx::OpGraph>(m, "FxGraph", "What the FX family plans on: nodes in graph order.")
      .def(py::init(&make_graph), py::kw_only(), py::arg("inputs"), py::arg("num_inputs"),
           py::arg("leaves"), py::arg("output_sizes") = std::vector<std::int64_t>{},
           py::arg("total_sizes") = std::vector<std::int64_t>{},
           py::arg("mem_latencies") = std::vector<double>{},
           py::arg("computer_latencies") = std::vector<double>{},
           py::arg("names") = std::vector<std::string>{},
           py::arg("targets") = std::vector<std::string>{},
           py::arg("target_types") = std::vector<std::string>{},
           py::arg("embeddings") = std::vector<bool>{},
           py::arg("embeddings_by_text") = std::vector<bool>{},
           py::arg("weights") = std::vector<std::pair<fx::OpIndex, Weights>>{},
           py::arg("results") = std::vector<fx::OpIndex>{}, py::arg("aliases") = NodePairs{},
           py::arg("mutates") = NodePairs{})
      .def("__len__", &fx::OpGraph::num_nodes);

  py::class_<fx::Device>(m, "FxDevice", "A device as the FX family sees it.")
      .def(py::init<std::string, std::int64_t, std::int64_t>(), py::arg("name"), py::arg("memory"),
           py::arg("id"))
      .def_readonly("name", &fx::Device::name)
      .def_readonly("memory", &fx::Device::memory)
      .def_readonly("id", &fx::Device::id);

  py::class_<fx::Partition>(m, "FxPartition", "Nodes that go to one device, or to its replicas.")
      .def(py::init<std::int64_t, std::vector<fx::OpIndex>, std::int64_t, std::vector<std::int64_t>,
                    std::vector<std::size_t>, std::vector<std::size_t>, std::int64_t>(),
           py::arg("id"), py::arg("nodes"), py::arg("used_bytes") = 0,
           py::arg("device_ids") = std::vector<std::int64_t>{},
           py::arg("parents") = std::vector<std::size_t>{},
           py::arg("children") = std::vector<std::size_t>{}, py::arg("level") = -1)
      .def_readonly("id", &fx::Partition::id)
      .def_readonly("nodes", &fx::Partition::nodes)
      .def_readonly("used_bytes", &fx::Partition::used_bytes)
      .def_readonly("device_ids", &fx::Partition::device_ids)
      .def_readonly("parents", &fx::Partition::parents)
      .def_readonly("children", &fx::Partition::children)
      .def_readonly("level", &fx::Partition::level);

  py::class_<fx::Answer>(m, "FxAnswer", "Partitions with their devices, and what they cost.")
      .def_readonly("partitions", &fx::Answer::partitions)
      .def_readonly("node_to_partition", &fx::Answer::node_to_partition)
      .def_readonly("cost", &fx::Answer::cost)
      .def_readonly("serial_cost", &fx::Answer::serial_cost)
      .def_readonly("device_lists", &fx::Answer::device_lists)
      .def_property_readonly("device_bytes", [](const fx::Answer& answer) {
        std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> out;
        for (const auto& bytes : answer.device_bytes) {
          out.emplace_back(bytes.fx, bytes.exact, bytes.peak);
        }
        return out;
      });
}

void bind_sets(py::module_& m) {
  m.def(
      "fx_add_node",
      [](const fx::OpGraph& graph, std::vector<fx::OpIndex> nodes, fx::OpIndex node) {
        fx::add_node(graph, nodes, node);
        return nodes;
      },
      py::arg("graph"), py::arg("nodes"), py::arg("node"));
  m.def(
      "fx_remove_node",
      [](const fx::OpGraph& graph, std::vector<fx::OpIndex> nodes, fx::OpIndex node) {
        fx::remove_node(graph, nodes, node);
        return nodes;
      },
      py::arg("graph"), py::arg("nodes"), py::arg("node"));
  m.def(
      "fx_extra_bytes",
      [](const fx::OpGraph& graph, fx::OpIndex node, const std::vector<fx::OpIndex>& set) {
        return fx::extra_bytes(graph, node, set);
      },
      py::arg("graph"), py::arg("node"), py::arg("set"));
  m.def(
      "fx_used_bytes",
      [](const fx::OpGraph& graph, const std::vector<fx::OpIndex>& nodes) {
        return fx::used_bytes(graph, nodes);
      },
      py::arg("graph"), py::arg("nodes"));
}

void bind_relations(py::module_& m) {
  m.def(
      "fx_set_relations",
      [](const fx::OpGraph& graph, Partitions partitions) {
        fx::set_relations(graph, partitions);
        return partitions;
      },
      py::arg("graph"), py::arg("partitions"));
  m.def(
      "fx_set_levels",
      [](Partitions partitions) {
        fx::set_levels(partitions);
        return partitions;
      },
      py::arg("partitions"));
  m.def(
      "fx_depends_on_itself",
      [](const Partitions& partitions, std::size_t which) {
        return fx::depends_on_itself(partitions, which);
      },
      py::arg("partitions"), py::arg("which"));
  m.def(
      "fx_map_to_devices",
      [](const fx::OpGraph& graph, Partitions partitions, const std::vector<fx::Device>& devices,
         bool strict) {
        const bool mapped = fx::map_to_devices(graph, partitions, devices, strict);
        return std::pair(mapped, std::move(partitions));
      },
      py::arg("graph"), py::arg("partitions"), py::arg("devices"), py::arg("strict"));
  m.def(
      "fx_device_stats",
      [](const Partitions& partitions, const std::vector<fx::Device>& devices) {
        fx::DeviceStats stats = fx::device_stats(partitions, devices);
        return std::tuple(stats.distinct, stats.partitions, stats.left_bytes, stats.no_device);
      },
      py::arg("partitions"), py::arg("devices"));
}

void bind_latencies(py::module_& m) {
  m.def(
      "fx_partition_latency",
      [](const fx::OpGraph& graph, const std::vector<fx::OpIndex>& nodes) {
        const fx::Latency latency = fx::partition_latency(graph, nodes);
        return std::tuple(latency.mem, latency.computer, latency.overall);
      },
      py::arg("graph"), py::arg("nodes"));
  m.def("fx_comm_latency", &fx::comm_latency, py::arg("graph"), py::arg("parent"), py::arg("child"),
        py::arg("rate"));
  m.def(
      "fx_graph_latency",
      [](const fx::OpGraph& graph, const Partitions& partitions, const std::vector<double>& overall,
         double rate) { return fx::graph_latency(graph, partitions, overall, rate); },
      py::arg("graph"), py::arg("partitions"), py::arg("overall"), py::arg("rate"));
}

}  // namespace

void init_fx(py::module_& m) {
  bind_error(m);
  bind_fx_records(m);
  bind_sets(m);
  bind_relations(m);
  bind_latencies(m);
  const py::call_guard<py::gil_scoped_release> free_lock;
  py::class_<fx::Request>(m, "FxRequest", "A graph, devices, and what to do with them.")
      .def(py::init(&make_request), py::kw_only(), py::arg("graph"), py::arg("devices"),
           py::arg("mode"), py::arg("rate") = 0.0, py::arg("node_to_partition") = NodeMap{},
           py::arg("partition_to_devices") = DeviceMap{}, py::arg("mode_alone") = false,
           py::arg("given_bytes") = 0, py::arg("device_id") = 0,
           py::arg("cost_model") = "critical_path", py::arg("memory") = "fx",
           py::arg("work_limit") = 0);
  m.def("fx_partition_graph", &partition_graph, py::arg("request"), free_lock);
  m.def("fx_partition_graph_compat", &fx::partition_graph_compat, py::arg("request"), free_lock);
  m.def("fx_saturate_host", &fx::saturate_host, py::arg("request"), py::arg("partitions"),
        free_lock);
  m.def("fx_saturate_host_compat", &fx::saturate_host_compat, py::arg("request"),
        py::arg("partitions"), py::arg("device_lists") = std::vector<std::size_t>{}, free_lock);
}

}  // namespace kerf::bindings
