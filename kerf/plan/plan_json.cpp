// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// plan.json. Everything is written by name or with its unit in the key; nodes are listed once at
// the top in the graph's order, so that a file can be read, edited and loaded without the graph.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <unordered_map>

#include "kerf/base/file.h"
#include "kerf/base/quantity.h"
#include "kerf/plan/plan.h"
#include "kerf/profile/optimizer.h"

namespace kerf {
namespace {

constexpr FormatVersion kVersion{1, 5};
constexpr auto kKind = ErrorKind::invalid_plan;
constexpr std::int64_t kMost = std::int64_t{1} << 60;

using NodeIndex = std::unordered_map<std::string, NodeId>;

Json stage_to_json(const Plan& plan, const Stage& stage) {
  Json json;
  json["device"] = plan.cluster.device(stage.device).name;
  json["time_ns"] = stage.time.count;
  json["weights"] = stage.weights.count;
  json["activations"] = stage.activations.count;
  json["inputs"] = stage.inputs.count;
  json["outputs"] = stage.outputs.count;
  if (plan.training) {
    json["has_backward"] = stage.has_backward;
    json["backward_ns"] = stage.backward.count;
    json["weight_gradients_ns"] = stage.weight_gradients.count;
    json["recompute_ns"] = stage.recompute.count;
    json["gradients"] = stage.gradients.count;
    json["optimizer"] = stage.optimizer.count;
    json["saved"] = stage.saved.count;
    json["backward_activations"] = stage.backward_activations.count;
  }
  json["after"] = Json::array();
  for (const StageId before : stage.after) json["after"].push_back(before.index());
  json["nodes"] = Json::array();
  for (const NodeId node : stage.nodes) json["nodes"].push_back(plan.node_names[node.index()]);
  return json;
}

Json cut_to_json(const Cut& cut) {
  Json json;
  json["tensor"] = cut.tensor;
  json["value"] = cut.value.index();
  json["bytes"] = cut.bytes.count;
  json["from"] = cut.from.index();
  json["to"] = Json::array();
  for (const StageId stage : cut.to) json["to"].push_back(stage.index());
  if (cut.cost) json["cost_ns"] = cut.cost->count;
  if (cut.gradients.empty()) return json;
  json["gradients"] = Json::array();
  for (const StageId stage : cut.gradients) json["gradients"].push_back(stage.index());
  return json;
}

Json load_to_json(const Plan& plan, std::size_t device) {
  const DeviceMemory& memory = plan.memory[device];
  Json json;
  json["device"] = plan.cluster.devices[device].name;
  json["compute_ns"] = plan.loads[device].compute.count;
  json["communication_ns"] = plan.loads[device].communication.count;
  json["weights"] = memory.weights.count;
  if (plan.training) {
    json["gradients"] = memory.gradients.count;
    json["optimizer"] = memory.optimizer.count;
  }
  json["activations"] = memory.activations.count;
  json["predicted"] = memory.predicted.count;
  if (memory.limited) json["limit"] = memory.limit.count;
  return json;
}

// A time or, for the objective memory, bytes.
const char* bound_key(const Plan& plan) {
  return plan.objective == Objective::memory ? "value_bytes" : "value_ns";
}

Json bound_to_json(const Plan& plan) {
  const LowerBound& bound = plan.lower_bound;
  Json json;
  json["name"] = bound.name;
  json[bound_key(plan)] = bound.value;
  json["argument"] = bound.argument;
  return json;
}

Nanoseconds read_time(const JsonReader& reader, std::string_view key) {
  return Nanoseconds{read_quantity(reader, key)};
}

Bytes read_bytes(const JsonReader& reader, std::string_view key) {
  return Bytes{reader.integer(key, 0, kMost)};
}

DeviceId as_device(const JsonReader& reader, const Cluster& cluster) {
  const std::string name = reader.as_text();
  const DeviceId device = cluster.find_device(name);
  if (!device.valid()) reader.fail(fmt::format("device '{}'", name), "a device of the cluster");
  return device;
}

DeviceId read_device(const JsonReader& reader, const Cluster& cluster) {
  return as_device(reader.child("device"), cluster);
}

NodeIndex index_nodes(const JsonReader& reader, const Plan& plan) {
  NodeIndex index;
  for (std::size_t i = 0; i < plan.node_names.size(); ++i) {
    if (!index.emplace(plan.node_names[i], NodeId{i}).second) {
      reader.fail(fmt::format("node '{}' twice in \"nodes\"", plan.node_names[i]), "unique names");
    }
  }
  return index;
}

Stage stage_from_json(const JsonReader& reader, const Plan& plan, const NodeIndex& index,
                      std::vector<bool>& taken) {
  Stage stage;
  stage.device = read_device(reader, plan.cluster);
  stage.time = read_time(reader, "time_ns");
  stage.weights = read_bytes(reader, "weights");
  stage.activations = read_bytes(reader, "activations");
  stage.inputs = read_bytes(reader, "inputs");
  stage.outputs = read_bytes(reader, "outputs");
  if (plan.training) {
    stage.has_backward = reader.boolean("has_backward");
    stage.backward = read_time(reader, "backward_ns");
    stage.weight_gradients = read_time(reader, "weight_gradients_ns");
    stage.recompute = read_time(reader, "recompute_ns");
    if (stage.weight_gradients + stage.recompute > stage.backward) {
      reader.fail("weight_gradients_ns and recompute_ns above backward_ns", "shares of it");
    }
    stage.gradients = read_bytes(reader, "gradients");
    stage.optimizer = read_bytes(reader, "optimizer");
    stage.saved = read_bytes(reader, "saved");
    stage.backward_activations = read_bytes(reader, "backward_activations");
  }
  // Numbers are a topological order: only an earlier stage can be waited for.
  for (const JsonReader& entry : reader.children("after")) {
    const std::int64_t before = entry.as_integer();
    if (before < 0 || before >= static_cast<std::int64_t>(plan.stages.size())) {
      entry.fail(fmt::format("stage {}", before), "an earlier stage");
    }
    stage.after.emplace_back(before);
  }
  for (const JsonReader& entry : reader.children("nodes")) {
    const std::string name = entry.as_text();
    const auto found = index.find(name);
    if (found == index.end()) entry.fail(fmt::format("node '{}'", name), "a name from \"nodes\"");
    if (taken[found->second.index()]) {
      entry.fail(fmt::format("node '{}' in a second place", name), "each node in one stage");
    }
    taken[found->second.index()] = true;
    stage.nodes.push_back(found->second);
  }
  std::sort(stage.nodes.begin(), stage.nodes.end());
  return stage;
}

Cut cut_from_json(const JsonReader& reader, std::size_t num_stages) {
  const auto last = static_cast<std::int64_t>(num_stages) - 1;
  Cut cut;
  cut.tensor = reader.text("tensor");
  cut.value = ValueId{reader.integer("value", 0, (std::int64_t{1} << 32) - 2)};
  cut.bytes = read_bytes(reader, "bytes");
  cut.from = StageId{reader.integer("from", 0, last)};
  for (const JsonReader& to : reader.children("to")) {
    const std::int64_t stage = to.as_integer();
    if (stage < 0 || stage > last) to.fail(fmt::format("stage {}", stage), "a stage of the plan");
    if (stage <= static_cast<std::int64_t>(cut.from.index())) {
      to.fail(fmt::format("a tensor of stage {} used by stage {}", cut.from.index(), stage),
              "a later stage");
    }
    cut.to.emplace_back(stage);
  }
  if (reader.has("cost_ns")) cut.cost = read_time(reader, "cost_ns");  // since 1.5
  if (!reader.has("gradients")) return cut;
  for (const JsonReader& back : reader.children("gradients")) {
    const std::int64_t stage = back.as_integer();
    const bool known = stage >= 0 && stage <= last;
    if (!known || std::find(cut.to.begin(), cut.to.end(), StageId{stage}) == cut.to.end()) {
      back.fail(fmt::format("a gradient from stage {}", stage), "a stage that uses the tensor");
    }
    cut.gradients.emplace_back(stage);
  }
  return cut;
}

void read_devices(const JsonReader& reader, Plan& plan) {
  const std::vector<JsonReader> entries = reader.children("devices");
  if (entries.size() != plan.cluster.num_devices()) {
    reader.fail(fmt::format("{} entries in \"devices\"", entries.size()),
                fmt::format("{}, one for each device", plan.cluster.num_devices()));
  }
  plan.loads.resize(entries.size());
  plan.memory.resize(entries.size());
  for (const JsonReader& entry : entries) {
    const std::size_t device = read_device(entry, plan.cluster).index();
    plan.loads[device] = {read_time(entry, "compute_ns"), read_time(entry, "communication_ns")};
    DeviceMemory& memory = plan.memory[device];
    memory.weights = read_bytes(entry, "weights");
    if (plan.training) {
      memory.gradients = read_bytes(entry, "gradients");
      memory.optimizer = read_bytes(entry, "optimizer");
    }
    memory.activations = read_bytes(entry, "activations");
    memory.predicted = read_bytes(entry, "predicted");
    memory.limited = entry.has("limit");
    if (memory.limited) memory.limit = read_bytes(entry, "limit");
  }
}

void write_origin(const Plan& plan, Json& json) {
  json["graph"] = plan.graph_name;
  json["graph_hash"] = plan.graph_hash;
  json["method"] = plan.method;
  json["objective"] = to_string(plan.objective);
  json["comm_model"] = to_string(plan.comm_model);
  json["seed"] = plan.seed;
  json["truncated"] = plan.truncated;
  json["timed_out"] = plan.timed_out;
  json["contiguous"] = plan.contiguous;
  json["profile"] = {{"source", to_string(plan.profile_source)},
                     {"device_kind", plan.profile_kind},
                     {"batch", plan.profile_batch}};
  json["schedule"] = plan.schedule;
  json["n_microbatches"] = plan.n_microbatches;
  json["batch"] = plan.batch;
  json["micro_batch"] = plan.micro_batch;
  json["stages_per_device"] = plan.stages_per_device;
  json["training"] = plan.training;
  if (!plan.training) return;
  json["optimizer"] = plan.optimizer;
  json["recompute"] = plan.recompute;
  json["recomputed"] = plan.recomputed;
}

void write_predictions(const Plan& plan, Json& json) {
  json["predicted"] = {{"busiest_ns", plan.busiest.count},
                       {"step_ns", plan.step_time.count},
                       {"latency_ns", plan.latency.count},
                       {"throughput", plan.throughput},
                       {"bubble", plan.bubble}};
  json["lower_bound"] = bound_to_json(plan);
  json["notes"] = plan.notes;
}

Source read_source(const JsonReader& reader) {
  const std::string name = reader.text("source");
  for (const Source source : {Source::measured, Source::estimated, Source::given}) {
    if (to_string(source) == name) return source;
  }
  reader.fail(fmt::format("source '{}'", name), "measured, estimated or given");
}

CommModel read_comm_model(const JsonReader& reader) {
  const std::string name = reader.text("comm_model");
  try {
    return parse_comm_model(name);
  } catch (const Error&) {
    reader.fail(fmt::format("communication model '{}'", name),
                fmt::format("one of {}", fmt::join(comm_model_names(), ", ")));
  }
}

void read_origin(const JsonReader& reader, Plan& plan) {
  plan.graph_name = reader.text("graph");
  plan.graph_hash = reader.text("graph_hash");
  plan.method = reader.text("method");
  const std::string objective = reader.text("objective");
  try {
    plan.objective = parse_objective(objective);
  } catch (const Error& error) {
    reader.fail(error.what(), "a known objective");
  }
  plan.comm_model = read_comm_model(reader);
  plan.seed = reader.child("seed").as_unsigned();
  plan.truncated = reader.boolean("truncated");
  plan.timed_out = reader.has("timed_out") && reader.boolean("timed_out");
  plan.contiguous = reader.boolean("contiguous");
  const JsonReader profile = reader.child("profile");
  plan.profile_source = read_source(profile);
  plan.profile_kind = profile.text("device_kind");
  plan.profile_batch = profile.integer("batch", 0, kMost);
  plan.schedule = reader.text("schedule");
  if (find_schedule(plan.schedule) == nullptr) {
    reader.fail(fmt::format("schedule '{}'", plan.schedule),
                fmt::format("one of {}", fmt::join(schedule_names(), ", ")));
  }
  plan.n_microbatches = static_cast<int>(reader.integer("n_microbatches", 1, 1 << 20));
  plan.batch = reader.integer("batch", 0, kMost);
  plan.micro_batch = reader.integer("micro_batch", 0, kMost);
  if (reader.has("stages_per_device")) {
    plan.stages_per_device = static_cast<int>(reader.integer("stages_per_device", 1, 1 << 10));
  }
  plan.training = reader.has("training") && reader.boolean("training");
  if (!plan.training) return;
  plan.optimizer = reader.text("optimizer");
  const std::vector<std::string> optimizers = optimizer_names();
  if (std::find(optimizers.begin(), optimizers.end(), plan.optimizer) == optimizers.end()) {
    reader.fail(fmt::format("optimizer '{}'", plan.optimizer),
                fmt::format("one of {}", fmt::join(optimizers, ", ")));
  }
  plan.recompute = reader.text("recompute");
  for (const JsonReader& name : reader.children("recomputed")) {
    plan.recomputed.push_back(name.as_text());
  }
}

void read_predictions(const JsonReader& reader, Plan& plan) {
  const JsonReader predicted = reader.child("predicted");
  plan.busiest = read_time(predicted, "busiest_ns");
  plan.step_time = read_time(predicted, "step_ns");
  plan.latency = read_time(predicted, "latency_ns");
  plan.throughput = read_quantity(predicted, "throughput");
  plan.bubble = read_quantity(predicted, "bubble");
  const JsonReader bound = reader.child("lower_bound");
  plan.lower_bound = {bound.text("name"), read_quantity(bound, bound_key(plan)),
                      bound.text("argument")};
  for (const JsonReader& note : reader.children("notes")) plan.notes.push_back(note.as_text());
}

void read_stages(const JsonReader& reader, Plan& plan) {
  for (const JsonReader& name : reader.children("nodes")) {
    plan.node_names.push_back(name.as_text());
  }
  const NodeIndex index = index_nodes(reader, plan);
  std::vector<bool> taken(plan.node_names.size());
  for (const JsonReader& stage : reader.children("stages")) {
    plan.stages.push_back(stage_from_json(stage, plan, index, taken));
  }
  for (const JsonReader& cut : reader.children("cuts")) {
    plan.cuts.push_back(cut_from_json(cut, plan.stages.size()));
  }
}

void read_replicas(const JsonReader& reader, Plan& plan) {
  if (!reader.has("replicas")) return;  // before 1.1, or none
  for (const JsonReader& replica : reader.children("replicas")) {
    std::vector<DeviceId>& devices = plan.replicas.emplace_back();
    for (const JsonReader& name : replica.elements()) {
      devices.push_back(as_device(name, plan.cluster));
    }
  }
  try {
    check_replicas(plan);
  } catch (const Error& error) {
    reader.child("replicas").fail(error.what(), "replicas of the whole plan");
  }
}

}  // namespace

std::string print_plan(const Plan& plan) {
  Json json = format_header("kerf-plan", kVersion);
  write_origin(plan, json);
  write_predictions(plan, json);
  json["cluster"] = to_json(plan.cluster);
  json["devices"] = Json::array();
  for (std::size_t d = 0; d < plan.cluster.num_devices(); ++d) {
    json["devices"].push_back(load_to_json(plan, d));
  }
  json["stages"] = Json::array();
  for (const Stage& stage : plan.stages) json["stages"].push_back(stage_to_json(plan, stage));
  if (!plan.replicas.empty()) json["replicas"] = plan.replica_names();
  json["cuts"] = Json::array();
  for (const Cut& cut : plan.cuts) json["cuts"].push_back(cut_to_json(cut));
  json["nodes"] = plan.node_names;
  return json.dump(1) + "\n";
}

Plan parse_plan(std::string_view text, std::string_view source) {
  const JsonDocument document = parse_json(text, source, kKind);
  check_format_header(document, "kerf-plan", kVersion);
  const JsonReader reader(document);
  Plan plan;
  read_origin(reader, plan);
  read_predictions(reader, plan);
  plan.cluster = cluster_from_json(reader.child("cluster"));
  read_devices(reader, plan);
  read_stages(reader, plan);
  read_replicas(reader, plan);
  return plan;
}

void save_plan(const Plan& plan, const std::string& path) { write_file(path, print_plan(plan)); }

Plan load_plan(const std::string& path) { return parse_plan(read_file(path), path); }

}  // namespace kerf
