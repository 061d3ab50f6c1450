// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/verify/check_figures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string_view>

#include "kerf/plan/recompute.h"
#include "kerf/profile/load.h"
#include "kerf/profile/optimizer.h"
#include "kerf/verify/derive_memory.h"
#include "kerf/verify/derive_needs.h"
#include "kerf/verify/derive_step.h"
#include "kerf/verify/traffic.h"
#include "kerf/verify/unroll.h"

namespace kerf::derive {
namespace {

// Sums in another order differ in the last digits. Nothing is close to what is infinite.
bool close(double a, double b, double additions = 0) {
  const double larger = std::max({1.0, std::abs(a), std::abs(b)});
  const double digits = 1e-9 + additions * std::numeric_limits<double>::epsilon();
  return a == b || (std::isfinite(larger) && std::abs(a - b) <= digits * larger);
}

class FigureCheck {
 public:
  FigureCheck(const Graph& graph, const Profile* profile, const Plan& plan, const Flow& flow,
              Violations& violations)
      : graph_(graph), profile_(profile), plan_(plan), flow_(flow), violations_(violations) {}

  void run() {
    if (plan_.training && !check_optimizer()) return;
    check_times();
    if (plan_.training) {
      check_training();
    } else {
      const Traffic traffic = read_traffic(graph_, flow_, plan_);
      check_loads(derive_loads(traffic, plan_));
      check_memory();
      check_step([&](int n) { return derive_step(flow_, traffic, plan_, n); });
    }
    check_bound();
  }

 private:
  template <class... Args>
  void add(std::string rule, fmt::format_string<Args...> text, Args&&... args) {
    violations_.add(std::move(rule), text, std::forward<Args>(args)...);
  }

  void check_times() {
    if (profile_ == nullptr) return;
    if (profile_->source != plan_.profile_source || profile_->batch != plan_.profile_batch ||
        profile_->device_kind != plan_.profile_kind) {
      add("profile", "the plan was made with another profile: {} at batch {}, here {} at batch {}",
          to_string(plan_.profile_source), plan_.profile_batch, to_string(profile_->source),
          profile_->batch);
      return;
    }
    double scale = 1;
    if (profile_->batch > 0 && plan_.micro_batch > 0) {
      scale = static_cast<double>(plan_.micro_batch) / static_cast<double>(profile_->batch);
    }
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      const Stage& stage = plan_.stages[s];
      double time = 0;
      for (const NodeId node : stage.nodes) time += profile_->nodes[node.index()].forward.count;
      time *= scale / plan_.cluster.device(stage.device).speed;
      if (!close(time, stage.time.count)) {
        add("time", "stage {} takes {} ns, the plan says {}", s, time, stage.time.count);
      }
      if (plan_.training) {
        check_backward_times(s, scale / plan_.cluster.device(stage.device).speed);
      }
    }
  }

  void check_backward_times(std::size_t s, double scale) {
    const Stage& stage = plan_.stages[s];
    std::map<std::uint32_t, double> forward;  // by block: of all of its nodes here
    std::set<std::uint32_t> differentiated;
    double backward = 0;
    double weights = 0;
    bool whole = false;  // all gradients at once
    for (const NodeId node : stage.nodes) {
      const NodeCost& cost = profile_->nodes[node.index()];
      const std::uint32_t block = blocks_[node.index()];
      whole = whole || block != 0 || graph_.node(node).op == "opaque";
      if (block != 0) forward[block] += cost.forward.count;
      if (!needs_gradient(graph_, graph_.node(node))) continue;
      if (block != 0) differentiated.insert(block);
      backward += cost.backward.count;
      weights += cost.backward_weights.count;
    }
    const bool sends = std::any_of(plan_.cuts.begin(), plan_.cuts.end(), [&](const Cut& cut) {
      return std::find(cut.gradients.begin(), cut.gradients.end(), StageId{s}) !=
             cut.gradients.end();
    });
    if (whole) weights = 0;
    if (!whole && !sends) weights = backward;
    double again = 0;
    for (const std::uint32_t block : differentiated) again += forward[block];
    backward += again;
    if (close(backward * scale, stage.backward.count) &&
        close(again * scale, stage.recompute.count) &&
        close(weights * scale, stage.weight_gradients.count)) {
      return;
    }
    add("time",
        "the backward of stage {} takes {} ns, {} of it to compute again and {} for gradients of "
        "weights; the plan says {}, {} and {}",
        s, backward * scale, again * scale, weights * scale, stage.backward.count,
        stage.recompute.count, stage.weight_gradients.count);
  }

  void check_training() {
    const Unrolled unrolled = unroll_step(graph_, flow_, plan_);
    check_passes(unrolled);
    check_loads(derive_loads(unrolled.traffic, unrolled.plan));
    check_training_memory(unrolled);
    check_step([&](int n) {
      return derive_step(unrolled.flow, unrolled.traffic, unrolled.plan,
                         order_tasks(unrolled, plan_, plan_.stage_devices(), n));
    });
  }

  bool check_optimizer() {
    try {
      optimizer(plan_.optimizer);
      blocks_ = recompute_blocks(graph_, plan_.recomputed);
      return true;
    } catch (const Error& error) {
      add("training", "{}", error.what());
      return false;
    }
  }

  void check_passes(const Unrolled& unrolled) {
    for (std::size_t s = 0; s < plan_.num_stages(); ++s) {
      if (plan_.stages[s].has_backward == unrolled.has_backward[s]) continue;
      add("backward", "stage {} {} a backward, the plan says otherwise", s,
          unrolled.has_backward[s] ? "has" : "has not");
    }
    std::vector<std::pair<ValueId, StageId>> claimed;
    for (const Cut& cut : plan_.cuts) {
      for (const StageId user : cut.gradients) claimed.emplace_back(cut.value, user);
    }
    if (claimed != unrolled.gradients_from) {
      add("gradients", "{} gradients go from stage to stage, the plan lists {}, or others",
          unrolled.gradients_from.size(), claimed.size());
    }
  }

  void check_training_memory(const Unrolled& unrolled) {
    try {
      const TrainingNeeds needs = derive_training_needs(graph_, flow_, unrolled, plan_, profile_);
      for (std::size_t s = 0; s < plan_.num_stages(); ++s) {
        check_needs(s, needs.passes[s]);
        Bytes backward;
        for (std::size_t p = unrolled.backward(StageId{s}); p < needs.passes.size();
             p += plan_.num_stages()) {
          backward = std::max(backward, needs.passes[p].activations);
        }
        check_kept(s, needs.passes[s], needs.saved[s], backward);
      }
      std::vector<std::vector<DeviceId>> copies = plan_.copies();
      std::vector<TaskOrder> orders;
      for (std::vector<DeviceId>& devices : copies) {
        orders.push_back(order_tasks(unrolled, plan_, devices, plan_.n_microbatches));
        const std::vector<DeviceId> once = devices;
        while (devices.size() < unrolled.plan.stages.size()) {
          devices.insert(devices.end(), once.begin(), once.end());
        }
      }
      auto memory = derive_memory(graph_, unrolled.flow, needs.passes, plan_, copies, orders);
      for (std::size_t d = 0; d < memory.size(); ++d) check_device_memory(d, memory[d]);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::invalid_argument) throw;
      add("memory", "{}", error.what());
    }
  }

  void check_kept(std::size_t s, const StageNeeds& needs, Bytes saved, Bytes backward) {
    const Stage& stage = plan_.stages[s];
    Bytes trained;
    for (const Weight& weight : graph_.weights()) {
      const StorageId id = graph_.value(weight.value).storage;
      const auto& own = needs.weights;
      if (!std::binary_search(own.begin(), own.end(), id)) continue;
      if (graph_.value(weight.value).requires_grad && counted_.insert({s, id}).second) {
        trained += Bytes{graph_.storage(id).bytes.eval(plan_.micro_batch)};
      }
    }
    const Bytes state = trained * optimizer(plan_.optimizer).state;
    if (saved == stage.saved && trained == stage.gradients && state == stage.optimizer &&
        agree(backward, stage.backward_activations)) {
      return;
    }
    add("sizes",
        "stage {} keeps {} bytes for its backward, which allocates {}; its gradients take {}, the "
        "optimizer {}; the plan says {}, {}, {}, {}",
        s, saved.count, backward.count, trained.count, state.count, stage.saved.count,
        stage.backward_activations.count, stage.gradients.count, stage.optimizer.count);
  }

  void check_loads(const std::vector<DeviceLoad>& loads) {
    double busiest = 0;
    for (std::size_t d = 0; d < loads.size(); ++d) {
      busiest = std::max(busiest, loads[d].busy().count);
      const DeviceLoad& claimed = plan_.loads[d];
      if (close(loads[d].compute.count, claimed.compute.count) &&
          close(loads[d].communication.count, claimed.communication.count)) {
        continue;
      }
      add("load", "{} computes {} ns and communicates {} ns, the plan says {} and {}",
          plan_.cluster.devices[d].name, loads[d].compute.count, loads[d].communication.count,
          claimed.compute.count, claimed.communication.count);
    }
    if (!close(busiest, plan_.busiest.count)) {
      add("objective", "the busiest device takes {} ns, the plan says {}", busiest,
          plan_.busiest.count);
    }
  }

  void check_memory() {
    std::vector<Bytes> workspace;
    if (profile_ != nullptr) workspace = profile_->workspaces();
    try {
      const auto needs = derive_needs(graph_, flow_, plan_.micro_batch, workspace);
      for (std::size_t s = 0; s < needs.size(); ++s) check_needs(s, needs[s]);
      const auto memory = derive_memory(graph_, flow_, needs, plan_);
      for (std::size_t d = 0; d < memory.size(); ++d) check_device_memory(d, memory[d]);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::invalid_argument) throw;
      add("memory", "{}", error.what());
    }
  }

  // Without a profile the workspace is unknown: figures may then be larger than derived.
  bool agree(Bytes derived, Bytes claimed) const {
    return profile_ != nullptr ? derived == claimed : derived <= claimed;
  }

  void check_needs(std::size_t s, const StageNeeds& needs) {
    const Stage& stage = plan_.stages[s];
    if (needs.weight_bytes != stage.weights || !agree(needs.activations, stage.activations) ||
        needs.inputs != stage.inputs || needs.outputs != stage.outputs) {
      add("sizes",
          "stage {} has weights {}, activations {}, inputs {}, outputs {}; the plan says {}, {}, "
          "{}, {}",
          s, needs.weight_bytes.count, needs.activations.count, needs.inputs.count,
          needs.outputs.count, stage.weights.count, stage.activations.count, stage.inputs.count,
          stage.outputs.count);
    }
  }

  bool is_replica(DeviceId device) const {
    return std::any_of(plan_.replicas.begin(), plan_.replicas.end(), [&](const auto& replica) {
      return std::find(replica.begin(), replica.end(), device) != replica.end();
    });
  }

  void check_device_memory(std::size_t d, const DeviceMemory& memory) {
    const DeviceMemory& claimed = plan_.memory[d];
    const std::string& name = plan_.cluster.devices[d].name;
    if (memory.weights != claimed.weights || memory.gradients != claimed.gradients ||
        memory.optimizer != claimed.optimizer || !agree(memory.activations, claimed.activations) ||
        !agree(memory.predicted, claimed.predicted) || memory.limited != claimed.limited ||
        memory.limit != claimed.limit) {
      add(is_replica(DeviceId{d}) ? "replicas" : "memory",
          "{} needs {} bytes (weights {}, activations {}), the plan says {} ({}, {}), or another "
          "limit",
          name, memory.predicted.count, memory.weights.count, memory.activations.count,
          claimed.predicted.count, claimed.weights.count, claimed.activations.count);
    }
    if (memory.limited && std::max(memory.predicted, claimed.predicted) > memory.limit) {
      add(is_replica(DeviceId{d}) ? "replicas" : "limit", "{} needs {} bytes and has {}", name,
          std::max(memory.predicted, claimed.predicted).count, memory.limit.count);
    }
  }

  // `derive(n)`: a step of n micro-batches.
  template <class Derive>
  void check_step(Derive&& derive) {
    try {
      const StepFigures step = derive(plan_.n_microbatches);
      if (!close(step.end, plan_.step_time.count, step.moments)) {
        add("step", "a step takes {} ns, the plan says {}", step.end, plan_.step_time.count);
      }
      if (!close(step.bubble, plan_.bubble, step.moments)) {
        add("bubble", "the bubble is {}, the plan says {}", step.bubble, plan_.bubble);
      }
      check_throughput(step);
      const double latency = derive(1).end;
      if (!close(latency, plan_.latency.count)) {
        add("latency", "one micro-batch takes {} ns, the plan says {}", latency,
            plan_.latency.count);
      }
    } catch (const Error& error) {
      // Too much to follow says nothing of the plan.
      if (error.kind() == ErrorKind::invalid_argument) throw;
      add("step", "{}", error.what());
    }
  }

  // A graph without a batch: steps per second. However short a step, a number.
  void check_throughput(const StepFigures& figures) {
    const double step = figures.end;
    const double samples = plan_.batch > 0 ? static_cast<double>(plan_.batch) : 1;
    double throughput = 0;
    if (step > 0) throughput = std::min(samples * 1e9 / step, std::numeric_limits<double>::max());
    if (close(throughput, plan_.throughput, figures.moments)) return;
    add("throughput", "{} samples in {} ns, the plan says {} per second", samples, step,
        plan_.throughput);
  }

  double objective_value() const {
    double fullest = 0;
    for (const DeviceMemory& memory : plan_.memory) {
      fullest = std::max(fullest, static_cast<double>(memory.predicted.count));
    }
    switch (plan_.objective) {
      case Objective::throughput: return plan_.busiest.count;
      case Objective::latency: return plan_.latency.count;
      case Objective::step: return plan_.step_time.count;
      case Objective::memory: return fullest;
    }
    return 0;
  }

  void check_bound() {
    const double bound = plan_.lower_bound.value;
    const double value = objective_value();
    if (bound > value && !close(bound, value)) {
      add("bound", "the lower bound '{}' of {} is above the plan's own {}", plan_.lower_bound.name,
          bound, value);
    }
  }

  const Graph& graph_;
  const Profile* profile_;
  const Plan& plan_;
  const Flow& flow_;
  Violations& violations_;
  std::vector<std::uint32_t> blocks_;                    // by node: what is computed again
  std::set<std::pair<std::size_t, StorageId>> counted_;  // weights of stages
};

}  // namespace

void check_figures(const Graph& graph, const Profile* profile, const Plan& plan, const Flow& flow,
                   Violations& violations) {
  if (profile == nullptr || !has_load(*profile)) {
    FigureCheck(graph, profile, plan, flow, violations).run();
    return;
  }
  const Profile mixed = with_load(*profile, plan.cluster, plan.n_microbatches);
  FigureCheck(graph, &mixed, plan, flow, violations).run();
}

}  // namespace kerf::derive
