// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/verify/verify_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "kerf/graph/total_bytes.h"
#include "kerf/plan/metrics.h"
#include "kerf/simulate/memory.h"
#include "kerf/simulate/step.h"

namespace kerf {
namespace {

// Sums in another order differ in the last digits.
bool close(double a, double b) {
  return std::abs(a - b) <= 1e-9 * std::max({1.0, std::abs(a), std::abs(b)});
}

class PlanVerifier {
 public:
  PlanVerifier(const Graph& graph, const Profile* profile, const Plan& plan)
      : graph_(graph), profile_(profile), plan_(plan) {}

  std::vector<Violation> run() {
    check_origin();
    check_cluster_of_plan();
    check_batches();
    // Asks for the device of every stage, the memory below for those of every copy.
    if (violations_.empty()) check_replicas_of_plan();
    if (violations_.empty()) check_total();
    if (violations_.empty()) check_coverage();
    // What follows asks for the stage of every node.
    if (!violations_.empty()) return std::move(violations_);
    check_order();
    check_glue();
    if (!violations_.empty()) return std::move(violations_);
    check_dependencies();
    try {
      check_cuts();
      check_times();
      check_loads();
      check_memory();
      check_simulation();
    } catch (const Error& error) {  // sizes at this micro-batch that no number holds
      add("sizes", "{}", error.what());
    }
    check_bound();
    return std::move(violations_);
  }

 private:
  template <class... Args>
  void add(std::string rule, fmt::format_string<Args...> text, Args&&... args) {
    violations_.push_back({std::move(rule), fmt::format(text, std::forward<Args>(args)...)});
  }

  // The stage of a node, by its own name for messages.
  std::size_t stage_of(NodeId node) const { return stage_of_[node.index()]; }
  const std::string& name_of(NodeId node) const { return graph_.node(node).name; }

  void check_origin() {
    if (plan_.graph_hash != graph_.hash()) {
      add("hash", "the plan is for graph '{}' with hash {}, this graph '{}' has hash {}",
          plan_.graph_name, plan_.graph_hash, graph_.name(), graph_.hash());
    }
    if (profile_ != nullptr && profile_->graph_hash != graph_.hash()) {
      add("hash", "the profile is for a graph with hash {}, this graph '{}' has hash {}",
          profile_->graph_hash, graph_.name(), graph_.hash());
    }
    if (plan_.node_names.size() != graph_.num_nodes()) {
      add("names", "the plan lists {} nodes, the graph has {}", plan_.node_names.size(),
          graph_.num_nodes());
      return;
    }
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      if (plan_.node_names[n] == graph_.nodes()[n].name) continue;
      add("names", "node {} is '{}' in the plan and '{}' in the graph", n, plan_.node_names[n],
          graph_.nodes()[n].name);
      return;
    }
  }

  void check_cluster_of_plan() {
    try {
      check_cluster(plan_.cluster);
    } catch (const Error& error) {
      add("cluster", "{}", error.what());
    }
    const std::size_t devices = plan_.cluster.num_devices();
    if (plan_.loads.size() != devices || plan_.memory.size() != devices) {
      add("cluster", "{} devices, but loads of {} and memory of {}", devices, plan_.loads.size(),
          plan_.memory.size());
    }
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      if (plan_.stages[s].device.index() < devices) continue;
      add("device", "stage {} is on device {}, the cluster has {}", s,
          plan_.stages[s].device.index(), devices);
    }
    if (find_schedule(plan_.schedule) == nullptr) {
      add("schedule", "unknown schedule '{}'", plan_.schedule);
    }
    if (plan_.comm_model != "link" && plan_.comm_model != "host_staged" &&
        plan_.comm_model != "overlapped") {
      add("comm_model", "communication model '{}' cannot be verified", plan_.comm_model);
    }
  }

  void check_replicas_of_plan() {
    const std::vector<DeviceId> own = plan_.stage_devices();
    copy_on_.assign(plan_.cluster.num_devices(), kNoCopy);
    for (const DeviceId device : own) copy_on_[device.index()] = 0;
    for (std::size_t r = 0; r < plan_.replicas.size(); ++r) {
      const std::vector<DeviceId>& replica = plan_.replicas[r];
      if (replica.size() != own.size()) {
        add("replicas", "replica {} has devices for {} stages, the plan has {}", r, replica.size(),
            own.size());
      } else if (!share_alike(own, replica)) {
        add("replicas", "stages of replica {} share devices, or do not, otherwise than the plan's",
            r);
      }
      for (const DeviceId device : std::set<DeviceId>(replica.begin(), replica.end())) {
        if (device.index() >= copy_on_.size()) {
          add("replicas", "replica {} is on device {}, the cluster has {}", r, device.index(),
              copy_on_.size());
        } else if (copy_on_[device.index()] != kNoCopy) {
          add("replicas", "replica {} is on {}, which has another copy's stages", r,
              plan_.cluster.device(device).name);
        } else {
          copy_on_[device.index()] = r + 1;
        }
      }
    }
  }

  // Is one list the other with its devices renamed? Then there are as many pairs as devices.
  static bool share_alike(const std::vector<DeviceId>& a, const std::vector<DeviceId>& b) {
    std::set<std::pair<DeviceId, DeviceId>> pairs;
    for (std::size_t s = 0; s < a.size(); ++s) pairs.emplace(a[s], b[s]);
    return pairs.size() == std::set<DeviceId>(a.begin(), a.end()).size() &&
           pairs.size() == std::set<DeviceId>(b.begin(), b.end()).size();
  }

  void check_batches() {
    if (plan_.n_microbatches < 1) {
      add("batch", "{} micro-batches", plan_.n_microbatches);
      return;
    }
    if (graph_.is_static() != (plan_.batch == 0)) {
      add("batch", "the graph is {}static and the plan's batch is {}",
          graph_.is_static() ? "" : "not ", plan_.batch);
    }
    const std::int64_t size = (plan_.batch + plan_.n_microbatches - 1) / plan_.n_microbatches;
    if (plan_.micro_batch != size) {
      add("batch", "a batch of {} in {} micro-batches gives micro-batches of {}, not {}",
          plan_.batch, plan_.n_microbatches, size, plan_.micro_batch);
    }
  }

  // What follows adds sizes up: their sum has to be a number.
  void check_total() {
    const double total = total_bytes(graph_.storages(), graph_.values(), plan_.micro_batch);
    const double copies = static_cast<double>(plan_.n_microbatches) *
                          static_cast<double>(plan_.cluster.num_devices());
    if (total * copies <= kMostTotalBytes) return;
    add("sizes", "tensors of {:.3g} bytes in {} micro-batches on {} devices are past 2^60 bytes",
        total, plan_.n_microbatches, plan_.cluster.num_devices());
  }

  void check_coverage() {
    constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);
    stage_of_.assign(graph_.num_nodes(), kNowhere);
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      if (plan_.stages[s].nodes.empty()) add("coverage", "stage {} is empty", s);
      for (const NodeId node : plan_.stages[s].nodes) {
        if (node.index() >= graph_.num_nodes()) {
          add("coverage", "stage {} names node {}, the graph has {}", s, node.index(),
              graph_.num_nodes());
        } else if (stage_of_[node.index()] != kNowhere) {
          add("coverage", "node '{}' is in stages {} and {}", name_of(node),
              stage_of_[node.index()], s);
        } else {
          stage_of_[node.index()] = s;
        }
      }
    }
    for (std::size_t n = 0; n < stage_of_.size(); ++n) {
      if (stage_of_[n] == kNowhere) {
        add("coverage", "node '{}' is in no stage", graph_.nodes()[n].name);
      }
    }
  }

  // Data edges are read off the arguments again, not taken from the graph's adjacency.
  template <class Visit>
  void for_each_edge(Visit&& visit) const {
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      for (const NamedArgument& argument : graph_.nodes()[n].args) {
        for_each_value(argument.value, [&](ValueId id) {
          const Value& value = graph_.value(id);
          if (value.origin == Origin::node) visit(value.producer, NodeId{n}, "uses a value of");
        });
      }
    }
    for (const Edge& edge : graph_.order_edges()) {
      visit(edge.from, edge.to, "must come after (memory)");
    }
  }

  void check_order() {
    for_each_edge([&](NodeId from, NodeId to, std::string_view why) {
      if (stage_of(from) <= stage_of(to)) return;
      add("acyclic", "node '{}' in stage {} {} node '{}' in stage {}", name_of(to), stage_of(to),
          why, name_of(from), stage_of(from));
    });
    bool contiguous = true;
    for (const Stage& stage : plan_.stages) {
      for (std::size_t k = 0; k + 1 < stage.nodes.size(); ++k) {
        if (stage.nodes[k] >= stage.nodes[k + 1]) {
          add("coverage", "nodes of a stage are not in ascending order near '{}'",
              name_of(stage.nodes[k]));
          return;
        }
        contiguous &= stage.nodes[k].index() + 1 == stage.nodes[k + 1].index();
      }
    }
    if (plan_.contiguous != contiguous) {
      add("contiguous", "the plan says it is {}contiguous", plan_.contiguous ? "" : "not ");
    }
  }

  void check_glue() {
    for (const std::vector<NodeId>& group : graph_.glued()) {
      for (const NodeId node : group) {
        if (stage_of(node) == stage_of(group.front())) continue;
        add("glue", "nodes '{}' and '{}' see each other's writes and are in stages {} and {}",
            name_of(group.front()), name_of(node), stage_of(group.front()), stage_of(node));
      }
    }
  }

  void check_dependencies() {
    std::vector<std::set<StageId>> after(plan_.stages.size());
    for_each_edge([&](NodeId from, NodeId to, std::string_view) {
      if (stage_of(from) != stage_of(to)) after[stage_of(to)].insert(StageId{stage_of(from)});
    });
    for (std::size_t s = 0; s < after.size(); ++s) {
      if (std::vector<StageId>(after[s].begin(), after[s].end()) == plan_.stages[s].after) continue;
      add("after", "stage {} waits for {} stages, the plan lists {} or other ones", s,
          after[s].size(), plan_.stages[s].after.size());
    }
  }

  // value -> stages other than its own that use it.
  std::map<ValueId, std::set<StageId>> crossing_values() const {
    std::map<ValueId, std::set<StageId>> crossing;
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      for (const NamedArgument& argument : graph_.nodes()[n].args) {
        for_each_value(argument.value, [&](ValueId id) {
          const Value& value = graph_.value(id);
          if (value.origin != Origin::node || value.scalar) return;
          if (stage_of(value.producer) != stage_of_[n]) crossing[id].insert(StageId{stage_of_[n]});
        });
      }
    }
    return crossing;
  }

  void check_cuts() {
    std::map<ValueId, std::set<StageId>> crossing = crossing_values();
    for (const Cut& cut : plan_.cuts) {
      const auto found = crossing.find(cut.value);
      if (found == crossing.end()) {
        add("cuts", "tensor '{}' does not cross a cut, or is listed twice", cut.tensor);
        continue;
      }
      const Value& value = graph_.value(cut.value);
      const Bytes bytes = value.bytes(plan_.micro_batch);
      if (cut.tensor != value.name || cut.from.index() != stage_of(value.producer) ||
          !std::equal(cut.to.begin(), cut.to.end(), found->second.begin(), found->second.end())) {
        add("cuts", "tensor '{}' is listed with another name, maker or users", value.name);
      }
      if (cut.bytes != bytes) {
        add("cuts", "tensor '{}' has {} bytes, the plan says {}", value.name, bytes.count,
            cut.bytes.count);
      }
      crossing.erase(found);
    }
    for (const auto& [value, users] : crossing) {
      add("cuts", "tensor '{}' crosses to stage {} and is not listed", graph_.value(value).name,
          users.begin()->index());
    }
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
    }
  }

  double transfer_time(DeviceId from, DeviceId to, double bytes) const {
    const Link& link = plan_.cluster.link(from, to);
    return link.latency.count +
           (link.bytes_per_second > 0 ? bytes / link.bytes_per_second * 1e9 : 0);
  }

  // What one tensor costs each device. link: the receivers, once each. host_staged: those, and the
  // maker once, host devices nothing. overlapped: the maker, once for each receiver.
  void charge_tensor(DeviceId from, const std::set<DeviceId>& receivers, double bytes,
                     std::vector<double>& communication) const {
    const bool staged = plan_.comm_model == "host_staged";
    const bool overlapped = plan_.comm_model == "overlapped";
    double slowest = 0;
    for (const DeviceId to : receivers) {
      const double time = transfer_time(from, to, bytes);
      slowest = std::max(slowest, time);
      if (staged && plan_.cluster.device(to).host) continue;
      communication[(overlapped ? from : to).index()] += time;
    }
    if (staged && !plan_.cluster.device(from).host) communication[from.index()] += slowest;
  }

  void check_loads() {
    std::vector<double> compute(plan_.cluster.num_devices());
    std::vector<double> communication(plan_.cluster.num_devices());
    for (const Stage& stage : plan_.stages) compute[stage.device.index()] += stage.time.count;
    for (const auto& [id, users] : crossing_values()) {
      const Value& value = graph_.value(id);
      const DeviceId from = plan_.stages[stage_of(value.producer)].device;
      std::set<DeviceId> receivers;
      for (const StageId user : users) receivers.insert(plan_.stage(user).device);
      receivers.erase(from);
      const auto bytes = static_cast<double>(value.bytes(plan_.micro_batch).count);
      charge_tensor(from, receivers, bytes, communication);
    }
    if (plan_.comm_model == "overlapped") {
      for (std::size_t d = 0; d < compute.size(); ++d) {
        communication[d] = std::max(0.0, communication[d] - compute[d]);
      }
    }
    double busiest = 0;
    for (std::size_t d = 0; d < compute.size(); ++d) {
      busiest = std::max(busiest, compute[d] + communication[d]);
      if (close(compute[d], plan_.loads[d].compute.count) &&
          close(communication[d], plan_.loads[d].communication.count)) {
        continue;
      }
      add("load", "{} computes {} ns and communicates {} ns, the plan says {} and {}",
          plan_.cluster.devices[d].name, compute[d], communication[d], plan_.loads[d].compute.count,
          plan_.loads[d].communication.count);
    }
    if (!close(busiest, plan_.busiest.count)) {
      add("objective", "the busiest device takes {} ns, the plan says {}", busiest,
          plan_.busiest.count);
    }
  }

  void check_memory() {
    std::vector<StageId> stages;
    for (const std::size_t stage : stage_of_) stages.emplace_back(stage);
    std::vector<Bytes> workspace;
    if (profile_ != nullptr) workspace = profile_->workspaces();
    try {
      const auto sizes =
          stage_sizes(graph_, stages, plan_.num_stages(), plan_.micro_batch, workspace);
      for (std::size_t s = 0; s < sizes.size(); ++s) check_sizes(s, sizes[s]);
      const auto memory = plan_memory(graph_, plan_, workspace);
      for (std::size_t d = 0; d < memory.size(); ++d) check_device_memory(d, memory[d]);
    } catch (const Error& error) {
      add("memory", "{}", error.what());
    }
  }

  // Without a profile the workspace is unknown: figures may then be larger than derived.
  bool agree(Bytes derived, Bytes claimed) const {
    return profile_ != nullptr ? derived == claimed : derived <= claimed;
  }

  void check_sizes(std::size_t s, const StageSizes& sizes) {
    const Stage& stage = plan_.stages[s];
    if (sizes.weights != stage.weights || !agree(sizes.activations, stage.activations) ||
        sizes.inputs != stage.inputs || sizes.outputs != stage.outputs) {
      add("sizes",
          "stage {} has weights {}, activations {}, inputs {}, outputs {}; the plan says {}, {}, "
          "{}, {}",
          s, sizes.weights.count, sizes.activations.count, sizes.inputs.count, sizes.outputs.count,
          stage.weights.count, stage.activations.count, stage.inputs.count, stage.outputs.count);
    }
  }

  bool is_replica(std::size_t device) const {
    return copy_on_[device] != kNoCopy && copy_on_[device] != 0;
  }

  void check_device_memory(std::size_t d, const DeviceMemory& memory) {
    const DeviceMemory& claimed = plan_.memory[d];
    const std::string& name = plan_.cluster.devices[d].name;
    if (memory.weights != claimed.weights || !agree(memory.activations, claimed.activations) ||
        !agree(memory.predicted, claimed.predicted) || memory.limited != claimed.limited ||
        memory.limit != claimed.limit) {
      add(is_replica(d) ? "replicas" : "memory",
          "{} needs {} bytes, the plan says {} (or another limit)", name, memory.predicted.count,
          claimed.predicted.count);
    }
    if (memory.limited && std::max(memory.predicted, claimed.predicted) > memory.limit) {
      add(is_replica(d) ? "replicas" : "limit", "{} needs {} bytes and has {}", name,
          std::max(memory.predicted, claimed.predicted).count, memory.limit.count);
    }
  }

  void check_simulation() {
    try {
      const StepFigures figures = simulate_step(plan_, plan_.n_microbatches);
      const double step = figures.end.count;
      if (!close(step, plan_.step_time.count)) {
        add("step", "a step takes {} ns, the plan says {}", step, plan_.step_time.count);
      }
      if (!close(figures.bubble, plan_.bubble)) {
        add("bubble", "the bubble is {}, the plan says {}", figures.bubble, plan_.bubble);
      }
      if (const double latency = simulate_step(plan_, 1).end.count;
          !close(latency, plan_.latency.count)) {
        add("latency", "one micro-batch takes {} ns, the plan says {}", latency,
            plan_.latency.count);
      }
      const double samples = plan_.batch > 0 ? static_cast<double>(plan_.batch) : 1;
      if (!close(samples_per_second(samples, figures.end), plan_.throughput)) {
        add("throughput", "{} samples in {} ns, the plan says {} a second", samples, step,
            plan_.throughput);
      }
    } catch (const Error& error) {
      add("step", "{}", error.what());
    }
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
  std::vector<std::size_t> stage_of_;  // by node
  static constexpr std::size_t kNoCopy = static_cast<std::size_t>(-1);
  std::vector<std::size_t> copy_on_;  // by device: 0 the plan's own stages, r + 1 replica r
  std::vector<Violation> violations_;
};

}  // namespace

std::vector<Violation> verify_plan(const Graph& graph, const Profile* profile, const Plan& plan) {
  return PlanVerifier(graph, profile, plan).run();
}

void refuse_violations(const std::vector<Violation>& violations) {
  if (violations.empty()) return;
  constexpr std::size_t kMostShown = 5;
  std::string shown;
  for (std::size_t i = 0; i < std::min(violations.size(), kMostShown); ++i) {
    shown += fmt::format("{}{}: {}", i == 0 ? "" : "; ", violations[i].rule, violations[i].message);
  }
  if (violations.size() > kMostShown) {
    shown += fmt::format("; and {} more", violations.size() - kMostShown);
  }
  throw Error(
      ErrorKind::invalid_plan,
      fmt::format("[verify.plan] the plan breaks {} ({}); expected none; plan "
                  "again",
                  violations.size() == 1 ? "a rule" : fmt::format("{} rules", violations.size()),
                  shown));
}

void check_plan(const Graph& graph, const Profile* profile, const Plan& plan) {
  refuse_violations(verify_plan(graph, profile, plan));
}

}  // namespace kerf
