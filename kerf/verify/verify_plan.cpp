// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/verify/verify_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "kerf/graph/total_bytes.h"
#include "kerf/profile/backward_times.h"
#include "kerf/verify/check_figures.h"
#include "kerf/verify/flow.h"
#include "kerf/verify/task_order.h"
#include "kerf/verify/traffic.h"

namespace kerf {
namespace {

std::string numbers(const std::vector<StageId>& stages) {
  std::string out;
  for (const StageId stage : stages) {
    out += fmt::format("{}{}", out.empty() ? "" : ", ", stage.index());
  }
  return out;
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
    if (!violations_.empty()) return violations_.take();
    check_order();
    check_glue();
    if (!violations_.empty()) return violations_.take();
    // From here on stages are numbered topologically.
    const derive::Flow flow = derive::read_flow(graph_, stage_of_, plan_.num_stages());
    check_dependencies(flow);
    try {
      check_cuts(flow);
      derive::check_figures(graph_, profile_, plan_, flow, violations_);
    } catch (const Error& error) {  // sizes at this micro-batch that no number holds
      add("sizes", "{}", error.what());
    }
    return violations_.take();
  }

 private:
  template <class... Args>
  void add(std::string rule, fmt::format_string<Args...> text, Args&&... args) {
    violations_.add(std::move(rule), text, std::forward<Args>(args)...);
  }

  // The stage of a node, by its own name for messages.
  std::size_t stage_of(NodeId node) const { return stage_of_[node.index()].index(); }
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
    if (!(find_schedule(plan_.schedule) != nullptr)) {
      add("schedule", "unknown schedule '{}'", plan_.schedule);
    }
  }

  void check_replicas_of_plan() {
    const std::vector<DeviceId> own = plan_.stage_devices();
    std::vector<bool> taken(plan_.cluster.num_devices());
    for (const DeviceId device : own) taken[device.index()] = true;
    for (std::size_t r = 0; r < plan_.replicas.size(); ++r) {
      const std::vector<DeviceId>& replica = plan_.replicas[r];
      if (replica.size() != own.size()) {
        add("replicas", "replica {} has devices for {} stages, the plan has {}", r, replica.size(),
            own.size());
      } else if (!share_alike(own, replica)) {
        add("replicas", "stages of replica {} do not share devices as the plan's stages do", r);
      }
      for (const DeviceId device : std::set<DeviceId>(replica.begin(), replica.end())) {
        if (device.index() >= taken.size()) {
          add("replicas", "replica {} is on device {}, the cluster has {}", r, device.index(),
              taken.size());
        } else if (taken[device.index()]) {
          add("replicas", "replica {} is on {}, which has another replica's stages", r,
              plan_.cluster.device(device).name);
        } else {
          taken[device.index()] = true;
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
    stage_of_.assign(graph_.num_nodes(), StageId{});
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      if (plan_.stages[s].nodes.empty()) add("coverage", "stage {} is empty", s);
      for (const NodeId node : plan_.stages[s].nodes) {
        if (node.index() >= graph_.num_nodes()) {
          add("coverage", "stage {} names node {}, the graph has {}", s, node.index(),
              graph_.num_nodes());
        } else if (stage_of_[node.index()].valid()) {
          add("coverage", "node '{}' is in stages {} and {}", name_of(node), stage_of(node), s);
        } else {
          stage_of_[node.index()] = StageId{s};
        }
      }
    }
    for (std::size_t n = 0; n < stage_of_.size(); ++n) {
      if (!stage_of_[n].valid()) {
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

  void check_dependencies(const derive::Flow& flow) {
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      if (flow.after[s] == plan_.stages[s].after) continue;
      add("after", "stage {} waits for stages [{}]; the plan lists [{}]", s, numbers(flow.after[s]),
          numbers(plan_.stages[s].after));
    }
  }

  // Made by a stage and used by another.
  bool crosses(const derive::Flow& flow, std::size_t value) const {
    return flow.maker[value].valid() && !flow.users[value].empty() &&
           !graph_.values()[value].scalar;
  }

  void check_cuts(const derive::Flow& flow) {
    std::vector<bool> listed(graph_.num_values());
    for (std::size_t c = 0; c < plan_.cuts.size(); ++c) {
      const Cut& cut = plan_.cuts[c];
      const std::size_t v = cut.value.index();
      if (v >= graph_.num_values() || !crosses(flow, v) || listed[v]) {
        add("cuts", "tensor '{}' does not cross a cut, or is listed twice", cut.tensor);
        continue;
      }
      listed[v] = true;
      check_cut(cut, flow);
      if (c > 0 && cut.value < plan_.cuts[c - 1].value) {
        add("cuts", "tensor '{}' comes after one that the graph makes later", cut.tensor);
      }
    }
    for (std::size_t v = 0; v < listed.size(); ++v) {
      if (!crosses(flow, v) || listed[v]) continue;
      add("cuts", "tensor '{}' crosses to stage {} and is not listed", graph_.values()[v].name,
          flow.users[v].front().index());
    }
  }

  void check_cut(const Cut& cut, const derive::Flow& flow) {
    const std::size_t v = cut.value.index();
    const Value& value = graph_.values()[v];
    const Bytes bytes = value.bytes(plan_.micro_batch);
    if (cut.tensor != value.name || cut.from != flow.maker[v] || cut.to != flow.users[v]) {
      add("cuts", "tensor '{}' is listed with another name, maker or users", value.name);
    }
    if (cut.bytes != bytes) {
      add("cuts", "tensor '{}' has {} bytes, the plan says {}", value.name, bytes.count,
          cut.bytes.count);
    }
  }

  const Graph& graph_;
  const Profile* profile_;
  const Plan& plan_;
  std::vector<StageId> stage_of_;  // by node
  Violations violations_;
};

}  // namespace

std::vector<Violation> verify_plan(const Graph& graph, const Profile* profile, const Plan& plan) {
  if (plan.training && profile != nullptr) check_backward_times(*profile, "verify.plan");
  return PlanVerifier(graph, profile, plan).run();
}

void check_plan(const Graph& graph, const Profile* profile, const Plan& plan) {
  refuse_violations(verify_plan(graph, profile, plan));
}

}  // namespace kerf
