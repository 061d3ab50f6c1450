// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/codegen/both_modes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <tuple>

#include "kerf/base/error.h"
#include "kerf/emit/codegen/spelling.h"
#include "kerf/emit/codegen/stage_names.h"
#include "kerf/graph/operator.h"

namespace kerf::codegen {
namespace {

[[noreturn]] void refuse(const std::string& found, std::string_view expected) {
  throw Error(
      ErrorKind::unsupported_operator,
      fmt::format("[emit.both_modes] {}; expected {}; give one graph, for its own mode alone",
                  found, expected));
}

// A copy, or the tensor itself, as its strides ask for: the same numbers.
bool keeps_numbers(const Node& node) { return packet_of(node.op) == "aten.contiguous"; }

class ModeComparer {
 public:
  ModeComparer(const Graph& training, const Graph& eval)
      : training_(training), eval_(eval), in_eval_of_(training.num_values()) {
    for (std::size_t v = 0; v < eval.num_values(); ++v) same_in_eval_.emplace_back(v);
    out_.only_training.resize(training.num_nodes());
  }

  ModeDifferences compare() {
    match_outside();
    std::size_t t = 0;
    std::size_t e = 0;
    while (t < training_.num_nodes() || e < eval_.num_nodes()) {
      next_in_eval_ = e;
      if (t < training_.num_nodes() && e < eval_.num_nodes() && match(NodeId(t), NodeId(e))) {
        ++t, ++e;
        skipped_ = {kNone, kNone};
      } else if (t < training_.num_nodes() && pass_by(NodeId(t))) {
        ++t;
      } else if (e < eval_.num_nodes() && pass_by_in_eval(NodeId(e))) {
        ++e;
      } else {
        differ(t, e);
      }
    }
    bound_.clear();
    match_results();
    out_.conditions = eval_.conditions();
    return std::move(out_);
  }

 private:
  // Names where the two began to differ.
  [[noreturn]] void differ(std::size_t t, std::size_t e) const {
    if (skipped_.first != kNone) std::tie(t, e) = skipped_;
    const auto name = [](const Graph& graph, std::size_t n) {
      if (n >= graph.num_nodes()) return std::string("its end");
      return fmt::format("{} ({})", graph.describe(NodeId(n)), graph.node(NodeId(n)).op);
    };
    refuse(fmt::format("the train trace has {} where the eval trace has {}", name(training_, t),
                       name(eval_, e)),
           "the same operators in both modes, but for dropout and running statistics");
  }

  void match_outside() {
    const bool modes = training_.data().training && !eval_.data().training;
    if (!modes)
      refuse("the graphs are not of both modes", "one of train mode and one of eval mode");
    const auto paths = [](const Graph& graph) {
      std::vector<std::string> out;
      for (const GraphInput& input : graph.inputs()) out.push_back(input.path);
      return out;
    };
    if (paths(training_) != paths(eval_) || training_.data().in_spec != eval_.data().in_spec) {
      refuse("the two traces are of different calls", "one call, traced in both modes");
    }
    for (std::size_t i = 0; i < training_.inputs().size(); ++i) {
      const ValueId mine = training_.inputs()[i].value;
      const ValueId other = eval_.inputs()[i].value;
      if (training_.value(mine).shape != eval_.value(other).shape) {
        refuse("the two traces are of inputs with different shapes", "one call in both modes");
      }
      in_eval_of_[mine.index()] = other;
    }
    std::map<std::string, ValueId> by_name;
    for (const Weight& weight : eval_.weights()) by_name.emplace(weight.names[0], weight.value);
    for (const Weight& weight : training_.weights()) {
      const auto found = by_name.find(weight.names[0]);
      const bool constant = weight.kind == WeightKind::constant;  // numbered anew by each trace
      if (found != by_name.end() && !constant) in_eval_of_[weight.value.index()] = found->second;
    }
  }

  const Weight* find_constant(const Graph& graph, ValueId id) const {
    const Value& value = graph.value(id);
    if (value.origin != Origin::weight) return nullptr;
    const Weight& weight = graph.weights()[value.position];
    return weight.kind == WeightKind::constant ? &weight : nullptr;
  }

  bool same_value(ValueId mine, ValueId other) const {
    const ValueId mapped = in_eval_of_[mine.index()];
    if (mapped.valid()) return same_in_eval_[mapped.index()] == same_in_eval_[other.index()];
    const Weight* a = find_constant(training_, mine);
    const Weight* b = find_constant(eval_, other);
    const bool by_name = a != nullptr && b != nullptr && a->data.empty();  // the model has it
    if (by_name && a->names != b->names) return false;
    return a != nullptr && b != nullptr && a->data == b->data &&
           training_.value(mine).dtype == eval_.value(other).dtype &&
           training_.value(mine).shape == eval_.value(other).shape;
  }

  static bool holds_values(const Argument& argument) {
    bool found = false;
    for_each_value(argument, [&](ValueId) { found = true; });
    return found;
  }

  // Equal, with values by what they are; constants may differ where `constants` says so.
  bool same(const Argument& mine, const Argument& other) {
    const auto* a = mine.find<ValueId>();
    const auto* b = other.find<ValueId>();
    if (a != nullptr && b != nullptr) return same_value(*a, *b) || bind(*a, *b);
    const auto* list = mine.find<Argument::List>();
    const auto* others = other.find<Argument::List>();
    if (list == nullptr || others == nullptr || !holds_values(mine)) return mine == other;
    if (list->size() != others->size()) return false;
    for (std::size_t i = 0; i < list->size(); ++i) {
      if (!same((*list)[i], (*others)[i])) return false;
    }
    return true;
  }

  // The argument of the other node that stands in the same place.
  static const Argument* counterpart(const Node& other, std::size_t i, const std::string& name) {
    if (name.empty()) {
      const bool there = i < other.args.size() && other.args[i].name.empty();
      return there ? &other.args[i].value : nullptr;
    }
    for (const NamedArgument& argument : other.args) {
      if (argument.name == name) return &argument.value;
    }
    return nullptr;
  }

  // What an attention's mask and dropout, or a loss's reduction, are where nobody says them.
  static std::optional<Argument> preset(const Node& node, std::size_t i) {
    const std::optional<std::string> text = preset_of(node.op, i);
    if (!text) return std::nullopt;
    if (*text == "None") return Argument{};
    if (*text == "True" || *text == "False") return Argument{*text == "True"};
    if (text->starts_with('"')) {
      const bool is_text = node.args[i].value.find<std::string>() != nullptr;
      if (is_text) return Argument{text->substr(1, text->size() - 2)};
      if (*text == "\"mean\"") return Argument{Expr(1)};  // as schemas number reductions
      return std::nullopt;
    }
    const char* end = text->data() + text->size();
    std::int64_t whole = 0;
    if (std::from_chars(text->data(), end, whole).ptr == end) return Argument{Expr(whole)};
    double number = 0;
    if (std::from_chars(text->data(), end, number).ptr == end) return Argument{number};
    return std::nullopt;
  }

  bool same_result(const Node& mine, const Node& other, std::size_t i) const {
    const ValueId a = mine.outputs[i];
    const ValueId b = other.outputs[i];
    if (a.valid() != b.valid()) return false;
    return !a.valid() || (training_.value(a).shape == eval_.value(b).shape &&
                          training_.value(a).dtype == eval_.value(b).dtype);
  }

  bool alike(const Node& mine, const Node& other) const {
    return mine.op == other.op && mine.outputs.size() == other.outputs.size() &&
           mine.args.size() >= other.args.size() && mine.grad_enabled == other.grad_enabled &&
           mine.autocast == other.autocast &&
           training_.scope(mine.scope).path == eval_.scope(other.scope).path;
  }

  // Of a module that runs as it is: statistics are written in train mode alone, and writes that do
  // not happen do no harm.
  bool writes_all_of(const Argument& mine, const Argument& other) const {
    const auto* written = mine.find<Argument::List>();
    const auto* others = other.find<Argument::List>();
    if (written == nullptr || others == nullptr) return false;
    return std::all_of(others->begin(), others->end(), [&](const Argument& there) {
      const auto* id = there.find<ValueId>();
      return id != nullptr &&
             std::any_of(written->begin(), written->end(), [&](const Argument& here) {
               const auto* same = here.find<ValueId>();
               return same != nullptr && same_value(*same, *id);
             });
    });
  }

  bool match(NodeId t, NodeId e) {
    const Node& mine = training_.node(t);
    const Node& other = eval_.node(e);
    if (!alike(mine, other) || writes_a_detour(mine)) return false;
    std::map<std::pair<NodeId, std::size_t>, Argument> differences;
    bound_.clear();
    std::size_t met = 0;
    for (std::size_t i = 0; i < mine.args.size(); ++i) {
      const Argument* there = counterpart(other, i, mine.args[i].name);
      met += there != nullptr ? 1 : 0;
      const std::optional<Argument> value =
          there != nullptr ? std::optional<Argument>(*there) : preset(mine, i);
      if (!value) return false;
      if (same(mine.args[i].value, *value)) continue;
      if (mine.op == "opaque") {
        if (mine.args[i].name == "written" && writes_all_of(mine.args[i].value, *value)) continue;
        return false;  // the call is written into the file once
      }
      if (holds_values(mine.args[i].value) || holds_values(*value)) return false;
      differences.emplace(std::make_pair(t, i), *value);
    }
    if (met != other.args.size()) return false;
    for (std::size_t i = 0; i < mine.outputs.size(); ++i) {
      if (!same_result(mine, other, i)) return false;
    }
    for (std::size_t i = 0; i < mine.outputs.size(); ++i) {
      if (mine.outputs[i].valid()) in_eval_of_[mine.outputs[i].index()] = other.outputs[i];
    }
    out_.in_eval.merge(differences);
    keep_bound();
    return true;
  }

  void keep_bound() {
    for (const auto& [detour, place] : bound_) {
      out_.instead.emplace(detour, place);
      in_eval_of_[detour.index()] = in_eval_of_[place.index()];
    }
  }

  // What the train trace has alone.
  bool pass_by(NodeId id) {
    const Node& node = training_.node(id);
    if (is_dropout(node)) return pass_by_dropout(id, node) || take_detour(id, node);
    if (skipped_.first == kNone) skipped_ = {id.index(), next_in_eval_};
    if (keeps_numbers(node) && pass_by_first(id, node)) return true;
    return pass_by_write(id, node) || take_detour(id, node);
  }

  // Its result is its first argument.
  bool pass_by_first(NodeId id, const Node& node) {
    const auto* first = node.args.empty() ? nullptr : node.args[0].value.find<ValueId>();
    if (first == nullptr || node.outputs.size() != 1 || !node.outputs[0].valid()) return false;
    // A write to one of the two would be seen in the other in eval mode only.
    const StorageId storage = training_.value(node.outputs[0]).storage;
    if (training_.is_written(storage) && !is_last_use(*first, id)) return false;
    in_eval_of_[node.outputs[0].index()] = in_eval_of_[first->index()];
    return in_eval_of_[first->index()].valid();
  }

  // Does nobody look at the memory of a value once `node` has had it?
  bool is_last_use(ValueId id, NodeId node) const {
    const StorageId storage = training_.value(id).storage;
    for (std::size_t v = 0; v < training_.num_values(); ++v) {
      const Value& value = training_.value(ValueId(v));
      if (value.storage != storage) continue;
      const auto users = training_.consumers(ValueId(v));
      const bool later = !users.empty() && users.back() > node;
      if (later || value.origin != Origin::node || is_result(ValueId(v))) return false;
    }
    return true;
  }
  bool is_result(ValueId id) const {
    return std::any_of(training_.outputs().begin(), training_.outputs().end(),
                       [&](const GraphOutput& output) {
                         const auto* leaf = output.leaf.find<ValueId>();
                         return leaf != nullptr && *leaf == id;
                       });
  }

  bool pass_by_dropout(NodeId id, const Node& node) {
    constexpr std::size_t kTrain = 2;  // dropout(input, p, train)
    const bool spelt = node.args.size() == 3 && node.args[kTrain].name.empty();
    if (!spelt) return false;
    if (const ValueId changed = changed_in_place(training_, node); changed.valid()) {
      if (!in_eval_of_[changed.index()].valid()) return false;
      in_eval_of_[node.outputs[0].index()] = in_eval_of_[changed.index()];
    } else if (!pass_by_first(id, node)) {
      return false;
    }
    out_.in_eval.emplace(std::make_pair(id, kTrain), Argument{false});
    return true;
  }

  // A buffer is changed in place, as a batch norm counts its batches and averages move: whoever
  // looks at it afterwards looks at the buffer, in eval mode as it was.
  bool pass_by_write(NodeId id, const Node& node) {
    const ValueId target = changed_in_place(training_, node);
    if (!target.valid() || node.written.size() != 1 || !is_of_weight(target)) return false;
    out_.only_training[id.index()] = true;
    in_eval_of_[node.outputs[0].index()] = in_eval_of_[target.index()];
    return true;
  }

  // Is it a parameter or a buffer, or what writing to one has given?
  bool is_of_weight(ValueId id) const {
    while (training_.value(id).origin == Origin::node) {
      const NodeId producer = training_.value(id).producer;
      id = changed_in_place(training_, training_.node(producer));
      if (!id.valid()) return false;
    }
    return training_.value(id).origin == Origin::weight;
  }

  // Something that evaluation does not do: where its results are used in both modes, `bind` finds
  // what evaluation has in their place.
  bool take_detour(NodeId id, const Node& node) {
    if (node.op == "opaque") return false;
    const auto is_foreign = [&](ValueId target) { return !is_new_in_detour(target, id); };
    if (std::any_of(node.written.begin(), node.written.end(), is_foreign)) return false;
    for (const ValueId output : node.outputs) {
      if (!output.valid() || !training_.is_written(training_.value(output).storage)) continue;
      if (is_foreign(output)) continue;  // a view: it is for those who write to be refused
      written_in_detours_.insert(training_.value(output).storage);
    }
    out_.only_training[id.index()] = true;
    return true;
  }

  // Is its memory that of a result of `node`, or of a detour before it?
  bool is_new_in_detour(ValueId id, NodeId node) const {
    const StorageId storage = training_.value(id).storage;
    for (std::size_t v = 0; v <= id.index(); ++v) {
      const Value& first = training_.value(ValueId(v));
      if (first.scalar || first.storage != storage) continue;
      return first.origin == Origin::node &&
             (first.producer == node || out_.only_training[first.producer.index()]);
    }
    return false;
  }

  // In eval mode there is other memory in its place.
  bool writes_a_detour(const Node& node) const {
    return std::any_of(node.written.begin(), node.written.end(), [&](ValueId id) {
      const Value& value = training_.value(id);
      const bool detour = value.origin == Origin::node &&
                          out_.only_training[value.producer.index()] &&
                          !in_eval_of_[id.index()].valid();
      return detour || written_in_detours_.contains(value.storage);
    });
  }

  // Evaluation uses `other` where training uses the result of a detour: from now on they are one.
  bool bind(ValueId mine, ValueId other) {
    const Value& value = training_.value(mine);
    const bool detour = value.origin == Origin::node && out_.only_training[value.producer.index()];
    if (!detour || in_eval_of_[mine.index()].valid()) return false;
    for (std::size_t v = mine.index(); v-- > 0;) {
      const Value& place = training_.value(ValueId(v));
      const bool made = place.origin != Origin::node || !out_.only_training[place.producer.index()];
      if (!made || !in_eval_of_[v].valid() || !same_value(ValueId(v), other)) continue;
      if (place.shape != value.shape || place.dtype != value.dtype) return false;
      bound_.emplace_back(mine, ValueId(v));
      return true;
    }
    return false;
  }

  bool pass_by_in_eval(NodeId id) {
    const Node& node = eval_.node(id);
    if (!keeps_numbers(node) || node.outputs.size() != 1) return false;
    const auto* first = node.args[0].value.find<ValueId>();
    if (first == nullptr || eval_.is_written(eval_.value(node.outputs[0]).storage)) return false;
    same_in_eval_[node.outputs[0].index()] = same_in_eval_[first->index()];
    return true;
  }

  void match_results() {
    bool alike = training_.outputs().size() == eval_.outputs().size() &&
                 training_.data().out_spec == eval_.data().out_spec;
    for (std::size_t i = 0; alike && i < training_.outputs().size(); ++i) {
      alike = same(training_.outputs()[i].leaf, eval_.outputs()[i].leaf);
    }
    keep_bound();
    if (!alike) refuse("the model gives other results in train mode than in eval mode", "the same");
  }

  const Graph& training_;
  const Graph& eval_;
  std::vector<ValueId> in_eval_of_;    // by value of the train trace
  std::vector<ValueId> same_in_eval_;  // by value of the eval trace: one that has its numbers
  ModeDifferences out_;
  std::set<StorageId> written_in_detours_;
  std::vector<std::pair<ValueId, ValueId>> bound_;  // by the match that is being tried
  // Nodes of the train trace that were passed by since the last match: the first, and what the eval
  // trace had there.
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::pair<std::size_t, std::size_t> skipped_{kNone, kNone};
  std::size_t next_in_eval_ = 0;
};

}  // namespace

bool is_dropout(const Node& node) {
  const std::string_view packet = packet_of(node.op);
  return packet == "aten.dropout" || packet == "aten.alpha_dropout" ||
         packet == "aten.feature_dropout" || packet == "aten.feature_alpha_dropout" ||
         packet == "aten.dropout_" || packet == "aten.alpha_dropout_" ||
         packet == "aten.feature_dropout_" || packet == "aten.feature_alpha_dropout_";
}

ModeDifferences compare_modes(const Graph& training, const Graph& eval) {
  return ModeComparer(training, eval).compare();
}

}  // namespace kerf::codegen
