// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/report/report_json.h"

#include <nlohmann/json.hpp>

#include "kerf/emit/report/cut_out.h"
#include "kerf/plan/recording_memory.h"

namespace kerf {
namespace {

constexpr FormatVersion kReportVersion{1, 3};

double seconds(Nanoseconds time) { return time.count * 1e-9; }

Json profile_json(const Plan& plan) {
  Json json;
  json["source"] = to_string(plan.profile_source);
  json["device_kind"] = plan.profile_kind;
  json["batch"] = plan.profile_batch;
  return json;
}

Json stage_json(const Plan& plan, const Stage& stage, Bytes cut) {
  Json json;
  json["device"] = plan.cluster.device(stage.device).name;
  json["num_nodes"] = stage.nodes.size();
  json["time_s"] = seconds(stage.time);
  json["weight_bytes"] = stage.weights.count;
  json["activation_bytes"] = stage.activations.count;
  json["input_bytes"] = stage.inputs.count;
  json["output_bytes"] = stage.outputs.count;
  json["cut_bytes"] = cut.count;
  return json;
}

void add_training(Json& json, const Stage& stage, Bytes sent) {
  json["backward_s"] = seconds(stage.backward);
  json["weight_gradient_s"] = seconds(stage.weight_gradients);
  json["recompute_s"] = seconds(stage.recompute);
  json["gradient_bytes"] = stage.gradients.count;
  json["optimizer_bytes"] = stage.optimizer.count;
  json["saved_bytes"] = stage.saved.count;
  json["sent_gradient_bytes"] = sent.count;
}

Json device_json(const Plan& plan, std::size_t d) {
  const DeviceMemory& memory = plan.memory[d];
  Json json;
  json["device"] = plan.cluster.devices[d].name;
  json["compute_s"] = seconds(plan.loads[d].compute);
  json["communication_s"] = seconds(plan.loads[d].communication);
  json["weight_bytes"] = memory.weights.count;
  if (plan.training) {
    json["gradient_bytes"] = memory.gradients.count;
    json["optimizer_bytes"] = memory.optimizer.count;
  }
  json["activation_bytes"] = memory.activations.count;
  json["predicted_bytes"] = memory.predicted.count;
  json["recording_bytes"] = recording_memory(plan, DeviceId(d)).count;
  json["limit_bytes"] = memory.limited ? Json(memory.limit.count) : Json(nullptr);
  return json;
}

Json bound_json(const Plan& plan) {
  const LowerBound& bound = plan.lower_bound;
  Json json;
  json["name"] = bound.name;
  if (plan.objective == Objective::memory) {
    json["value_bytes"] = bound.value;
  } else {
    json["value_s"] = seconds(Nanoseconds{bound.value});
  }
  json["gap"] = bound.value > 0 ? Json(plan.gap()) : Json(nullptr);
  json["argument"] = bound.argument;
  return json;
}

}  // namespace

Json report_json(const Plan& plan) {
  Json json = format_header("kerf-report", kReportVersion);
  json["graph"] = plan.graph_name;
  json["graph_hash"] = plan.graph_hash;
  json["method"] = plan.method;
  json["truncated"] = plan.truncated;
  json["timed_out"] = plan.timed_out;
  json["objective"] = to_string(plan.objective);
  json["comm_model"] = to_string(plan.comm_model);
  json["schedule"] = plan.schedule;
  json["n_microbatches"] = plan.n_microbatches;
  json["batch"] = plan.batch;
  json["micro_batch"] = plan.micro_batch;
  json["training"] = plan.training;
  if (plan.training) {
    json["optimizer"] = plan.optimizer;
    json["recompute"] = plan.recompute;
    json["recomputed"] = plan.recomputed;
  }
  json["profile"] = profile_json(plan);
  json["stages"] = Json::array();
  const std::vector<Bytes> cut = cut_bytes_of_stages(plan);
  const std::vector<Bytes> sent = gradient_bytes_of_stages(plan);
  for (std::size_t s = 0; s < plan.num_stages(); ++s) {
    json["stages"].push_back(stage_json(plan, plan.stages[s], cut[s]));
    if (plan.training) add_training(json["stages"].back(), plan.stages[s], sent[s]);
  }
  json["replicas"] = plan.replica_names();
  json["devices"] = Json::array();
  for (std::size_t d = 0; d < plan.cluster.num_devices(); ++d) {
    json["devices"].push_back(device_json(plan, d));
  }
  json["cut_bytes"] = plan.cut_bytes().count;
  if (plan.training) json["sent_gradient_bytes"] = plan.gradient_bytes().count;
  json["busiest_s"] = seconds(plan.busiest);
  json["lower_bound"] = bound_json(plan);
  json["bubble"] = plan.bubble;
  json["latency_s"] = seconds(plan.latency);
  json["step_time_s"] = seconds(plan.step_time);
  json["throughput"] = plan.throughput;
  json["notes"] = plan.notes;
  return json;
}

}  // namespace kerf
