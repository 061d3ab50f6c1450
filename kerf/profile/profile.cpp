// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "kerf/base/file.h"

namespace kerf {
namespace {

constexpr FormatVersion kVersion{1, 0};
constexpr auto kKind = ErrorKind::invalid_profile;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;

Source parse_source(const JsonReader& reader) {
  const std::string name = reader.text("source");
  for (const Source source : {Source::measured, Source::estimated, Source::given}) {
    if (to_string(source) == name) return source;
  }
  reader.fail(fmt::format("source '{}'", name), "measured, estimated or given");
}

Json cost_to_json(const std::string& name, const NodeCost& cost) {
  Json json;
  json["node"] = name;
  json["forward_ns"] = cost.forward.count;
  if (cost.samples > 0) {
    json["forward_spread_ns"] = cost.forward_spread.count;
    json["samples"] = cost.samples;
  }
  json["flops"] = cost.flops;
  json["macs"] = cost.macs;
  json["moved"] = cost.moved.count;
  json["weights"] = cost.weights.count;
  json["inputs"] = cost.inputs.count;
  json["outputs"] = cost.outputs.count;
  json["saved"] = cost.saved.count;
  json["peak"] = cost.peak.count;
  json["source"] = to_string(cost.source);
  return json;
}

double not_negative(const JsonReader& reader, std::string_view key) {
  const double number = reader.number(key);
  if (number < 0) reader.fail(fmt::format("{} = {}", key, number), "a number that is not negative");
  return number;
}

NodeCost cost_from_json(const JsonReader& reader) {
  NodeCost cost;
  cost.forward = Nanoseconds{not_negative(reader, "forward_ns")};
  if (reader.has("samples")) {
    cost.samples = static_cast<int>(reader.integer("samples", 0, 1 << 30));
    cost.forward_spread = Nanoseconds{not_negative(reader, "forward_spread_ns")};
  }
  const auto bytes = [&](std::string_view key) {
    return Bytes{reader.integer(key, 0, kMostBytes)};
  };
  cost.flops = not_negative(reader, "flops");
  cost.macs = not_negative(reader, "macs");
  cost.moved = bytes("moved");
  cost.weights = bytes("weights");
  cost.inputs = bytes("inputs");
  cost.outputs = bytes("outputs");
  cost.saved = bytes("saved");
  cost.peak = bytes("peak");
  cost.source = parse_source(reader);
  return cost;
}

void read_costs(const JsonReader& reader, const Graph& graph, Profile& profile) {
  std::unordered_map<std::string_view, std::size_t> index;
  for (std::size_t i = 0; i < graph.num_nodes(); ++i) index[graph.nodes()[i].name] = i;
  std::vector<bool> seen(graph.num_nodes());
  profile.nodes.resize(graph.num_nodes());
  for (const JsonReader& entry : reader.children("nodes")) {
    const std::string name = entry.text("node");
    const auto found = index.find(name);
    if (found == index.end()) entry.fail(fmt::format("node '{}'", name), "a node of the graph");
    if (seen[found->second]) entry.fail(fmt::format("node '{}' twice", name), "each node once");
    seen[found->second] = true;
    profile.nodes[found->second] = cost_from_json(entry);
  }
  const auto missing = std::find(seen.begin(), seen.end(), false);
  if (missing != seen.end()) {
    const Node& node = graph.nodes()[static_cast<std::size_t>(missing - seen.begin())];
    reader.fail(fmt::format("no entry for node '{}'", node.name), "every node of the graph");
  }
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

NodeCost node_sizes(const Graph& graph, NodeId node, std::int64_t batch) {
  NodeCost cost;
  std::set<StorageId> weights;
  for (const ValueId id : graph.inputs_of(node)) {
    const Value& value = graph.value(id);
    if (value.scalar) continue;
    if (value.origin != Origin::weight) {
      cost.inputs += value.bytes(batch);
    } else if (weights.insert(value.storage).second) {
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
  json["source"] = to_string(profile.source);
  json["unknown_ops"] = Json::array();
  for (const UnknownOp& op : profile.unknown_ops) {
    json["unknown_ops"].push_back({{"op", op.op}, {"count", op.count}, {"share", op.share}});
  }
  json["notes"] = profile.notes;
  json["nodes"] = Json::array();
  for (std::size_t i = 0; i < profile.nodes.size(); ++i) {
    json["nodes"].push_back(cost_to_json(graph.nodes()[i].name, profile.nodes[i]));
  }
  return json.dump(1) + "\n";
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
  profile.source = parse_source(reader);
  for (const JsonReader& op : reader.children("unknown_ops")) {
    profile.unknown_ops.push_back(
        {op.text("op"), op.integer("count", 0, kMostBytes), op.number("share")});
  }
  for (const JsonReader& note : reader.children("notes")) profile.notes.push_back(note.as_text());
  read_costs(reader, graph, profile);
  return profile;
}

void save_profile(const Profile& profile, const Graph& graph, const std::string& path) {
  write_file(path, print_profile(profile, graph));
}

Profile load_profile(const std::string& path, const Graph& graph) {
  return parse_profile(read_file(path), graph, path);
}

}  // namespace kerf
