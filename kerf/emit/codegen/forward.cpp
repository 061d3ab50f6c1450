// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/codegen/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "kerf/base/error.h"
#include "kerf/emit/codegen/call_text.h"
#include "kerf/emit/codegen/lifetimes.h"
#include "kerf/emit/codegen/opaque_call.h"
#include "kerf/emit/codegen/python_text.h"
#include "kerf/emit/codegen/spelling.h"
#include "kerf/emit/codegen/stage_names.h"
#include "kerf/emit/codegen/value_text.h"
#include "kerf/graph/operator.h"

namespace kerf::codegen {
namespace {

constexpr std::size_t kDropoutTrains = 2;  // dropout(input, p, train)
constexpr std::size_t kLongTargets = 60;   // columns of "a, b, c = ", before it becomes a list

class ForwardWriter {
 public:
  ForwardWriter(const ForwardContext& context, const Border& border, Lines& lines)
      : context_(context),
        graph_(context.graph),
        border_(border),
        lines_(lines),
        names_(context.graph, border, context.names),
        lives_(context.graph, border, names_, instead()) {
    check_detours();
  }

  std::set<std::string> write() {
    std::vector<Code> parameters{"self"};
    for (const ValueId id : border_.takes) parameters.emplace_back(context_.names.of(id));
    if (border_.uses_batch && !border_.batch) parameters.emplace_back("B");
    lines_.add(Code("def forward", Bracket::call, std::move(parameters), ":"));
    lines_.indent();
    for (const std::string& module : names_.modules()) lines_.add(module);
    write_batch();
    for (const auto& group : border_.copied) write_copies(group);
    std::size_t at = 0;
    while (at < border_.nodes.size()) at = write_run(at);
    close_contexts();
    write_return();
    lines_.dedent();
    return std::move(kinds_);
  }

 private:
  const std::map<ValueId, ValueId>& instead() const {
    static const std::map<ValueId, ValueId> kNone;
    return context_.modes == nullptr ? kNone : context_.modes->instead;
  }

  // What training makes alone stays in the stage, and so does what evaluation has in its place.
  void check_detours() const {
    if (context_.modes == nullptr) return;
    const auto is_detour = [&](ValueId id) {
      const Value& value = graph_.value(id);
      return value.origin == Origin::node && context_.modes->only_training[value.producer.index()];
    };
    for (const ValueId id : border_.takes) {
      if (is_detour(id) && !instead().contains(id)) refuse_detour(id);
    }
    for (const NodeId node : border_.nodes) {
      for (const ValueId id : graph_.node(node).outputs) {
        const auto place = instead().find(id);
        if (place != instead().end() && !names_.knows(place->second)) refuse_detour(id);
      }
    }
  }

  [[noreturn]] void refuse_detour(ValueId id) const {
    throw Error(
        ErrorKind::unsupported_operator,
        fmt::format("[emit.stages] stage {} ends inside of what the model does in train mode "
                    "alone, at '{}'; expected all of it in one stage; plan with it in one, "
                    "or give one graph",
                    border_.stage.index(), graph_.value(id).name));
  }

  const Node& node_at(std::size_t i) const { return graph_.node(border_.nodes[i]); }

  void write_batch() {
    if (!border_.batch) return;
    const BatchSource& source = *border_.batch;
    std::string text = fmt::format("{}.shape[{}]", names_.text(source.value), source.dim);
    if (source.offset != 0) {
      text =
          fmt::format("({} {} {})", text, source.offset > 0 ? "-" : "+", std::abs(source.offset));
    }
    if (source.factor != 1) text += fmt::format(" // {}", source.factor);
    if (source.factor == 1 && source.offset != 0) text = text.substr(1, text.size() - 2);
    lines_.add("B = " + text);
  }

  // Memory that comes from another stage and is written here.
  void write_copies(const std::vector<ValueId>& group) {
    const auto whole = std::find_if(group.begin(), group.end(), [&](ValueId id) {
      const Value& value = graph_.value(id);
      const bool first = value.offset == Expr(0) && value.strides == contiguous(value.shape);
      return first && elements(value) * Expr(element_size(value.dtype)) ==
                          graph_.storage(value.storage).bytes;
    });
    lines_.raw("# Written below: others may hold what was given.");
    if (group.size() == 1) {
      const std::string& name = names_.text(group[0]);
      lines_.add(name + " = " + name + ".clone()");
      return;
    }
    if (whole == group.end()) refuse_views(group);
    const std::string& base = names_.text(*whole);
    lines_.add(base + " = " + base + ".clone(memory_format=torch.contiguous_format)");
    for (const ValueId id : group) {
      if (id != *whole) write_view(id, *whole, base);
    }
  }

  void write_view(ValueId id, ValueId whole, const std::string& base) {
    const Value& value = graph_.value(id);
    if (value.dtype != graph_.value(whole).dtype) refuse_views({whole, id});
    const Expr offset = floor_div(value.offset, Expr(element_size(value.dtype)));
    lines_.add(Code(names_.text(id) + " = " + base + ".as_strided", Bracket::call,
                    {sizes_text(value.shape), sizes_text(value.strides), size_text(offset)}));
  }

  [[noreturn]] void refuse_views(const std::vector<ValueId>& group) const {
    throw Error(ErrorKind::unsupported_operator,
                fmt::format("[emit.stages] stage {} writes memory of which it is given '{}' and "
                            "'{}', and neither is all of it; expected one view, or the whole "
                            "tensor too; plan with the views in the stage that writes them",
                            border_.stage.index(), graph_.value(group[0]).name,
                            graph_.value(group[1]).name));
  }

  static Expr elements(const Value& value) {
    Expr out(1);
    for (const Expr& size : value.shape) out = out * size;
    return out;
  }
  static Sizes contiguous(const Sizes& shape) {
    std::vector<Expr> strides(shape.size(), Expr(1));
    for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
    return strides;
  }

  // The nodes from `from` on that are computed again together, or one that is not.
  std::size_t write_run(std::size_t from) {
    const std::uint32_t block = context_.again[border_.nodes[from].index()];
    std::size_t to = from + 1;
    if (block == 0) {
      write_node(from);
      write_ends(from, to);
      return to;
    }
    while (to < border_.nodes.size() && context_.again[border_.nodes[to].index()] == block) ++to;
    if (!writes_what_is_given(from, to)) {
      close_contexts();
      write_again(from, to);
      return to;
    }
    for (std::size_t i = from; i < to; ++i) {
      write_node(i);
      write_ends(i, i + 1);
    }
    return to;
  }

  // A second run would find what the first has written, or others later on: as the runtime does, it
  // runs once.
  bool writes_what_is_given(std::size_t from, std::size_t to) const {
    const auto is_bad = [&](ValueId id) {
      return id.valid() && !graph_.value(id).scalar &&
             graph_.is_written(graph_.value(id).storage) && is_given(id, border_.nodes[from]);
    };
    for (std::size_t i = from; i < to; ++i) {
      const Node& node = node_at(i);
      if (std::any_of(node.written.begin(), node.written.end(), is_bad)) return true;
      if (std::any_of(node.outputs.begin(), node.outputs.end(), is_bad)) return true;
    }
    return false;
  }

  // Is its memory, but for weights, from before a node of the stage? Dropout gives its argument
  // itself in eval mode.
  bool is_given(ValueId id, NodeId first) const {
    const Value& value = graph_.value(id);
    for (std::size_t v = 0; v <= id.index(); ++v) {
      const Value& other = graph_.value(ValueId(v));
      if (other.scalar || other.storage != value.storage) continue;
      if (other.origin != Origin::node) return other.origin == Origin::input;
      if (other.producer < first) return true;
      const Node& maker = graph_.node(other.producer);
      const auto* argument = maker.args.empty() ? nullptr : maker.args[0].value.find<ValueId>();
      const bool passes = argument != nullptr && context_.modes != nullptr &&
                          context_.modes->in_eval.contains({other.producer, kDropoutTrains}) &&
                          is_dropout(maker);
      return passes && is_given(*argument, first);
    }
    return false;
  }

  // A function, and the call that runs it again in backward.
  void write_again(std::size_t from, std::size_t to) {
    kinds_.insert("checkpoint");
    std::vector<ValueId> given;
    std::vector<ValueId> made;
    for (std::size_t i = from; i < to; ++i) {
      for (const ValueId id : graph_.inputs_of(border_.nodes[i])) note_given(id, from, given);
      for (const ValueId id : node_at(i).outputs) note_made(id, to, made);
    }
    const std::string path = graph_.scope(node_at(from).scope).path;
    const std::string name = context_.names.make("block_" + last_name(path));
    lines_.blank();
    lines_.add(Code("def " + name, Bracket::call, texts(given), ":"));
    lines_.indent();
    scope_ = ScopeId{};
    for (std::size_t i = from; i < to; ++i) {
      write_node(i);
      write_ends(i, i + 1, from);
    }
    close_contexts();
    lines_.add(returned(made));
    lines_.dedent();
    lines_.blank();
    std::vector<Code> arguments = texts(given);
    arguments.insert(arguments.begin(), Code(name));
    arguments.emplace_back("use_reentrant=False");
    if (std::vector<Code> kept = written_buffers(from, to); !kept.empty()) {
      kinds_.insert("keeping");
      arguments.push_back(Code("context_fn=keeping", Bracket::call, std::move(kept)));
    }
    lines_.add(Code(targets(texts(made)) + "checkpoint", Bracket::call, std::move(arguments)));
    write_ends(from, to, 0, from + 1);
    scope_ = ScopeId{};
  }

  void note_given(ValueId id, std::size_t from, std::vector<ValueId>& given) const {
    if (!names_.is_local(id)) return;
    const ValueId variable = names_.variable(id);
    const bool outside = lives_.made_at(variable) <= from;
    if (outside && std::find(given.begin(), given.end(), variable) == given.end()) {
      given.push_back(variable);
    }
  }
  void note_made(ValueId id, std::size_t to, std::vector<ValueId>& made) const {
    if (!id.valid() || !names_.is_local(id)) return;
    const ValueId variable = names_.variable(id);
    const bool wanted = lives_.last_use(variable) >= to;
    if (wanted && std::find(made.begin(), made.end(), variable) == made.end()) {
      made.push_back(variable);
    }
  }

  // Statistics that the nodes update: the second run is not to update them again. What the model
  // checkpoints itself does so, and so do its stages.
  std::vector<Code> written_buffers(std::size_t from, std::size_t to) const {
    std::vector<Code> out;
    std::set<StorageId> met;
    for (std::size_t i = from; i < to; ++i) {
      if (!node_at(i).region.empty()) continue;
      for (const StorageId storage : graph_.writes(border_.nodes[i])) {
        const auto at = std::find_if(
            graph_.weights().begin(), graph_.weights().end(), [&](const Weight& weight) {
              return graph_.value(weight.value).storage == storage && names_.knows(weight.value);
            });
        if (at == graph_.weights().end() || !met.insert(storage).second) continue;
        out.emplace_back(names_.text(at->value));
      }
    }
    return out;
  }

  std::vector<Code> texts(const std::vector<ValueId>& values) const {
    std::vector<Code> out;
    for (const ValueId id : values) out.emplace_back(names_.text(id));
    return out;
  }
  static std::string targets(const std::vector<Code>& names) {
    if (names.empty()) return {};
    std::string out;
    for (const Code& name : names) out += (out.empty() ? "" : ", ") + name.text;
    return out + " = ";
  }
  Code returned(const std::vector<ValueId>& values) const {
    if (values.empty()) return "return None";
    if (values.size() == 1) return "return " + names_.text(values[0]);
    return {"return ", Bracket::series, texts(values)};
  }

  void write_return() { lines_.add(returned(border_.gives)); }

  // `del` for variables whose last use was in from..to-1, and which were made since `since` and,
  // where `until` says so, before.
  void write_ends(std::size_t from, std::size_t to, std::size_t since = 0,
                  std::size_t until = static_cast<std::size_t>(-1)) {
    if (!context_.explicit_del) return;
    std::string line;
    const auto flush = [&] {
      if (!line.empty()) lines_.add("del " + line);
      line.clear();
    };
    for (std::size_t i = from; i < to; ++i) {
      for (const ValueId id : lives_.ending_at(i)) {
        const std::size_t made = lives_.made_at(id);
        if (made < (since == 0 ? 0 : since + 1) || made >= until || is_unnamed(id)) continue;
        const std::string& name = names_.text(id);
        if (lines_.depth() + 6 + line.size() + name.size() > kLineWidth) flush();
        line += (line.empty() ? "" : ", ") + name;
      }
    }
    flush();
  }

  // Results that nobody uses have no name.
  bool is_unnamed(ValueId variable) const {
    const std::size_t made = lives_.made_at(variable);
    return made > 0 && lives_.last_use(variable) == made - 1;
  }

  void write_node(std::size_t i) {
    const Node& node = node_at(i);
    enter_contexts(border_.nodes[i], node);
    write_scope(node);
    if (node.op == "opaque") return write_block(i, node);
    const Code call = operator_call(graph_, border_.nodes[i], names_, context_.modes);
    assign(i, node, call);
    for (const ValueId id : node.outputs) {
      const auto place = instead().find(id);
      if (place == instead().end()) continue;
      in_eval_.push_back(names_.text(id) + " = " + names_.text(place->second));
    }
  }

  void assign(std::size_t i, const Node& node, const Code& call) {
    if (changed_in_place(graph_, node).valid()) return lines_.add(call);
    std::vector<Code> names = output_names(node);
    const bool none =
        std::all_of(names.begin(), names.end(), [](const Code& name) { return name.text == "_"; });
    if (none) return add_after("", call);
    if (names.size() == 1 && gives_list(packet_of(node.op))) {
      return add_after("(" + names[0].text + ",) = ", call);
    }
    const std::string left = targets(names);
    if (left.size() <= kLongTargets) return add_after(left, call);
    const std::string list = context_.names.make(fmt::format("results_{}", i));
    add_after(list + " = ", call);
    for (std::size_t k = 0; k < names.size(); ++k) {
      if (names[k].text != "_") lines_.add(fmt::format("{} = {}[{}]", names[k].text, list, k));
    }
    lines_.add("del " + list);
  }

  // Where there is no room up to the call's own bracket, a formatter would open those before it,
  // as in self.layers[0].attention.weight.split(...): the weight has a name of its own then.
  void add_after(const std::string& left, Code call) {
    const std::size_t dot = call.text.rfind('.');
    const bool on_weight = call.text.starts_with("self.") && dot > std::string_view("self").size();
    const bool no_room = lines_.depth() + left.size() + call.text.size() + 1 > kLineWidth;
    if (call.bracket == Bracket::call && on_weight && no_room) {
      const std::string owner = call.text.substr(0, dot);
      const std::string name = context_.names.make(last_name(owner));
      lines_.add(name + " = " + owner);
      call.text.replace(0, dot, name);
    }
    lines_.add(call.after(left));
  }

  std::vector<Code> output_names(const Node& node) const {
    std::vector<Code> out;
    for (const ValueId id : node.outputs) {
      const bool named = id.valid() && !is_unnamed(names_.variable(id));
      out.emplace_back(named ? names_.text(id) : "_");
    }
    return out;
  }

  void write_block(std::size_t i, const Node& node) {
    const NodeId id = border_.nodes[i];
    const BlockCall block = block_call(graph_, id, attribute_text(block_path(graph_, id)),
                                       [&](ValueId value) { return names_.text(value); });
    kinds_.insert(block.kinds.begin(), block.kinds.end());
    if (block.lone) return assign(i, node, block.call);
    kinds_.insert("unpack");
    const Code call("unpack", Bracket::call, {block.result, block.call}, ".values()");
    const std::vector<Code> names = output_names(node);
    const std::string left = names.size() == 1 ? "(" + names[0].text + ",) = " : targets(names);
    lines_.add(call.after(left));
  }

  void write_scope(const Node& node) {
    if (node.scope == scope_) return;
    scope_ = node.scope;
    const Scope& scope = graph_.scope(node.scope);
    const std::string name = scope.path.empty() ? "the model" : comment_text(scope.path);
    const std::string kind =
        scope.class_name.empty() ? "" : " (" + comment_text(scope.class_name) + ")";
    lines_.raw("# " + name + kind);
  }

  // The blocks a node stands in: `if self.training:`, then `with ...:`.
  std::vector<std::string> contexts(NodeId id, const Node& node) const {
    std::vector<std::string> out;
    if (context_.modes != nullptr && context_.modes->only_training[id.index()]) {
      out.emplace_back("if self.training:");
    }
    std::string with;
    if (!node.grad_enabled) with = "torch.no_grad()";
    for (const Autocast& autocast : node.autocast) {
      // A trace on the host stands for the device of the stage.
      const bool host = autocast.device_type == "cpu";
      const std::string device = host ? "self.device.type" : string_literal(autocast.device_type);
      with += (with.empty() ? "" : ", ") + fmt::format("torch.autocast({}, dtype={}{})", device,
                                                       dtype_text(autocast.dtype),
                                                       autocast.enabled ? "" : ", enabled=False");
    }
    if (!with.empty()) out.push_back("with " + with + ":");
    return out;
  }

  void enter_contexts(NodeId id, const Node& node) {
    const std::vector<std::string> wanted = contexts(id, node);
    if (wanted == open_) return;
    close_contexts();
    for (const std::string& context : wanted) {
      lines_.add(context);
      lines_.indent();
    }
    open_ = wanted;
    scope_ = wanted.empty() ? scope_ : ScopeId{};
  }

  void close_contexts() {
    for (std::size_t i = 0; i < open_.size(); ++i) lines_.dedent();
    if (!open_.empty()) scope_ = ScopeId{};
    open_.clear();
    if (in_eval_.empty()) return;
    lines_.add("else:");
    lines_.indent();
    for (const std::string& line : in_eval_) lines_.add(line);
    lines_.dedent();
    in_eval_.clear();
  }

  const ForwardContext& context_;
  const Graph& graph_;
  const Border& border_;
  Lines& lines_;
  StageNames names_;
  Lifetimes lives_;
  std::vector<std::string> open_;     // contexts
  std::vector<std::string> in_eval_;  // what stands in the `else` of the open one
  ScopeId scope_;                     // of the last comment
  std::set<std::string> kinds_;
};

}  // namespace

std::set<std::string> write_forward(const ForwardContext& context, const Border& border,
                                    Lines& lines) {
  return ForwardWriter(context, border, lines).write();
}

}  // namespace kerf::codegen
