// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/symbolic/recorder.h"

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cctype>
#include <exception>
#include <optional>
#include <utility>

#include "kerf/base/error.h"
#include "kerf/graph/operator.h"
#include "kerf/graph/operator_effects.h"
#include "kerf/libtorch/symbolic/host_layout.h"
#include "kerf/libtorch/symbolic/operator_facts.h"
#include "kerf/libtorch/symbolic/tensor_book.h"
#include "kerf/libtorch/symbolic/unreached.h"

namespace kerf {
namespace {

// All tensors of a list of results, undefined ones for those that are none.
std::vector<at::Tensor> tensors_in(const std::vector<c10::IValue>& values) {
  std::vector<at::Tensor> out;
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      out.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) out.push_back(tensor);
    } else {
      out.emplace_back();
    }
  }
  return out;
}

// A call between its start and its end. PyTorch watches nothing below it meanwhile.
struct OpenCall : at::ObserverContext {
  const OperatorFacts* facts = nullptr;
  Node node;
  std::vector<const void*> given;  // the tensors among its arguments
  HostLayout layout;               // of its first result
  std::optional<std::pair<double, double>> flops;
};

// Python's autograd functions run their forward without gradients, and have them afterwards.
struct FunctionStart {
  std::size_t node = 0;
  std::size_t value = 0;
  std::size_t made = 0;
};
struct OpenFunction : at::ObserverContext {
  FunctionStart start;
};

// Tensors by the function that gives their gradients, in the order in which they were made.
using FunctionOutputs =
    std::vector<std::pair<const torch::autograd::Node*, std::vector<at::Tensor>>>;

// PyTorch refuses to say it of a view that was made without gradients, or in a way that takes none,
// and whose memory was written since: no backward goes through such a view.
const torch::autograd::Node* function_of(const at::Tensor& tensor) {
  const auto* const view = torch::autograd::impl::get_view_autograd_meta(tensor);
  if (view != nullptr && view->has_bw_view() &&
      view->get_creation_meta() != torch::autograd::CreationMeta::DEFAULT &&
      view->get_attr_version() != tensor._version()) {
    return nullptr;
  }
  return tensor.grad_fn().get();
}

void add_output(FunctionOutputs& functions, const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.requires_grad()) return;
  const torch::autograd::Node* const maker = function_of(tensor);
  if (maker == nullptr) return;
  auto found = std::find_if(functions.begin(), functions.end(),
                            [&](const auto& entry) { return entry.first == maker; });
  if (found == functions.end()) found = functions.insert(functions.end(), {maker, {}});
  const bool is_known = std::any_of(found->second.begin(), found->second.end(),
                                    [&](const at::Tensor& known) { return known.is_same(tensor); });
  if (!is_known) found->second.push_back(tensor);
}

std::string function_op(std::string name) {
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_') c = '_';
  }
  return std::string(kPythonFunction) + name;
}

// A frozen graph numbers its values anew: inputs, weights, results of nodes. They keep their order.
std::vector<ValueId> all_values(const GraphData& data) {
  std::vector<ValueId> out;
  for (const GraphInput& input : data.inputs) out.push_back(input.value);
  for (const Weight& weight : data.weights) out.push_back(weight.value);
  for (const Node& node : data.nodes) {
    for (const ValueId id : node.outputs) {
      if (id.valid()) out.push_back(id);
    }
  }
  return out;
}

void renumber_spans(std::vector<Span>& spans, const std::vector<ValueId>& before,
                    const std::vector<ValueId>& after) {
  std::vector<ValueId> now(before.size());
  for (std::size_t i = 0; i < before.size(); ++i) now[before[i].index()] = after[i];
  for (Span& span : spans) {
    for (auto* const list : {&span.inputs, &span.outputs, &span.weights}) {
      for (ValueId& id : *list) id = now[id.index()];
    }
  }
}

}  // namespace

class Recorder::Content {
 public:
  Content(std::string name, bool training)
      : builder_(std::move(name), training),
        book_(builder_),
        value_of_([this](const at::Tensor& tensor) { return value_of(tensor); }) {}
  ~Content() { stop_watching(); }
  Content(const Content&) = delete;
  Content& operator=(const Content&) = delete;

  GraphBuilder& builder() { return builder_; }
  TensorBook& book() { return book_; }
  std::vector<Span>& spans() { return spans_; }
  std::map<std::string, FlopRule>& rules() { return rules_; }
  void set_function_reader(FunctionReader reader) { reader_ = std::move(reader); }
  std::map<std::size_t, std::pair<double, double>>& flops() { return flops_; }

  void start(Span span, const SpanPlace& place, const std::vector<at::Tensor>& inputs,
             const std::vector<at::Tensor>& weights, const std::string& as) {
    KERF_CHECK(!is_open_, "a span within a span");
    is_open_ = true;
    place_ = place;
    scope_ = builder_.add_scope(place.scope.path, place.scope.class_name);
    span_ = std::move(span);
    span_.first = span_.last = NodeId{builder_.data().nodes.size()};
    num_calls_ = 0;
    add_distinct(span_.inputs, inputs);
    add_distinct(span_.weights, weights);
    as_ = as;
    if (as_.empty()) start_watching();
  }

  void end(const std::vector<at::Tensor>& outputs) {
    KERF_CHECK(is_open_, "the end of a span that was not started");
    stop_watching();
    is_open_ = false;
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    if (!as_.empty()) add_ruled(outputs);
    add_distinct(span_.outputs, outputs);
    span_.last = NodeId{builder_.data().nodes.size()};
    spans_.push_back(std::move(span_));
  }

  void abandon() {
    stop_watching();
    is_open_ = false;
    failure_ = nullptr;
  }

  // What PyTorch's observers call: nothing may be thrown through them.

  std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
    const auto name = function.operator_name();
    if (!name) {
      if (!at::GradMode::is_enabled()) return nullptr;
      auto open = std::make_unique<OpenFunction>();
      open->start = here();
      ++num_open_functions_;
      return open;
    }
    const OperatorFacts& facts = facts_of(*name);
    if (facts.look_inside && rules_.count(facts.op.name) == 0) return nullptr;
    auto call = std::make_unique<OpenCall>();
    call->facts = &facts;
    at::enableRecordFunction(false);
    try {
      fill(*call, function.inputs());
      call->layout = host_layout(facts.op.name, function.inputs());
      if (const auto rule = rules_.find(facts.op.name); rule != rules_.end()) {
        call->flops = ask(rule->second, facts, function.inputs());
      }
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
    }
    return call;
  }

  void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
    if (const auto* open = dynamic_cast<OpenFunction*>(context)) return end_function(open->start);
    auto* const call = dynamic_cast<OpenCall*>(context);
    if (call == nullptr) return;
    at::enableRecordFunction(true);
    if (failure_) return;
    try {
      const std::vector<at::Tensor> outputs = tensors_in(function.outputs());
      if (!outputs.empty()) lay_out(outputs[0], call->layout);
      add_call(*call, outputs);
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  void end_function(const FunctionStart& start) {
    --num_open_functions_;
    if (failure_) return;
    try {
      if (!reader_) return give_gradients(start);
      FunctionOutputs functions;
      for (std::size_t i = start.made; i < made_.size(); ++i) add_output(functions, made_[i]);
      if (num_open_functions_ == 0) made_.clear();
      for (const auto& [maker, outputs] : functions) {
        if (const auto record = read(outputs)) add_function(start, outputs, *record);
      }
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

 private:
  void start_watching();
  void stop_watching();

  // The value of a tensor. One that nobody has made here is a constant; one that lies in known
  // memory, without a call that says so (`x.data`), is a view of it.
  ValueId value_of(const at::Tensor& tensor) {
    if (const ValueId known = book_.find(tensor); known.valid()) {
      return has_new_gradient(tensor, known) ? with_gradient(tensor) : known;
    }
    TensorSpec spec = book_.spec(fmt::format("constant_{}", num_constants_), tensor);
    const ValueId memory = book_.find_memory(tensor);
    if (!memory.valid()) {
      ++num_constants_;
      const std::string name = spec.name;
      const ValueId made = builder_.add_weight({name}, WeightKind::constant, std::move(spec));
      book_.bind(tensor, made);
      return made;
    }
    const Value& there = builder_.data().values[memory.index()];
    const bool is_same = there.dtype == spec.dtype && there.shape.list() == spec.shape &&
                         there.strides.list() == spec.strides && there.offset == spec.offset;
    if (is_same) {
      book_.bind(tensor, memory);
      return memory;
    }
    return view_of_memory(tensor, memory, std::move(spec));
  }

  // Since it was bound: by a write through a view of it, or by requires_grad_().
  bool has_new_gradient(const at::Tensor& tensor, ValueId known) {
    return tensor.requires_grad() && !builder_.data().values[known.index()].requires_grad;
  }

  ValueId with_gradient(const at::Tensor& tensor) {
    const ValueId latest = book_.find_memory(tensor);
    return view_of_memory(tensor, latest, book_.spec("", tensor));
  }

  ValueId view_of_memory(const at::Tensor& tensor, ValueId memory, TensorSpec spec) {
    const auto to_list = [](c10::IntArrayRef numbers) {
      Argument::List list;
      for (const std::int64_t number : numbers) list.push_back({Expr(number)});
      return Argument{std::move(list)};
    };
    Node node = new_node("aten.as_strided.default");
    node.args = {{"", Argument{memory}},
                 {"", to_list(tensor.sizes())},
                 {"", to_list(tensor.strides())},
                 {"", Argument{Expr(tensor.storage_offset())}}};
    node.may_alias = {memory};
    spec.name = node.name;
    const ValueId made = builder_.add_node(std::move(node), {&spec}).front();
    book_.bind(tensor, made);
    return made;
  }

  void add_distinct(std::vector<ValueId>& out, const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) {
      if (!tensor.defined()) continue;
      const ValueId id = value_of(tensor);
      if (std::find(out.begin(), out.end(), id) == out.end()) out.push_back(id);
    }
  }

  // Nodes bear the name of their span, those after the first with a number.
  Node new_node(std::string op) {
    Node node;
    node.name = num_calls_ == 0 ? span_.name : fmt::format("{}.{}", span_.name, num_calls_);
    ++num_calls_;
    node.op = std::move(op);
    node.scope = scope_;
    node.region = place_.region;
    node.source = place_.source;
    node.grad_enabled = at::GradMode::is_enabled();
    return node;
  }

  void fill(OpenCall& call, c10::ArrayRef<const c10::IValue> inputs) {
    const OperatorFacts& facts = *call.facts;
    for (const c10::IValue& input : inputs) note_given(input, call.given);
    const std::size_t count = std::min<std::size_t>(inputs.size(), facts.forms.size());
    std::vector<Argument> values;
    values.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      values.push_back(to_argument(inputs[i], facts.forms[i], value_of_));
    }
    call.node = new_node(facts.op.name);
    const auto is_preset = [&](std::size_t i) {
      const auto& preset = facts.op.parameters[i].preset;
      return preset && *preset == values[i];
    };
    std::size_t positional = count;
    while (positional > 0 && (facts.by_keyword[positional - 1] || is_preset(positional - 1))) {
      --positional;
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (i < positional) {
        call.node.args.push_back({"", std::move(values[i])});
      } else if (!is_preset(i)) {
        call.node.args.push_back({facts.op.parameters[i].name, std::move(values[i])});
      }
    }
    call.node.written = written_values(facts.op, call.node);
    call.node.may_alias = aliased_values(facts.op, call.node);
    call.node.random = draws_numbers(facts.op, call.node);
  }

  static std::pair<double, double> ask(const FlopRule& rule, const OperatorFacts& facts,
                                       c10::ArrayRef<const c10::IValue> inputs) {
    std::vector<c10::IValue> positional;
    std::vector<std::pair<std::string, c10::IValue>> named;
    for (std::size_t i = 0; i < inputs.size() && i < facts.forms.size(); ++i) {
      if (facts.by_keyword[i]) {
        named.emplace_back(facts.op.parameters[i].name, inputs[i]);
      } else {
        positional.push_back(inputs[i]);
      }
    }
    return rule(positional, named);
  }

  static void note_given(const c10::IValue& input, std::vector<const void*>& given) {
    if (input.isTensor()) {
      given.push_back(input.toTensor().unsafeGetTensorImpl());
    } else if (input.isTensorList()) {
      for (const at::Tensor& tensor : input.toTensorVector()) {
        given.push_back(tensor.unsafeGetTensorImpl());
      }
    }
  }

  // A call that gives back what it was given, and changes nothing, is none: `contiguous` of what
  // is contiguous. One that returns no tensor and writes none is about sizes.
  static bool does_nothing(const OpenCall& call, const std::vector<at::Tensor>& outputs) {
    if (!call.node.written.empty()) return false;
    return std::all_of(outputs.begin(), outputs.end(), [&](const at::Tensor& output) {
      const void* const tensor = output.unsafeGetTensorImpl();
      return !output.defined() ||
             std::find(call.given.begin(), call.given.end(), tensor) != call.given.end();
    });
  }

  void add_call(OpenCall& call, const std::vector<at::Tensor>& outputs) {
    if (outputs.empty() || does_nothing(call, outputs)) {
      --num_calls_;
      return;
    }
    const FunctionStart start = here();
    if (call.flops) flops_.emplace(start.node, *call.flops);
    add_node(std::move(call.node), outputs);
    if (reader_ && !call.facts->op.name.starts_with("aten.")) {
      add_backward(start, outputs, call.flops.has_value());
    }
  }

  // A user's operator whose backward is a Python function: the call itself is without gradients.
  void add_backward(const FunctionStart& start, const std::vector<at::Tensor>& outputs,
                    bool has_rule) {
    FunctionOutputs functions;
    for (const at::Tensor& output : outputs) add_output(functions, output);
    for (const auto& [maker, made] : functions) {
      auto record = read(made);
      if (!record) continue;
      if (has_rule) record->backward_flops = 0;  // the rule counts both ways
      GraphData& data = builder_.data();
      data.nodes[start.node].grad_enabled = false;
      for (const at::Tensor& tensor : made) {
        data.values[book_.find(tensor).index()].requires_grad = false;
      }
      add_function(start, made, *record);
    }
  }

  void add_node(Node node, const std::vector<at::Tensor>& outputs) {
    std::vector<TensorSpec> specs;
    std::vector<const TensorSpec*> pointers;
    specs.reserve(outputs.size());
    for (const at::Tensor& output : outputs) {
      if (!output.defined()) {
        pointers.push_back(nullptr);
        continue;
      }
      std::string name =
          outputs.size() == 1 ? node.name : fmt::format("{}.{}", node.name, pointers.size());
      specs.push_back(book_.spec(std::move(name), output));
      specs.back().requires_grad = specs.back().requires_grad || ruled_gradient_;
      pointers.push_back(&specs.back());
    }
    const std::vector<ValueId> made = builder_.add_node(std::move(node), pointers);
    for (std::size_t i = 0; i < made.size(); ++i) {
      if (!made[i].valid()) continue;
      if (num_open_functions_ > 0) made_.push_back(outputs[i]);
      book_.bind(outputs[i], made[i]);
      book_.note_growth(outputs[i], made[i]);
    }
  }

  // A span whose results come from a rule, which knows shapes and no gradients.
  void add_ruled(const std::vector<at::Tensor>& outputs) {
    Node node = new_node(as_);
    bool has_gradient = false;
    for (const ValueId id : span_.inputs) {
      node.args.push_back({"", Argument{id}});
      has_gradient = has_gradient || builder_.data().values[id.index()].requires_grad;
    }
    std::vector<at::Tensor> fresh;
    for (const at::Tensor& output : outputs) {
      if (output.defined() && !book_.find(output).valid()) fresh.push_back(output);
    }
    if (fresh.empty()) return;
    ruled_gradient_ = has_gradient && node.grad_enabled;
    add_node(std::move(node), fresh);
    ruled_gradient_ = false;
  }

  FunctionStart here() {
    return {builder_.data().nodes.size(), builder_.data().values.size(), made_.size()};
  }

  // The reader may make tensors, and a recording of its own, none of which are part of this one.
  std::optional<FunctionRecord> read(const std::vector<at::Tensor>& outputs) {
    stop_watching();
    try {
      auto record = reader_(outputs);
      start_watching();
      return record;
    } catch (...) {
      start_watching();
      throw;
    }
  }

  void add_function(const FunctionStart& start, const std::vector<at::Tensor>& outputs,
                    const FunctionRecord& record) {
    const auto to_list = [](const std::vector<ValueId>& values) {
      Argument::List list;
      for (const ValueId id : values) list.push_back({id});
      return Argument{std::move(list)};
    };
    std::vector<ValueId> results;
    std::vector<ValueId> saved;
    add_distinct(results, outputs);
    for (const at::Tensor& tensor : record.saved) {
      ValueId id = book_.find(tensor);
      if (!id.valid()) id = book_.find_memory(tensor);
      if (id.valid() && std::find(saved.begin(), saved.end(), id) == saved.end()) {
        saved.push_back(id);
      }
    }
    Node node = new_node(function_op(record.name));
    node.args = {
        {"", to_list(results)}, {"", to_list(inputs_with_gradients(start))}, {"", to_list(saved)}};
    node.may_alias = results;
    node.grad_enabled = true;
    if (record.backward_flops) {
      flops_.emplace(builder_.data().nodes.size(), std::pair(0.0, *record.backward_flops));
    }
    add_node(std::move(node), outputs);
  }

  // What a function reads from outside and gives gradients for.
  std::vector<ValueId> inputs_with_gradients(const FunctionStart& start) {
    const GraphData& data = builder_.data();
    std::vector<ValueId> found;
    for (std::size_t n = start.node; n < data.nodes.size(); ++n) {
      for (const NamedArgument& argument : data.nodes[n].args) {
        for_each_value(argument.value, [&](ValueId id) {
          const Value& value = data.values[id.index()];
          const bool is_outside = id.index() < start.value || value.origin != Origin::node;
          const bool is_new = std::find(found.begin(), found.end(), id) == found.end();
          if (is_outside && value.requires_grad && is_new) found.push_back(id);
        });
      }
    }
    return found;
  }

  // As if autograd had recorded what the function called: that is what its backward goes back
  // through, if not always call by call.
  void give_gradients(const FunctionStart& start) {
    GraphData& data = builder_.data();
    for (std::size_t n = start.node; n < data.nodes.size(); ++n) {
      Node& node = data.nodes[n];
      bool has_gradient = false;
      for (const NamedArgument& argument : node.args) {
        for_each_value(argument.value, [&](ValueId id) {
          has_gradient = has_gradient || data.values[id.index()].requires_grad;
        });
      }
      node.grad_enabled = true;
      for (const ValueId id : node.outputs) {
        if (!id.valid() || !has_gradient) continue;
        Value& value = data.values[id.index()];
        value.requires_grad = is_floating(value.dtype);
      }
    }
  }

  GraphBuilder builder_;
  TensorBook book_;
  ValueOf value_of_;
  std::map<std::string, FlopRule> rules_;
  FunctionReader reader_;
  std::size_t num_open_functions_ = 0;
  std::vector<at::Tensor> made_;  // within functions
  std::map<std::size_t, std::pair<double, double>> flops_;
  std::vector<Span> spans_;
  Span span_;
  SpanPlace place_;
  ScopeId scope_{0};
  std::string as_;
  bool is_open_ = false;
  bool ruled_gradient_ = false;
  std::size_t num_calls_ = 0;  // of the span
  std::size_t num_constants_ = 0;
  std::exception_ptr failure_;
  at::CallbackHandle callback_ = 0;
  Content* outer_ = nullptr;
};

namespace {

// Recorders of this thread: a rule that a profile calls may make a profile of its own.
thread_local void* innermost_recorder = nullptr;

}  // namespace

void Recorder::Content::start_watching() {
  outer_ = static_cast<Content*>(std::exchange(innermost_recorder, this));
  const auto start = [](const at::RecordFunction& function) {
    auto* const content = static_cast<Content*>(innermost_recorder);
    return content == nullptr ? nullptr : content->on_start(function);
  };
  const auto end = [](const at::RecordFunction& function, at::ObserverContext* context) {
    auto* const content = static_cast<Content*>(innermost_recorder);
    if (content != nullptr) content->on_end(function, context);
  };
  callback_ = at::addThreadLocalCallback(at::RecordFunctionCallback(start, end)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
}

void Recorder::Content::stop_watching() {
  if (callback_ == 0) return;
  at::removeCallback(std::exchange(callback_, 0));
  innermost_recorder = std::exchange(outer_, nullptr);
}

Recorder::Recorder(std::string name, bool training)
    : content_(std::make_unique<Content>(std::move(name), training)) {}

Recorder::~Recorder() = default;

void Recorder::add_input(std::string path, std::string name, const at::Tensor& tensor) {
  if (content_->book().find(tensor).valid()) return;
  TensorSpec spec = content_->book().spec(std::move(name), tensor);
  content_->book().bind(tensor, content_->builder().add_input(std::move(path), std::move(spec)));
}

void Recorder::add_weight(std::vector<std::string> names, WeightKind kind,
                          const at::Tensor& tensor) {
  if (content_->book().find(tensor).valid()) return;
  KERF_CHECK(!names.empty(), "a weight without a name");
  TensorSpec spec = content_->book().spec(names.front(), tensor);
  content_->book().bind(tensor,
                        content_->builder().add_weight(std::move(names), kind, std::move(spec)));
}

void Recorder::set_rule(std::string op, FlopRule rule) {
  content_->rules().insert_or_assign(std::move(op), std::move(rule));
}

void Recorder::set_function_reader(FunctionReader reader) {
  content_->set_function_reader(std::move(reader));
}

void Recorder::start(Span span, const SpanPlace& place, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& weights, const std::string& as) {
  content_->start(std::move(span), place, inputs, weights, as);
}

void Recorder::end(const std::vector<at::Tensor>& outputs) { content_->end(outputs); }

void Recorder::abandon() { content_->abandon(); }

Recording Recorder::finish(const std::vector<at::Tensor>& outputs) {
  std::vector<GraphOutput> leaves;
  for (const at::Tensor& output : outputs) {
    const ValueId id = content_->book().find(output);
    if (id.valid()) leaves.push_back({Argument{id}, std::to_string(leaves.size())});
  }
  content_->builder().set_outputs(std::move(leaves));
  drop_unreached(content_->builder().data());
  std::vector<Span> spans = std::move(content_->spans());
  const std::vector<ValueId> before = all_values(content_->builder().data());
  Graph graph = content_->builder().finish();
  renumber_spans(spans, before, all_values(graph.data()));
  return {std::move(graph), std::move(spans), std::move(content_->flops())};
}

}  // namespace kerf
