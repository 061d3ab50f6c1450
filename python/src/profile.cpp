// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/profile.h"
#include "kerf/profile/replay.h"

#include <fmt/format.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include "kerf/base/quantity.h"
#include "kerf/driver/estimate_costs.h"
#include "kerf/emit/report/block_table.h"
#include "kerf/profile/estimate.h"
#include "kerf/profile/given_times.h"
#include "python/src/module.h"
#include "python/src/times.h"

namespace kerf::bindings {
namespace {

std::string profile_summary(const Profile& profile) {
  const std::string backward =
      profile.training ? ", backward " + to_string(profile.total_backward()) : std::string();
  return fmt::format("kerf.Profile({}, {}, batch {}, {} nodes, forward {}{})",
                     to_string(profile.source), profile.device_kind,
                     profile.batch == 0 ? "static" : std::to_string(profile.batch),
                     profile.nodes.size(), to_string(profile.total_forward()), backward);
}

Source parse_source(const std::string& name) {
  for (const Source source : {Source::measured, Source::estimated, Source::given}) {
    if (to_string(source) == name) return source;
  }
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("[profile.profile] source '{}'; expected measured, estimated or given", name));
}

// A profile from times alone: sizes follow from the graph's shapes.
Profile from_times(const Graph& graph, const std::vector<double>& forward, std::int64_t batch,
                   const std::string& device_kind, const std::string& source) {
  if (forward.size() != graph.num_nodes()) {
    throw Error(ErrorKind::invalid_profile,
                fmt::format("[profile.profile] {} times for {} nodes; expected one for each",
                            forward.size(), graph.num_nodes()));
  }
  Profile profile;
  profile.graph_hash = graph.hash();
  profile.device_kind = device_kind;
  profile.batch = graph.is_static() ? 0 : batch == 0 ? graph.data().example_batch : batch;
  profile.source = parse_source(source);
  for (std::size_t n = 0; n < forward.size(); ++n) {
    NodeCost cost = node_sizes(graph, NodeId(n), profile.batch);
    cost.forward = Nanoseconds{forward[n] * 1e9};
    if (!is_quantity(forward[n]) || !is_quantity(cost.forward.count)) {
      throw Error(ErrorKind::invalid_profile,
                  fmt::format("[profile.profile] node '{}' takes {} seconds; expected {}",
                              graph.nodes()[n].name, forward[n], kQuantityText));
    }
    cost.source = profile.source;
    profile.nodes.push_back(cost);
  }
  return profile;
}

py::tuple block_cost_state(const BlockCost& c) {
  return py::make_tuple(c.forward.count, c.forward_spread.count, c.backward.count,
                        c.backward_spread.count, c.forward_peak.count, c.backward_peak.count,
                        c.weights.count, c.inputs.count, c.outputs.count, c.samples);
}

// Plain tuples, so that a pickle needs no graph (the file form goes by node name and does).
py::tuple profile_state(const Profile& p) {
  py::list nodes;
  for (const NodeCost& n : p.nodes) {
    nodes.append(py::make_tuple(n.forward.count, n.forward_spread.count, n.samples, n.flops, n.macs,
                                n.moved.count, n.weights.count, n.inputs.count, n.outputs.count,
                                n.saved.count, n.peak.count, static_cast<int>(n.source),
                                n.backward.count, n.backward_spread.count, n.backward_weights.count,
                                n.forward_apart.issue.count, n.forward_apart.device.count,
                                n.backward_apart.issue.count, n.backward_apart.device.count,
                                n.backward_workspace.count, n.backward_flops, n.backward_macs,
                                n.forward_under_load.count, n.backward_under_load.count));
  }
  py::list unknown;
  for (const UnknownOp& u : p.unknown_ops) unknown.append(py::make_tuple(u.op, u.count, u.share));
  py::list blocks;
  for (const MeasuredBlock& b : p.blocks) {
    std::vector<std::size_t> of_block;
    for (const NodeId node : b.nodes) of_block.push_back(node.index());
    blocks.append(py::make_tuple(b.path, b.name, of_block, b.kind, block_cost_state(b.cost)));
  }
  py::list levels;
  for (const std::vector<BlockRow>& rows : p.levels) {
    py::list level;
    for (const BlockRow& r : rows) {
      level.append(py::make_tuple(r.path, r.name, r.nodes, r.blocks, block_cost_state(r.cost)));
    }
    levels.append(level);
  }
  const py::tuple cache =
      py::make_tuple(p.cache.folder, p.cache.hits, p.cache.misses, p.cache.reasons);
  return py::make_tuple(p.graph_hash, p.device_kind, p.batch, static_cast<int>(p.source), nodes,
                        unknown, p.notes, p.training, blocks, levels, p.recompute, cache);
}

Bytes bytes_at(const py::tuple& record, std::size_t i) { return {record[i].cast<std::int64_t>()}; }

NodeCost cost_from(const py::tuple& r) {
  NodeCost n;
  n.forward = {r[0].cast<double>()};
  n.forward_spread = {r[1].cast<double>()};
  n.samples = r[2].cast<int>();
  n.flops = r[3].cast<double>();
  n.macs = r[4].cast<double>();
  n.moved = bytes_at(r, 5);
  n.weights = bytes_at(r, 6);
  n.inputs = bytes_at(r, 7);
  n.outputs = bytes_at(r, 8);
  n.saved = bytes_at(r, 9);
  n.peak = bytes_at(r, 10);
  n.source = static_cast<Source>(r[11].cast<int>());
  const auto time_at = [&](std::size_t i) { return Nanoseconds{r[i].cast<double>()}; };
  n.backward = time_at(12);
  n.backward_spread = time_at(13);
  n.backward_weights = time_at(14);
  n.forward_apart = {time_at(15), time_at(16)};
  n.backward_apart = {time_at(17), time_at(18)};
  n.backward_workspace = bytes_at(r, 19);
  n.backward_flops = r[20].cast<double>();
  n.backward_macs = r[21].cast<double>();
  n.forward_under_load = time_at(22);
  n.backward_under_load = time_at(23);
  return n;
}

BlockCost block_cost_from(const py::tuple& r) {
  const auto time_at = [&](std::size_t i) { return Nanoseconds{r[i].cast<double>()}; };
  return {time_at(0),     time_at(1),     time_at(2),     time_at(3),     bytes_at(r, 4),
          bytes_at(r, 5), bytes_at(r, 6), bytes_at(r, 7), bytes_at(r, 8), r[9].cast<int>()};
}

void add_blocks_from_state(const py::tuple& state, Profile& p) {
  for (const py::handle item : state[8]) {
    const auto r = item.cast<py::tuple>();
    MeasuredBlock& block = p.blocks.emplace_back();
    block.path = r[0].cast<std::string>();
    block.name = r[1].cast<std::string>();
    for (const auto node : r[2].cast<std::vector<std::size_t>>()) block.nodes.emplace_back(node);
    block.kind = r[3].cast<std::int64_t>();
    block.cost = block_cost_from(r[4].cast<py::tuple>());
  }
  for (const py::handle level : state[9]) {
    std::vector<BlockRow>& rows = p.levels.emplace_back();
    for (const py::handle item : level) {
      const auto r = item.cast<py::tuple>();
      rows.push_back({r[0].cast<std::string>(), r[1].cast<std::string>(), r[2].cast<std::int64_t>(),
                      r[3].cast<std::int64_t>(), block_cost_from(r[4].cast<py::tuple>())});
    }
  }
  p.recompute = state[10].cast<bool>();
  const auto cache = state[11].cast<py::tuple>();
  p.cache = {cache[0].cast<std::string>(), cache[1].cast<std::int64_t>(),
             cache[2].cast<std::int64_t>(), cache[3].cast<std::vector<std::string>>()};
}

Profile profile_from_state(const py::tuple& state) {
  Profile p;
  p.graph_hash = state[0].cast<std::string>();
  p.device_kind = state[1].cast<std::string>();
  p.batch = state[2].cast<std::int64_t>();
  p.source = static_cast<Source>(state[3].cast<int>());
  for (const py::handle record : state[4]) p.nodes.push_back(cost_from(record.cast<py::tuple>()));
  for (const py::handle item : state[5]) {
    const auto record = item.cast<py::tuple>();
    p.unknown_ops.push_back(
        {record[0].cast<std::string>(), record[1].cast<std::int64_t>(), record[2].cast<double>()});
  }
  p.notes = state[6].cast<std::vector<std::string>>();
  p.training = state[7].cast<bool>();
  if (state.size() > 8) add_blocks_from_state(state, p);  // earlier pickles end here
  return p;
}

void bind_node_cost(py::module_& m) {
  py::class_<NodeCost>(m, "NodeCost", "What one node costs: seconds and bytes.")
      .def_property_readonly(
          "forward", [](const NodeCost& n) { return seconds(n.forward); },
          "Seconds of one forward call.")
      .def_property_readonly(
          "forward_spread", [](const NodeCost& n) { return seconds(n.forward_spread); },
          "Spread of repeated measurements, in seconds.")
      .def_property_readonly(
          "backward", [](const NodeCost& n) { return seconds(n.backward); },
          "Seconds of its backward; 0 in a profile without training.")
      .def_property_readonly(
          "backward_spread", [](const NodeCost& n) { return seconds(n.backward_spread); },
          "Spread of repeated measurements of its backward, in seconds.")
      .def_property_readonly(
          "backward_weights", [](const NodeCost& n) { return seconds(n.backward_weights); },
          "The part of `backward` that makes gradients of weights, in seconds.")
      .def_property_readonly(
          "forward_under_load", [](const NodeCost& n) { return seconds(n.forward_under_load); },
          "Seconds of its forward while the other CPU devices work; 0 if not measured.")
      .def_property_readonly(
          "backward_under_load", [](const NodeCost& n) { return seconds(n.backward_under_load); },
          "Seconds of its backward while the other CPU devices work; 0 if not measured.")
      .def_property_readonly(
          "forward_issue", [](const NodeCost& n) { return seconds(n.forward_apart.issue); },
          "Accelerators: seconds in which the host issues its forward; 0 if not measured apart.")
      .def_property_readonly(
          "forward_device", [](const NodeCost& n) { return seconds(n.forward_apart.device); },
          "Accelerators: seconds of its forward on the device; 0 if not measured apart.")
      .def_property_readonly(
          "backward_issue", [](const NodeCost& n) { return seconds(n.backward_apart.issue); },
          "Accelerators: seconds in which the host issues its backward; 0 if not measured apart.")
      .def_property_readonly(
          "backward_device", [](const NodeCost& n) { return seconds(n.backward_apart.device); },
          "Accelerators: seconds of its backward on the device; 0 if not measured apart.")
      .def_property_readonly(
          "backward_workspace", [](const NodeCost& n) { return n.backward_workspace.count; },
          "Bytes that its backward needs beside what it reads and makes.")
      .def_readonly("samples", &NodeCost::samples, "How often it was measured; 0 when estimated.")
      .def_readonly("flops", &NodeCost::flops, "Floating-point operations.")
      .def_readonly("macs", &NodeCost::macs, "Multiply-accumulate operations.")
      .def_readonly("backward_flops", &NodeCost::backward_flops,
                    "Floating-point operations of its backward; 0 when not estimated.")
      .def_readonly("backward_macs", &NodeCost::backward_macs,
                    "Multiply-accumulate operations of its backward; 0 when not estimated.")
      .def_property_readonly(
          "moved_bytes", [](const NodeCost& n) { return n.moved.count; }, "Bytes read and written.")
      .def_property_readonly(
          "weight_bytes", [](const NodeCost& n) { return n.weights.count; },
          "Bytes of the weights it uses.")
      .def_property_readonly(
          "input_bytes", [](const NodeCost& n) { return n.inputs.count; },
          "Bytes of the tensors it reads.")
      .def_property_readonly(
          "output_bytes", [](const NodeCost& n) { return n.outputs.count; },
          "Bytes of the tensors it makes.")
      .def_property_readonly(
          "saved_bytes", [](const NodeCost& n) { return n.saved.count; },
          "Bytes that it keeps for its backward; 0 in a profile without training.")
      .def_property_readonly(
          "peak_bytes", [](const NodeCost& n) { return n.peak.count; },
          "Bytes that it needs beyond inputs and outputs while it runs.")
      .def_property_readonly(
          "source", [](const NodeCost& n) { return std::string(to_string(n.source)); },
          "'measured', 'estimated' or 'given'.");
}

void bind_block_figures(py::class_<MeasuredBlock>& figures) {
  const auto time = [&](const char* name, Nanoseconds BlockCost::*field, const char* doc) {
    figures.def_property_readonly(
        name, [field](const MeasuredBlock& b) { return seconds(b.cost.*field); }, doc);
  };
  const auto bytes = [&](const char* name, Bytes BlockCost::*field, const char* doc) {
    figures.def_property_readonly(
        name, [field](const MeasuredBlock& b) { return (b.cost.*field).count; }, doc);
  };
  time("forward", &BlockCost::forward, "Seconds of one forward call.");
  time("forward_spread", &BlockCost::forward_spread, "Between the quartiles, in seconds.");
  time("backward", &BlockCost::backward,
       "Seconds of its backward: with a forward in it where the profile is of a model that is "
       "computed again; 0 where nothing needs a gradient.");
  time("backward_spread", &BlockCost::backward_spread, "Between the quartiles, in seconds.");
  bytes("forward_peak_bytes", &BlockCost::forward_peak,
        "The most that its forward has allocated at one time, beside weights and inputs.");
  bytes("backward_peak_bytes", &BlockCost::backward_peak,
        "The most that is allocated at one time in backward, with what forward has kept.");
  bytes("weight_bytes", &BlockCost::weights, "Bytes of its parameters, buffers and constants.");
  bytes("input_bytes", &BlockCost::inputs, "Bytes of the tensors that it takes from outside.");
  bytes("output_bytes", &BlockCost::outputs, "Bytes of the tensors that it gives away.");
}

void bind_blocks(py::module_& m) {
  py::class_<MeasuredBlock> block(m, "BlockCost",
                                  "What one block took by itself: seconds and bytes.");
  block.def_readonly("path", &MeasuredBlock::path, "Path of the module.")
      .def_readonly("name", &MeasuredBlock::name, "Class of the module, or the operator.")
      .def_readonly("kind", &MeasuredBlock::kind,
                    "Blocks that do the same work have one number, and were measured once.")
      .def_property_readonly(
          "nodes",
          [](const MeasuredBlock& b) {
            std::vector<std::size_t> out;
            for (const NodeId node : b.nodes) out.push_back(node.index());
            return out;
          },
          "Numbers of its nodes in the graph.")
      .def_property_readonly(
          "samples", [](const MeasuredBlock& b) { return b.cost.samples; },
          "How often it was measured.");
  bind_block_figures(block);
  py::class_<CacheUse>(m, "CacheUse", "What a profile took from a cache, by kind of block.")
      .def_readonly("folder", &CacheUse::folder, "Where it is; empty: none was used.")
      .def_readonly("hits", &CacheUse::hits, "Kinds of blocks that were found.")
      .def_readonly("misses", &CacheUse::misses, "Kinds of blocks that were measured.")
      .def_property_readonly(
          "reasons", [](const CacheUse& c) { return c.reasons; },
          "Why they were not found, each with how often.");
}

}  // namespace

void init_profile(py::module_& m) {
  bind_node_cost(m);
  bind_blocks(m);
  py::class_<Profile>(m, "Profile", "What every node of one graph costs on one kind of device.")
      .def_static("from_times", &from_times, py::arg("graph"), py::arg("forward"),
                  py::arg("batch") = 0, py::arg("device_kind") = "cpu", py::arg("source") = "given",
                  "A profile from forward times in seconds, one per node of the graph.")
      .def_readonly("graph_hash", &Profile::graph_hash, "The hash of the graph it is for.")
      .def_readonly("device_kind", &Profile::device_kind, "The kind of device it is for.")
      .def_readonly("batch", &Profile::batch, "The batch size it is for; 0 for a static graph.")
      .def_property_readonly(
          "source", [](const Profile& p) { return std::string(to_string(p.source)); },
          "'measured', 'estimated' or 'given'.")
      .def_property_readonly(
          "nodes", [](const Profile& p) { return p.nodes; },
          "NodeCost records, in the graph's order.")
      .def_property_readonly(
          "unknown_ops",
          [](const Profile& p) {
            std::vector<std::tuple<std::string, std::int64_t, double>> out;
            for (const UnknownOp& u : p.unknown_ops) {
              out.emplace_back(u.op, u.count, u.share);
            }
            return out;
          },
          "Operators without a formula: (name, count, share of the time).")
      .def_property_readonly(
          "notes", [](const Profile& p) { return p.notes; },
          "What a user should know about the costs.")
      .def_property_readonly(
          "total_forward", [](const Profile& p) { return seconds(p.total_forward()); },
          "Seconds of all nodes together.")
      .def_property_readonly(
          "total_backward", [](const Profile& p) { return seconds(p.total_backward()); },
          "Seconds of all nodes' backward together.")
      .def_readonly("training", &Profile::training,
                    "Whether backward times and saved bytes are there.")
      .def_property_readonly(
          "blocks", [](const Profile& p) { return p.blocks; },
          "BlockCost records of a profile that was measured a block at a time, else empty.")
      .def_property_readonly(
          "cache", [](const Profile& p) { return p.cache; },
          "Hits and misses, of a profile that was measured a block at a time.")
      .def_readonly("recompute", &Profile::recompute,
                    "Whether `blocks` and the table are of blocks that are computed again.")
      .def(
          "table",
          [](const Profile& p, std::optional<int> depth, const std::optional<std::string>& sort) {
            return block_table(p, {depth, sort.value_or("")});
          },
          py::arg("depth") = py::none(), py::arg("sort") = py::none(),
          "What blocks take, as a text: forward and backward ms, peaks, weights, inputs and "
          "outputs "
          "in MiB. depth: of the model's tree, in place of the blocks that were measured. sort: "
          "forward, backward, forward_peak, backward_peak, weights, inputs or outputs.")
      .def(
          "save",
          [](const Profile& p, const std::filesystem::path& path, const Graph& graph) {
            save_profile(p, graph, path);
          },
          py::arg("path"), py::arg("graph"),
          "Writes profile.json; needs the graph for the names of the nodes.")
      .def(
          "with_times",
          [](const Profile& p, const Graph& graph, const std::map<std::string, double>& times) {
            return with_given_times(p, graph, to_times(times));
          },
          py::arg("graph"), py::arg("times"),
          "The same costs with these seconds by name of a node, for its forward and, in training, "
          "its backward together, which are split as they were.")
      .def("__len__", [](const Profile& p) { return p.nodes.size(); })
      .def("__repr__", &profile_summary)
      .def(
          "__eq__", [](const Profile& a, const Profile& b) { return a == b; }, py::is_operator())
      .def(py::pickle(&profile_state, &profile_from_state));

  m.def(
      "replay",
      [](const std::vector<double>& issue, const std::vector<double>& device) {
        std::vector<IssueTimes> nodes;
        for (std::size_t i = 0; i < std::min(issue.size(), device.size()); ++i) {
          nodes.push_back({{issue[i]}, {device[i]}});
        }
        std::vector<double> out;
        for (const Nanoseconds added : replay(nodes)) out.push_back(added.count);
        return out;
      },
      py::arg("issue_ns"), py::arg("device_ns"),
      "What each node adds to a run on an accelerator, in nanoseconds.");
  m.def(
      "load_profile",
      [](const std::filesystem::path& path, const Graph& graph) {
        return load_profile(path, graph);
      },
      py::arg("path"), py::arg("graph"), py::call_guard<py::gil_scoped_release>(),
      "Reads a profile that Profile.save wrote, for the same graph.");
  m.def(
      "estimate",
      [](const Graph& graph, const std::string& kind, std::int64_t batch, bool training) {
        return estimate_costs(graph, kind, batch, training);
      },
      py::arg("graph"), py::arg("device_kind") = "cpu", py::arg("batch") = 0,
      py::arg("training") = false, py::call_guard<py::gil_scoped_release>(),
      "Costs estimated from shapes, for a kind of device that need not be present. batch: the size "
      "to estimate at; 0: the traced example's. training: with backward times and saved bytes; the "
      "graph must have been traced in train mode.");
  m.def("profiled_kind", &profiled_kind, py::arg("cluster"),
        "The kind that an estimate for these devices is made for.");
}

}  // namespace kerf::bindings
