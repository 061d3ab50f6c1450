// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/report/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "kerf/base/error.h"
#include "kerf/emit/report/phases.h"
#include "kerf/plan/metrics.h"
#include "kerf/plan/passes.h"

namespace kerf {
namespace {

double ratio_or_one(Nanoseconds a, Nanoseconds b) { return b.count > 0 ? a / b : 1; }

void check_measured(const Plan& plan, const Timeline& timeline) {
  std::vector<std::string> names;
  for (const Device& device : plan.cluster.devices) names.push_back(device.name);
  const bool same = timeline.graph_hash == plan.graph_hash && timeline.devices == names &&
                    timeline.num_stages == static_cast<int>(plan.num_stages());
  if (same) return;
  throw Error(ErrorKind::invalid_argument,
              "[report.analyse] the timeline is of another graph, other stages or other devices; "
              "expected one of this plan; take pipe.timeline of a pipeline that ran it");
}

class Analyser {
 public:
  Analyser(const Plan& plan, const Graph* graph, const Timeline* measured)
      : plan_(plan), graph_(graph), measured_(measured) {
    if (graph != nullptr) check_plan_matches(plan, *graph);
    if (measured != nullptr) check_measured(plan, *measured);
  }

  Analysis run() {
    out_.measured = measured_ != nullptr;
    for (const Stage& stage : plan_.stages) add_stage(stage);
    out_.devices.resize(plan_.cluster.num_devices());
    if (measured_ != nullptr) take_measured();
    add_traffic();
    add_devices();
    if (graph_ != nullptr) count_parameters();
    if (graph_ != nullptr) look_at_layouts();
    add_totals();
    return std::move(out_);
  }

 private:
  void add_stage(const Stage& stage) {
    StageAnalysis& row = out_.stages.emplace_back();
    row.device = stage.device;
    row.forward = stage.time;
    row.backward = stage.backward;
    row.recompute = stage.recompute;
  }

  // The share of a backward that computes again is the plan's: a timeline does not tell it apart.
  void take_measured() {
    const std::vector<Nanoseconds> forward = stage_medians(*measured_, Phase::forward);
    const std::vector<Nanoseconds> backward = stage_medians(*measured_, Phase::backward);
    const std::vector<Nanoseconds> weights = stage_medians(*measured_, Phase::weight_gradient);
    for (std::size_t s = 0; s < out_.stages.size(); ++s) {
      StageAnalysis& row = out_.stages[s];
      row.forward = forward[s];
      const Nanoseconds all = backward[s] + weights[s];
      row.recompute = row.backward.count > 0 ? all * (row.recompute / row.backward) : Nanoseconds{};
      row.backward = all;
    }
  }

  // By tensor and receiving device: the first of its stages that needs it fetches it.
  void add_traffic() {
    const Passes passes = unroll(plan_);
    for (std::size_t c = 0; c < passes.cuts.size(); ++c) {
      const Cut& cut = passes.cuts[c];
      const bool gradient = c >= plan_.cuts.size();
      for (const DeviceId to : receivers(passes.stages, cut)) {
        const PassId first = *std::find_if(cut.to.begin(), cut.to.end(), [&](PassId pass) {
          return passes.stages[pass.index()].device == to;
        });
        const DeviceId from = passes.stages[cut.from.index()].device;
        const Nanoseconds time = transfer_time(cut, plan_.cluster.link(from, to));
        StageAnalysis& row = out_.stages[stage_of_pass(passes.shape, first).index()];
        if (measured_ == nullptr)
          (gradient ? row.backward_transfers : row.forward_transfers) += time;
        if (gradient) continue;
        row.received += cut.bytes;
        out_.stages[cut.from.index()].sent += cut.bytes;
      }
    }
    if (measured_ != nullptr) add_measured_transfers();
  }

  // The mean over the micro-batches; by the stage that needed the tensor.
  void add_measured_transfers() {
    const double count = std::max(1, measured_->n_microbatches);
    for (const Event& event : measured_->events) {
      if (event.kind != EventKind::transfer) continue;
      const Nanoseconds time = (event.end - event.start) / count;
      StageAnalysis& row = out_.stages[event.stage.index()];
      (event.phase == Phase::forward ? row.forward_transfers : row.backward_transfers) += time;
      out_.devices[event.device.index()].transfers += time;
    }
  }

  void add_devices() {
    for (const StageAnalysis& row : out_.stages) {
      out_.devices[row.device.index()].forward += row.forward;
      out_.devices[row.device.index()].backward += row.backward;
    }
    for (std::size_t d = 0; d < out_.devices.size(); ++d) {
      DeviceAnalysis& row = out_.devices[d];
      if (measured_ == nullptr) row.transfers = plan_.loads[d].communication;
      row.peak = plan_.memory[d].predicted;
      out_.busiest = std::max(out_.busiest, row.busy());
      out_.busiest_without_transfers =
          std::max(out_.busiest_without_transfers, row.forward + row.backward);
    }
    for (DeviceAnalysis& row : out_.devices) {
      row.utilisation = out_.busiest.count > 0 ? row.busy() / out_.busiest : 0;
    }
  }

  void count_parameters() {
    std::vector<std::set<StorageId>> of_stage(plan_.num_stages());
    std::vector<std::set<StorageId>> of_device(plan_.cluster.num_devices());
    const std::vector<StageId> stage_of = plan_.stage_of_nodes();
    std::vector<std::int64_t> stages(of_stage.size());
    std::vector<std::int64_t> devices(of_device.size());
    for (const Weight& weight : graph_->weights()) {
      if (weight.kind != WeightKind::parameter) continue;
      const Value& value = graph_->value(weight.value);
      std::int64_t elements = 1;
      for (const Expr& size : value.shape) elements *= size.eval(plan_.micro_batch);
      for (const NodeId user : graph_->consumers(weight.value)) {
        const StageId stage = stage_of[user.index()];
        const DeviceId device = plan_.stage(stage).device;
        if (of_stage[stage.index()].insert(value.storage).second) stages[stage.index()] += elements;
        if (of_device[device.index()].insert(value.storage).second) {
          devices[device.index()] += elements;
        }
      }
    }
    for (std::size_t s = 0; s < stages.size(); ++s) out_.stages[s].parameters = stages[s];
    for (std::size_t d = 0; d < devices.size(); ++d) out_.devices[d].parameters = devices[d];
  }

  // Are the elements one after the other, last dimension first?
  bool is_contiguous(const Value& value) const {
    std::int64_t expected = 1;
    for (std::size_t i = value.shape.size(); i-- > 0;) {
      const std::int64_t size = value.shape[i].eval(plan_.micro_batch);
      if (size != 1 && value.strides[i].eval(plan_.micro_batch) != expected) return false;
      expected *= size;
    }
    return true;
  }

  void look_at_layouts() {
    for (const Cut& cut : plan_.cuts) {
      if (receivers(plan_.stages, cut).empty() || is_contiguous(graph_->value(cut.value))) continue;
      out_.not_contiguous.push_back(cut.tensor);
    }
  }

  void add_totals() {
    double speeds = 0;
    double fastest = 0;
    for (const Device& device : plan_.cluster.devices) {
      speeds += device.speed;
      fastest = std::max(fastest, device.speed);
    }
    Nanoseconds work;
    Nanoseconds once;
    for (const StageAnalysis& row : out_.stages) {
      const double speed = plan_.cluster.device(row.device).speed;
      work += row.compute() * speed;
      once += (row.compute() - row.recompute) * speed;
    }
    out_.ideal = work / speeds;
    out_.sequential = once / fastest;
    out_.one_device = work / fastest;
  }

  const Plan& plan_;
  const Graph* graph_;
  const Timeline* measured_;
  Analysis out_;
};

}  // namespace

double StageAnalysis::compute_share() const {
  return ratio_or_one(compute(), compute() + transfers());
}

double Analysis::slowdown() const { return ratio_or_one(busiest, ideal); }
double Analysis::expected_speedup() const { return ratio_or_one(one_device, busiest); }
double Analysis::speedup() const { return ratio_or_one(sequential, busiest); }

Analysis analyse(const Plan& plan, const Graph* graph, const Timeline* measured) {
  return Analyser(plan, graph, measured).run();
}

}  // namespace kerf
