// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/codegen/borders.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "kerf/base/error.h"
#include "kerf/emit/codegen/opaque_call.h"
#include "kerf/graph/arguments.h"

namespace kerf::codegen {
namespace {

[[noreturn]] void refuse(const std::string& found, std::string_view expected,
                         std::string_view remedy) {
  throw Error(ErrorKind::unsupported_operator,
              fmt::format("[emit.stages] {}; expected {}; {}", found, expected, remedy));
}

// Is the weight inside the module at `path`?
bool lies_in(std::string_view name, std::string_view path) {
  return name.size() > path.size() && name.starts_with(path) && name[path.size()] == '.';
}

std::optional<BatchSource> batch_source(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  for (std::size_t d = 0; !value.scalar && d < value.shape.size(); ++d) {
    const Expr& size = value.shape[d];
    if (size == Expr::batch()) return BatchSource{id, d, 0, 1};
  }
  for (std::size_t d = 0; !value.scalar && d < value.shape.size(); ++d) {
    const Expr& size = value.shape[d];
    if (size.is_constant()) continue;
    const std::int64_t factor = size.eval(2) - size.eval(1);
    const std::int64_t offset = size.eval(1) - factor;
    if (factor > 0 && size == Expr::linear(offset, factor)) {
      return BatchSource{id, d, offset, factor};
    }
  }
  return std::nullopt;
}

class BorderFinder {
 public:
  BorderFinder(const Graph& graph, const Plan& plan, bool relay)
      : graph_(graph), plan_(plan), relay_(relay), stage_of_(plan.stage_of_nodes()) {
    check_order();
    out_.travels.resize(graph.num_values());
    for (std::size_t s = 0; s < plan.num_stages(); ++s) {
      Border& border = out_.stages.emplace_back();
      border.stage = StageId(s);
      border.nodes = plan.stages[s].nodes;
    }
  }

  Borders find() {
    find_blocks();
    find_owners();
    find_travels();
    for (Border& border : out_.stages) {
      find_copies(border);
      find_batch(border);
    }
    return std::move(out_);
  }

 private:
  void check_order() const {
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      const auto late = [&](NodeId before) {
        return stage_of_[before.index()] > stage_of_[n] || !stage_of_[n].valid();
      };
      const auto predecessors = graph_.predecessors(NodeId(n));
      if (stage_of_[n].valid() && std::none_of(predecessors.begin(), predecessors.end(), late)) {
        continue;
      }
      throw Error(ErrorKind::invalid_plan,
                  fmt::format("[emit.stages] {} is in no stage, or in one before a stage that it "
                              "needs; expected stages in an order in which they can run; plan the "
                              "graph again",
                              graph_.describe(NodeId(n))));
    }
  }

  void find_blocks() {
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      if (graph_.node(NodeId(n)).op != "opaque") continue;
      const std::string path = block_path(graph_, NodeId(n));
      const StageId stage = stage_of_[n];
      const auto [place, first] = blocks_.emplace(path, stage);
      if (!first && place->second != stage) {
        refuse(fmt::format("module '{}' runs as it is in stages {} and {}", path,
                           place->second.index(), stage.index()),
               "it in one stage", "plan with its calls in one stage");
      }
      if (first) out_.stages[stage.index()].blocks.push_back(path);
    }
  }

  // The stage of the block around a weight, if there is one.
  StageId block_stage(const Weight& weight) const {
    for (const auto& [path, stage] : blocks_) {
      for (const std::string& name : weight.names) {
        if (lies_in(name, path)) return stage;
      }
    }
    return {};
  }

  std::set<int> users(ValueId id) const {
    std::set<int> out;
    for (const NodeId node : graph_.consumers(id)) {
      out.insert(static_cast<int>(stage_of_[node.index()].index()));
    }
    return out;
  }

  void find_owners() {
    for (std::size_t w = 0; w < graph_.weights().size(); ++w) {
      const Weight& weight = graph_.weights()[w];
      const std::set<int> stages = users(weight.value);
      if (weight.kind == WeightKind::constant) {
        for (const int s : stages) out_.stages[static_cast<std::size_t>(s)].constants.push_back(w);
        continue;
      }
      int owner = stages.empty() ? 0 : *stages.begin();
      if (const StageId block = block_stage(weight); block.valid()) {
        const int home = static_cast<int>(block.index());
        if (owner < home && !stages.empty()) {
          refuse(fmt::format("weight '{}' is used in stage {}, before a module that runs as it is "
                             "and has it, in stage {}",
                             weight.names[0], owner, home),
                 "the module in the first stage that uses the weight",
                 "plan with both in one stage");
        }
        owner = home;
      }
      out_.stages[static_cast<std::size_t>(owner)].owns.push_back(w);
      out_.travels[weight.value.index()].from = owner;
    }
  }

  void find_travels() {
    for (std::size_t v = 0; v < graph_.num_values(); ++v) {
      const Value& value = graph_.value(ValueId(v));
      Travel& travel = out_.travels[v];
      if (value.origin == Origin::node) {
        travel.from = static_cast<int>(stage_of_[value.producer.index()].index());
      }
      if (is_constant(ValueId(v))) continue;
      for (const int s : users(ValueId(v))) {
        if (s == travel.from) continue;
        travel.to.push_back(s);
        out_.stages[static_cast<std::size_t>(s)].takes.push_back(ValueId(v));
      }
    }
    for (const GraphOutput& output : graph_.outputs()) {
      for_each_value(output.leaf, [&](ValueId id) { give_to_caller(id); });
    }
    for (std::size_t v = 0; v < graph_.num_values(); ++v) {
      Travel& travel = out_.travels[v];
      find_givers(ValueId(v), travel);
      if (travel.from < 0 || travel.to.empty()) continue;
      std::set<int> givers(travel.via.begin(), travel.via.end());
      givers.insert(travel.from);  // it may be its maker alone who hands it on
      for (const int stage : givers) {
        out_.stages[static_cast<std::size_t>(stage)].gives.push_back(ValueId(v));
      }
    }
  }

  void find_givers(ValueId id, Travel& travel) const {
    int giver = travel.from;
    for (const int user : travel.to) {
      travel.via.push_back(user < 0 ? travel.from : giver);
      if (relay_ && user >= 0 && travel.from >= 0 && !writes(user, id)) giver = user;
    }
  }

  // What it hands on is then another.
  bool writes(int stage, ValueId id) const {
    const StorageId storage = graph_.value(id).storage;
    const std::vector<NodeId>& nodes = out_.stages[static_cast<std::size_t>(stage)].nodes;
    return std::any_of(nodes.begin(), nodes.end(), [&](NodeId node) {
      const auto written = graph_.writes(node);
      return std::find(written.begin(), written.end(), storage) != written.end();
    });
  }

  void give_to_caller(ValueId id) {
    if (is_constant(id)) {
      refuse("the model returns the constant '" + graph_.value(id).name + "'",
             "results that it computes", "return a copy from the model (.clone())");
    }
    std::vector<int>& to = out_.travels[id.index()].to;
    if (out_.travels[id.index()].from >= 0 && (to.empty() || to[0] != -1)) {
      to.insert(to.begin(), -1);
    }
  }

  bool is_constant(ValueId id) const {
    const Value& value = graph_.value(id);
    return value.origin == Origin::weight &&
           graph_.weights()[value.position].kind == WeightKind::constant;
  }

  // As the runtime does: a stage that writes memory that it was given writes a copy of its own.
  void find_copies(Border& border) const {
    std::set<StorageId> written;
    for (const NodeId node : border.nodes) {
      for (const StorageId storage : graph_.writes(node)) written.insert(storage);
    }
    std::map<StorageId, std::vector<ValueId>> groups;
    for (const ValueId id : border.takes) {
      const Value& value = graph_.value(id);
      const bool made = value.origin == Origin::node;
      if (made && value.storage.valid() && written.contains(value.storage)) {
        groups[value.storage].push_back(id);
      }
    }
    for (auto& [storage, values] : groups) border.copied.push_back(std::move(values));
  }

  void find_batch(Border& border) const {
    for (const NodeId node : border.nodes) {
      for (const NamedArgument& argument : graph_.node(node).args) {
        border.uses_batch = border.uses_batch || depends_on_batch(argument.value);
      }
      border.uses_batch = border.uses_batch || block_uses_batch(graph_, node);
    }
    // Views of a copied memory are made again with sizes in B.
    for (const auto& group : border.copied) border.uses_batch |= group.size() > 1;
    if (graph_.is_static()) border.uses_batch = false;
    for (std::size_t i = 0; border.uses_batch && !border.batch && i < border.takes.size(); ++i) {
      border.batch = batch_source(graph_, border.takes[i]);
    }
  }

  const Graph& graph_;
  const Plan& plan_;
  bool relay_;
  std::vector<StageId> stage_of_;
  std::map<std::string, StageId> blocks_;  // by path
  Borders out_;
};

}  // namespace

std::vector<int> Travel::given_by(int stage) const {
  std::vector<int> out;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (via[i] == stage) out.push_back(to[i]);
  }
  return out;
}

int Travel::giver_of(int stage) const {
  const auto at = std::find(to.begin(), to.end(), stage);
  return at == to.end() ? from : via[static_cast<std::size_t>(at - to.begin())];
}

Borders find_borders(const Graph& graph, const Plan& plan, bool relay) {
  return BorderFinder(graph, plan, relay).find();
}

}  // namespace kerf::codegen
