// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/runtime/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "kerf/base/error.h"
#include "kerf/plan/metrics.h"
#include "kerf/plan/passes.h"
#include "kerf/plan/recompute.h"

namespace kerf {
namespace {

class ProgramCompiler {
 public:
  ProgramCompiler(const Graph& graph, const Plan& plan)
      : graph_(graph), plan_(plan), stage_of_(graph.num_nodes()), results_(result_values()) {
    index_stages();
    check_order();
  }

  Program compile(StageId stage) const {
    Program program;
    program.stage = stage;
    program.device = plan_.stage(stage).device;
    collect_values(program);
    collect_steps(program);
    collect_sends(program);
    collect_copies(program);
    return program;
  }

 private:
  [[noreturn]] static void refuse(const std::string& found, std::string_view expected) {
    throw Error(ErrorKind::invalid_plan, fmt::format("[runtime.compile] {}; expected {}; plan the "
                                                     "graph again",
                                                     found, expected));
  }

  void index_stages() {
    for (std::size_t s = 0; s < plan_.num_stages(); ++s) {
      const Stage& stage = plan_.stages[s];
      if (stage.device.index() >= plan_.cluster.num_devices()) {
        refuse(fmt::format("stage {} is on device {}", s, stage.device.index()),
               "a device of the plan's cluster");
      }
      if (!std::is_sorted(stage.nodes.begin(), stage.nodes.end())) {
        refuse(fmt::format("the nodes of stage {} are out of order", s), "the graph's order");
      }
      for (const NodeId node : stage.nodes) {
        if (node.index() >= graph_.num_nodes() || stage_of_[node.index()].valid()) {
          refuse(fmt::format("stage {} has node {}, which is not a node or is in another stage", s,
                             node.index()),
                 "each node of the graph once");
        }
        stage_of_[node.index()] = StageId(s);
      }
    }
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      if (stage_of_[n].valid()) continue;
      refuse(graph_.describe(NodeId(n)) + " is in no stage", "every node in one");
    }
  }

  // Stages wait for those before them. One that waits for a later one would wait for ever, and
  // glued nodes in two stages would not see each other's writes.
  void check_order() const {
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      for (const NodeId before : graph_.predecessors(NodeId(n))) {
        if (stage_of_[before.index()] <= stage_of_[n]) continue;
        refuse(fmt::format("{} in stage {} needs {} in stage {}", graph_.describe(NodeId(n)),
                           stage_of_[n].index(), graph_.describe(before),
                           stage_of_[before.index()].index()),
               "stages numbered in an order in which they can run");
      }
    }
    for (const std::vector<NodeId>& group : graph_.glued()) {
      for (const NodeId node : group) {
        if (stage_of_[node.index()] == stage_of_[group.front().index()]) continue;
        refuse(fmt::format("{} and {} see each other's writes and are in two stages",
                           graph_.describe(group.front()), graph_.describe(node)),
               "them in one stage");
      }
    }
  }

  std::vector<bool> result_values() const {
    std::vector<bool> out(graph_.num_values(), false);
    for (const GraphOutput& output : graph_.outputs()) {
      for_each_value(output.leaf, [&](ValueId id) { out[id.index()] = true; });
    }
    return out;
  }

  // Where a value comes from, seen from `stage`.
  void collect_values(Program& program) const {
    std::set<ValueId> received;
    std::set<ValueId> inputs;
    std::set<ValueId> weights;
    for (const NodeId node : plan_.stage(program.stage).nodes) {
      for (const ValueId id : graph_.inputs_of(node)) {
        const Value& value = graph_.value(id);
        if (value.origin == Origin::input) inputs.insert(id);
        if (value.origin == Origin::weight) weights.insert(id);
        if (value.origin == Origin::node && stage_of_[value.producer.index()] != program.stage) {
          received.insert(id);
        }
      }
    }
    program.received.assign(received.begin(), received.end());
    program.inputs.assign(inputs.begin(), inputs.end());
    program.weights.assign(weights.begin(), weights.end());
    for (const ValueId id : program.received) {
      program.senders.push_back(stage_of_[graph_.value(id).producer.index()]);
    }
  }

  bool leaves(ValueId id, StageId stage) const {
    if (results_[id.index()]) return true;
    const auto users = graph_.consumers(id);
    return std::any_of(users.begin(), users.end(),
                       [&](NodeId user) { return stage_of_[user.index()] != stage; });
  }

  void collect_steps(Program& program) const {
    const auto& nodes = plan_.stage(program.stage).nodes;
    std::map<ValueId, std::size_t> last_use;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      program.steps.push_back({nodes[i], {}, 0});
      for (const ValueId id : graph_.inputs_of(nodes[i])) last_use[id] = i;
      for (const ValueId id : graph_.node(nodes[i]).outputs) {
        if (id.valid()) last_use[id] = i;
      }
    }
    for (const auto& [id, step] : last_use) {
      const Value& value = graph_.value(id);
      const bool own =
          value.origin == Origin::node && stage_of_[value.producer.index()] == program.stage;
      // Weights stay; what leaves stays until it is sent; the rest dies here.
      if (value.origin == Origin::weight || (own && leaves(id, program.stage))) continue;
      program.steps[step].dead.push_back(id);
    }
  }

  void collect_sends(Program& program) const {
    for (const NodeId node : plan_.stage(program.stage).nodes) {
      for (const ValueId id : graph_.node(node).outputs) {
        if (!id.valid() || !leaves(id, program.stage)) continue;
        std::set<StageId> to;
        for (const NodeId user : graph_.consumers(id)) to.insert(stage_of_[user.index()]);
        to.erase(program.stage);
        program.sends.push_back({id, {to.begin(), to.end()}, results_[id.index()]});
      }
    }
    std::sort(program.sends.begin(), program.sends.end(),
              [](const Send& a, const Send& b) { return a.value < b.value; });
  }

  void collect_copies(Program& program) const {
    std::set<StorageId> written;
    for (const NodeId node : plan_.stage(program.stage).nodes) {
      for (const StorageId storage : graph_.writes(node)) written.insert(storage);
    }
    std::map<StorageId, std::vector<ValueId>> groups;
    for (const ValueId id : program.received) {
      const StorageId storage = graph_.value(id).storage;
      if (storage.valid() && written.contains(storage)) groups[storage].push_back(id);
    }
    for (auto& [storage, values] : groups) program.copied.push_back(std::move(values));
  }

  const Graph& graph_;
  const Plan& plan_;
  std::vector<StageId> stage_of_;
  std::vector<bool> results_;
};

void add_order(const Graph& graph, const Plan& plan, std::vector<Program>& programs) {
  const auto after = stage_dependencies(graph, plan.stage_of_nodes(), programs.size());
  for (Program& program : programs) {
    for (const StageId before : after[program.stage.index()]) {
      const std::vector<StageId>& senders = program.senders;
      if (std::find(senders.begin(), senders.end(), before) != senders.end()) continue;
      program.order_after.push_back(before);
      programs[before.index()].order_before.push_back(program.stage);
    }
  }
}

void add_gradient(std::vector<Program>& programs, ValueId value, StageId from, StageId to) {
  programs[from.index()].gradients_out.push_back({value, to});
  programs[to.index()].gradients_in.push_back({value, from});
}

// A backward waits for those of all stages that wait for its own, as planned, where no gradient
// comes along, too.
void add_waits(const Plan& plan, std::vector<Program>& programs) {
  for (const Program& program : programs) {
    for (const StageId before : plan.stage(program.stage).after) {
      const std::vector<Exchange>& out = program.gradients_out;
      const bool sends = std::any_of(out.begin(), out.end(),
                                     [&](const Exchange& given) { return given.stage == before; });
      const bool both = program.has_backward && programs[before.index()].has_backward;
      if (both && !sends) add_gradient(programs, ValueId{}, program.stage, before);
    }
  }
}

// The loss is made from all results of a micro-batch, in front of the last backward that depends on
// them.
void add_loss(const Graph& graph, std::vector<Program>& programs) {
  Program* last = nullptr;
  for (Program& program : programs) {
    const auto is_result = [](const Send& send) { return send.to_caller; };
    if (std::any_of(program.sends.begin(), program.sends.end(), is_result)) last = &program;
  }
  if (last == nullptr) return;
  last->makes_loss = true;
  last->has_backward = true;  // if only to make the loss
  for (const Program& program : programs) {
    if (&program == last) continue;
    for (const Send& send : program.sends) {
      if (!send.to_caller) continue;
      last->results_in.push_back({send.value, program.stage});
      // A stage that uses the value sends its gradient anyway, the loss's in it.
      const bool sent =
          std::any_of(last->gradients_out.begin(), last->gradients_out.end(),
                      [&](const Exchange& given) { return given.value == send.value; });
      if (!sent && program.has_backward && graph.value(send.value).requires_grad) {
        add_gradient(programs, send.value, last->stage, program.stage);
      }
    }
  }
}

void add_backwards(const Graph& graph, const Plan& plan, std::vector<Program>& programs) {
  const std::vector<std::uint32_t> blocks = recompute_blocks(graph, plan.recomputed);
  for (Program& program : programs) {
    program.has_backward = plan.stage(program.stage).has_backward;
    for (Step& step : program.steps) step.block = blocks[step.node.index()];
  }
  const std::vector<std::vector<GradientRoute>> routes = gradient_routes(plan);
  for (std::size_t c = 0; c < routes.size(); ++c) {
    for (const auto [from, to] : routes[c]) {
      add_gradient(programs, plan.cuts[c].value, from, to);
    }
  }
  add_waits(plan, programs);
  add_loss(graph, programs);
  for (Program& program : programs) {
    std::sort(program.gradients_in.begin(), program.gradients_in.end());
    std::sort(program.gradients_out.begin(), program.gradients_out.end());
    std::sort(program.results_in.begin(), program.results_in.end());
  }
}

}  // namespace

std::vector<Program> compile_programs(const Graph& graph, const Plan& plan) {
  check_plan_matches(plan, graph);
  const ProgramCompiler compiler(graph, plan);
  std::vector<Program> programs;
  for (std::size_t s = 0; s < plan.num_stages(); ++s)
    programs.push_back(compiler.compile(StageId(s)));
  add_order(graph, plan, programs);
  if (plan.training) add_backwards(graph, plan, programs);
  return programs;
}

std::size_t num_received(const Program& program, Phase phase) {
  switch (phase) {
    case Phase::forward: return program.received.size() + program.order_after.size();
    case Phase::backward: return program.gradients_in.size() + program.results_in.size();
    case Phase::weight_gradient: return 0;
  }
  return 0;
}

}  // namespace kerf
