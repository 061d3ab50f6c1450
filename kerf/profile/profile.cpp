// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/profile.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <unordered_map>

#include "kerf/base/file.h"
#include "kerf/base/quantity.h"
#include "kerf/profile/block_levels.h"

namespace kerf {
namespace {

constexpr FormatVersion kVersion{1, 2};
constexpr auto kKind = ErrorKind::invalid_profile;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 48;  // of a node: a few thousand add up

Source parse_source(const JsonReader& reader) {
  const std::string name = reader.text("source");
  for (const Source source : {Source::measured, Source::estimated, Source::given}) {
    if (to_string(source) == name) return source;
  }
  reader.fail(fmt::format("source '{}'", name), "measured, estimated or given");
}

// {"node": "h", "forward_ns": 5100.0, ...}
void append_cost(std::string& out, const std::string& name, const NodeCost& cost, bool training) {
  const auto add = [&](std::string_view key, const auto& value) {
    out += key;
    append_json(out, value);
  };
  add("{\"node\": ", std::string_view(name));
  add(", \"forward_ns\": ", cost.forward.count);
  if (cost.samples > 0) {
    add(", \"forward_spread_ns\": ", cost.forward_spread.count);
    add(", \"samples\": ", std::int64_t{cost.samples});
  }
  const auto add_load = [&](std::string_view phase, Nanoseconds time) {
    if (time.count > 0) add(fmt::format(", \"{}_under_load_ns\": ", phase), time.count);
  };
  add_load("forward", cost.forward_under_load);
  const auto add_apart = [&](std::string_view phase, const IssueTimes& apart) {
    if (apart == IssueTimes{}) return;
    add(fmt::format(", \"{}_issue_ns\": ", phase), apart.issue.count);
    add(fmt::format(", \"{}_device_ns\": ", phase), apart.device.count);
  };
  add_apart("forward", cost.forward_apart);
  if (training) {
    add(", \"backward_ns\": ", cost.backward.count);
    if (cost.samples > 0) add(", \"backward_spread_ns\": ", cost.backward_spread.count);
    add(", \"backward_weights_ns\": ", cost.backward_weights.count);
    add_apart("backward", cost.backward_apart);
    add_load("backward", cost.backward_under_load);
    add(", \"backward_workspace\": ", cost.backward_workspace.count);
    add(", \"backward_flops\": ", cost.backward_flops);
    add(", \"backward_macs\": ", cost.backward_macs);
  }
  add(", \"flops\": ", cost.flops);
  add(", \"macs\": ", cost.macs);
  add(", \"moved\": ", cost.moved.count);
  add(", \"weights\": ", cost.weights.count);
  add(", \"inputs\": ", cost.inputs.count);
  add(", \"outputs\": ", cost.outputs.count);
  add(", \"saved\": ", cost.saved.count);
  add(", \"peak\": ", cost.peak.count);
  add(", \"source\": ", to_string(cost.source));
  out += '}';
}

// The last field, one line per node.
void append_costs(std::string& out, const Profile& profile, const Graph& graph) {
  constexpr std::string_view kEnd = "\n}";
  out.resize(out.size() - kEnd.size());
  out += ",\n \"nodes\": [";
  for (std::size_t i = 0; i < profile.nodes.size(); ++i) {
    out += i == 0 ? "\n  " : ",\n  ";
    append_cost(out, graph.nodes()[i].name, profile.nodes[i], profile.training);
  }
  out += profile.nodes.empty() ? "]\n}\n" : "\n ]\n}\n";
}

// 0 where the file does not say.
Nanoseconds time_or_zero(const JsonReader& reader, const std::string& key) {
  return reader.has(key) ? Nanoseconds{read_quantity(reader, key)} : Nanoseconds{};
}

IssueTimes apart_from_json(const JsonReader& reader, const std::string& phase) {
  return {time_or_zero(reader, phase + "_issue_ns"), time_or_zero(reader, phase + "_device_ns")};
}

void read_backward(const JsonReader& reader, NodeCost& cost) {
  cost.backward = Nanoseconds{read_quantity(reader, "backward_ns")};
  cost.backward_spread = time_or_zero(reader, "backward_spread_ns");
  cost.backward_weights = Nanoseconds{read_quantity(reader, "backward_weights_ns")};
  if (cost.backward_weights > cost.backward) {
    reader.fail("backward_weights_ns above backward_ns", "a share of it");
  }
  cost.backward_apart = apart_from_json(reader, "backward");
  cost.backward_under_load = time_or_zero(reader, "backward_under_load_ns");
  cost.backward_workspace = Bytes{reader.integer("backward_workspace", 0, kMostBytes)};
  if (reader.has("backward_flops")) {
    cost.backward_flops = read_quantity(reader, "backward_flops");
    cost.backward_macs = read_quantity(reader, "backward_macs");
  }
}

NodeCost cost_from_json(const JsonReader& reader, bool training) {
  NodeCost cost;
  cost.forward = Nanoseconds{read_quantity(reader, "forward_ns")};
  cost.forward_apart = apart_from_json(reader, "forward");
  cost.forward_under_load = time_or_zero(reader, "forward_under_load_ns");
  if (training) read_backward(reader, cost);
  if (reader.has("samples")) {
    cost.samples = static_cast<int>(reader.integer("samples", 0, 1 << 30));
    cost.forward_spread = Nanoseconds{read_quantity(reader, "forward_spread_ns")};
  }
  const auto bytes = [&](std::string_view key) {
    return Bytes{reader.integer(key, 0, kMostBytes)};
  };
  cost.flops = read_quantity(reader, "flops");
  cost.macs = read_quantity(reader, "macs");
  cost.moved = bytes("moved");
  cost.weights = bytes("weights");
  cost.inputs = bytes("inputs");
  cost.outputs = bytes("outputs");
  cost.saved = bytes("saved");
  cost.peak = bytes("peak");
  cost.source = parse_source(reader);
  return cost;
}

// Finds nodes by name. Nearly every file lists them in the graph's order, and an index of a million
// names takes a second: it is made when one is met out of turn.
class NodeFinder {
 public:
  explicit NodeFinder(const Graph& graph) : graph_(graph) {}

  // The number of nodes: there is none of that name.
  std::size_t find(const std::string& name, std::size_t expected) {
    const std::vector<Node>& nodes = graph_.nodes();
    if (expected < nodes.size() && nodes[expected].name == name) return expected;
    if (index_.empty()) {
      for (std::size_t i = 0; i < nodes.size(); ++i) index_[nodes[i].name] = i;
    }
    const auto found = index_.find(name);
    return found == index_.end() ? nodes.size() : found->second;
  }

 private:
  const Graph& graph_;
  std::unordered_map<std::string_view, std::size_t> index_;
};

void read_costs(const JsonReader& reader, const Graph& graph, Profile& profile) {
  NodeFinder finder(graph);
  std::vector<bool> seen(graph.num_nodes());
  profile.nodes.resize(graph.num_nodes());
  std::size_t expected = 0;
  for (const JsonReader& entry : reader.children("nodes")) {
    const std::string name = entry.text("node");
    const std::size_t node = finder.find(name, expected++);
    if (node == graph.num_nodes()) {
      entry.fail(fmt::format("node '{}'", name), "a node of the graph");
    }
    if (seen[node]) entry.fail(fmt::format("node '{}' twice", name), "each node once");
    seen[node] = true;
    profile.nodes[node] = cost_from_json(entry, profile.training);
  }
  const auto missing = std::find(seen.begin(), seen.end(), false);
  if (missing != seen.end()) {
    const Node& node = graph.nodes()[static_cast<std::size_t>(missing - seen.begin())];
    reader.fail(fmt::format("no entry for node '{}'", node.name), "every node of the graph");
  }
}

void add_blocks(Json& json, const Profile& profile, const Graph& graph) {
  json["recompute"] = profile.recompute;
  json["cache"] = {{"folder", profile.cache.folder},
                   {"hits", profile.cache.hits},
                   {"misses", profile.cache.misses},
                   {"reasons", profile.cache.reasons}};
  json["blocks"] = Json::array();
  for (const MeasuredBlock& block : profile.blocks) {
    Json entry = {{"path", block.path}, {"name", block.name}, {"kind", block.kind}};
    entry.update(to_json(block.cost));
    entry["nodes"] = Json::array();
    for (const NodeId node : block.nodes) entry["nodes"].push_back(graph.node(node).name);
    json["blocks"].push_back(std::move(entry));
  }
}

MeasuredBlock block_from_json(const JsonReader& entry, const Graph& graph, NodeFinder& finder,
                              std::vector<bool>& seen) {
  MeasuredBlock block;
  block.path = entry.text("path");
  block.name = entry.text("name");
  block.kind = entry.integer("kind", 0, kMostBytes);
  for (const JsonReader& node : entry.children("nodes")) {
    const std::string name = node.as_text();
    const std::size_t expected = block.nodes.empty() ? 0 : block.nodes.back().index() + 1;
    const std::size_t found = finder.find(name, expected);
    if (found == graph.num_nodes() || seen[found] || found < expected) {
      node.fail(fmt::format("node '{}'", name),
                "each node of the graph in one block, in its order");
    }
    seen[found] = true;
    block.nodes.emplace_back(found);
  }
  if (block.nodes.empty()) entry.fail("a block without nodes", "at least one");
  return block;
}

void read_blocks(const JsonReader& reader, const Graph& graph, Profile& profile) {
  profile.recompute = reader.boolean("recompute");
  const JsonReader cache = reader.child("cache");
  profile.cache.folder = cache.text("folder");
  profile.cache.hits = cache.integer("hits", 0, kMostBytes);
  profile.cache.misses = cache.integer("misses", 0, kMostBytes);
  for (const JsonReader& why : cache.children("reasons")) {
    profile.cache.reasons.push_back(why.as_text());
  }
  NodeFinder finder(graph);
  std::vector<bool> seen(graph.num_nodes());
  for (const JsonReader& entry : reader.children("blocks")) {
    MeasuredBlock block = block_from_json(entry, graph, finder, seen);
    block.cost = block_cost_from_json(entry);
    const BlockCost sizes = block_sizes(graph, block.nodes, profile.batch);
    block.cost.weights = sizes.weights;
    block.cost.inputs = sizes.inputs;
    block.cost.outputs = sizes.outputs;
    profile.blocks.push_back(std::move(block));
  }
  if (std::find(seen.begin(), seen.end(), false) != seen.end()) {
    reader.fail("nodes in none of the blocks", "each node of the graph in one block");
  }
  fill_levels(graph, profile);
}

std::string hash_mismatch(std::string_view hash, const Graph& graph) {
  return fmt::format(
      "the profile was made from graph {}; the graph here, '{}', is {}; profile this graph", hash,
      graph.name(), graph.hash());
}

}  // namespace

std::string_view to_string(Source source) {
  switch (source) {
    case Source::measured: return "measured";
    case Source::estimated: return "estimated";
    case Source::given: return "given";
  }
  return "unknown";
}

Bytes NodeCost::workspace() const { return std::max(Bytes{0}, peak - inputs - weights - outputs); }

std::vector<Bytes> Profile::workspaces() const {
  std::vector<Bytes> out;
  out.reserve(nodes.size());
  for (const NodeCost& cost : nodes) out.push_back(cost.workspace());
  return out;
}

Nanoseconds Profile::total_forward() const {
  Nanoseconds total;
  for (const NodeCost& cost : nodes) total += cost.forward;
  return total;
}

Nanoseconds Profile::total_backward() const {
  Nanoseconds total;
  for (const NodeCost& cost : nodes) total += cost.backward;
  return total;
}

NodeCost node_sizes(const Graph& graph, NodeId node, std::int64_t batch) {
  NodeCost cost;
  std::vector<StorageId> weights;  // a handful: looked through
  for (const ValueId id : graph.inputs_of(node)) {
    const Value& value = graph.value(id);
    if (value.scalar) continue;
    if (value.origin != Origin::weight) {
      cost.inputs += value.bytes(batch);
    } else if (std::find(weights.begin(), weights.end(), value.storage) == weights.end()) {
      weights.push_back(value.storage);
      cost.weights += Bytes{graph.storage(value.storage).bytes.eval(batch)};
    }
  }
  for (const ValueId id : graph.node(node).outputs) {
    if (id.valid() && !graph.value(id).scalar) cost.outputs += graph.value(id).bytes(batch);
  }
  cost.peak = cost.inputs + cost.weights + cost.outputs;
  return cost;
}

void check_profile_matches(const Profile& profile, const Graph& graph) {
  if (profile.graph_hash != graph.hash()) {
    throw Error(kKind, "[profile.check] " + hash_mismatch(profile.graph_hash, graph));
  }
  if (profile.nodes.size() != graph.num_nodes()) {
    throw Error(kKind, fmt::format("[profile.check] {} nodes in the profile, {} in the graph",
                                   profile.nodes.size(), graph.num_nodes()));
  }
}

std::string print_profile(const Profile& profile, const Graph& graph) {
  check_profile_matches(profile, graph);
  Json json = format_header("kerf-profile", kVersion);
  json["graph"] = graph.name();
  json["graph_hash"] = profile.graph_hash;
  json["device_kind"] = profile.device_kind;
  json["batch"] = profile.batch;
  json["training"] = profile.training;
  json["source"] = to_string(profile.source);
  json["unknown_ops"] = Json::array();
  for (const UnknownOp& op : profile.unknown_ops) {
    json["unknown_ops"].push_back({{"op", op.op}, {"count", op.count}, {"share", op.share}});
  }
  json["notes"] = profile.notes;
  if (!profile.blocks.empty()) add_blocks(json, profile, graph);
  std::string out = json.dump(1);
  append_costs(out, profile, graph);
  return out;
}

Profile parse_profile(std::string_view text, const Graph& graph, std::string_view source) {
  const JsonDocument document = parse_json(text, source, kKind);
  check_format_header(document, "kerf-profile", kVersion);
  const JsonReader reader(document);
  Profile profile;
  profile.graph_hash = reader.text("graph_hash");
  if (profile.graph_hash != graph.hash()) {
    throw Error(kKind, fmt::format("[profile.load] {}: {}", source,
                                   hash_mismatch(profile.graph_hash, graph)));
  }
  profile.device_kind = reader.text("device_kind");
  profile.batch = reader.integer("batch", 0, kMostBytes);
  profile.training = reader.has("training") && reader.boolean("training");
  profile.source = parse_source(reader);
  for (const JsonReader& op : reader.children("unknown_ops")) {
    profile.unknown_ops.push_back(
        {op.text("op"), op.integer("count", 0, kMostBytes), read_quantity(op, "share")});
  }
  for (const JsonReader& note : reader.children("notes")) profile.notes.push_back(note.as_text());
  read_costs(reader, graph, profile);
  if (reader.has("blocks")) read_blocks(reader, graph, profile);
  return profile;
}

void save_profile(const Profile& profile, const Graph& graph, const std::string& path) {
  write_file(path, print_profile(profile, graph));
}

Profile load_profile(const std::string& path, const Graph& graph) {
  return parse_profile(read_file(path), graph, path);
}

}  // namespace kerf
