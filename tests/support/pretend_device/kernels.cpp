// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pretend_device/kernels.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/convolution_backward.h>
#include <c10/util/irange.h>
#include <torch/library.h>

#include <set>

#include "tests/support/pretend_device/aliases.h"
#include "tests/support/pretend_device/generator.h"

namespace pretend {
namespace {

using torch::jit::Stack;

// One call of an operator: its arguments, from pretend tensors to CPU ones, and its results back.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack& stack)
      : op_(op), stack_(stack), first_(stack.size() - op.schema().arguments().size()) {}

  // `kernel`: the operator that is run on the CPU tensors, of the same schema.
  void run(const c10::OperatorHandle& kernel, bool redispatch);

 private:
  struct Argument {
    std::size_t index;
    at::Tensor tensor;
    bool written;
  };

  const c10::Argument& schema(std::size_t i) const { return op_.schema().arguments()[i]; }
  void collect();
  void choose_device();
  void check_devices() const;
  void note_uses() const;
  void swap_arguments();
  void swap_generator(std::size_t i);
  c10::IValue swapped_list(const c10::IValue& list);
  void convert_results();
  bool tells_the_host() const;
  bool draws_from_default() const;
  std::string name() const { return op_.schema().name(); }

  const c10::OperatorHandle& op_;
  Stack& stack_;
  std::size_t first_;
  std::vector<Argument> tensors_;
  c10::DeviceIndex device_ = -1;
  std::optional<Aliases> aliases_;
  bool has_generator_ = false;
};

void Call::collect() {
  for (const auto i : c10::irange(op_.schema().arguments().size())) {
    const auto& value = stack_[first_ + i];
    const auto* alias = schema(i).alias_info();
    const bool written = alias != nullptr && alias->isWrite();
    if (value.isTensor()) {
      tensors_.push_back({i, value.toTensor(), written});
    } else if (value.isTensorList()) {
      for (const auto& tensor : value.toTensorVector()) tensors_.push_back({i, tensor, written});
    } else if (value.isOptionalTensorList()) {
      for (const auto& tensor : value.toOptionalTensorVector()) {
        if (tensor) tensors_.push_back({i, *tensor, written});
      }
    }
  }
  std::erase_if(tensors_, [](const Argument& argument) { return !argument.tensor.defined(); });
}

void Call::choose_device() {
  for (const auto& argument : tensors_) {
    if (argument.tensor.is_privateuseone()) {
      device_ = argument.tensor.get_device();
      return;
    }
  }
  for (const auto i : c10::irange(op_.schema().arguments().size())) {
    const auto& value = stack_[first_ + i];
    if (value.isDevice() && value.toDevice().is_privateuseone()) {
      device_ = value.toDevice().index();
    }
  }
  if (device_ < 0) device_ = current_device();
}

// A real device cannot reach memory of another or of the host, and says so; numbers are welcome.
void Call::check_devices() const {
  static const std::set<std::string> take_cpu_indices{"aten::index", "aten::index_put_",
                                                      "aten::_index_put_impl_", "aten::index_put"};
  for (const auto& [index, tensor, written] : tensors_) {
    if (tensor.is_privateuseone() && tensor.get_device() == device_) continue;
    const bool number = tensor.is_cpu() && tensor.dim() == 0 && !written;
    const bool cpu_index = tensor.is_cpu() && !written && take_cpu_indices.contains(name());
    TORCH_CHECK(number || cpu_index,
                "Expected all tensors to be on the same device, but found at least two devices, "
                "pretend:",
                int{device_}, " and ", tensor.device(), "! (argument ", schema(index).name(),
                " of ", name(), ")");
  }
}

void Call::note_uses() const {
  Stream& stream = current_stream(device_);
  std::lock_guard lock(issue_mutex());
  issue(stream);
  for (const auto& argument : tensors_) {
    note_use(argument.tensor, argument.written, stream, name());
  }
}

c10::IValue Call::swapped_list(const c10::IValue& list) {
  if (list.isTensorList()) {
    c10::List<at::Tensor> swapped;
    for (const auto& tensor : list.toTensorVector()) swapped.push_back(aliases_->to_cpu(tensor));
    return swapped;
  }
  c10::List<std::optional<at::Tensor>> swapped;
  for (const auto& tensor : list.toOptionalTensorVector()) {
    swapped.push_back(tensor ? std::optional(aliases_->to_cpu(*tensor)) : std::nullopt);
  }
  return swapped;
}

void Call::swap_generator(std::size_t i) {
  const auto type = schema(i).type();
  const auto* optional = type->castRaw<c10::OptionalType>();
  const auto kind = optional != nullptr ? optional->getElementType()->kind() : type->kind();
  if (kind != c10::TypeKind::GeneratorType) return;
  has_generator_ = true;
  auto& value = stack_[first_ + i];
  value = cpu_generator(value.isNone() ? default_generator(device_) : value.toGenerator());
}

void Call::swap_arguments() {
  for (const auto i : c10::irange(op_.schema().arguments().size())) {
    auto& value = stack_[first_ + i];
    if (value.isTensor()) {
      value = aliases_->to_cpu(value.toTensor());
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      value = swapped_list(value);
    } else if (value.isDevice()) {
      value = c10::Device(c10::kCPU);
    } else {
      swap_generator(i);
    }
  }
}

void Call::convert_results() {
  for (const auto& [index, tensor, written] : tensors_) {
    if (written) aliases_->take_shape_of_alias(tensor, aliases_->to_cpu(tensor));
  }
  const auto num_results = op_.schema().returns().size();
  for (const auto i : c10::irange(num_results)) {
    auto& value = stack_[stack_.size() - num_results + i];
    if (value.isTensor()) {
      value = aliases_->to_device(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> converted;
      for (const auto& t : value.toTensorVector()) converted.push_back(aliases_->to_device(t));
      value = std::move(converted);
    }
  }
}

// A result that the host reads, or the size of one, is known to it when the call returns.
bool Call::tells_the_host() const {
  if (op_.hasTag(at::Tag::data_dependent_output) || op_.hasTag(at::Tag::dynamic_output_shape)) {
    return true;
  }
  for (const auto& result : op_.schema().returns()) {
    const auto kind = result.type()->kind();
    if (kind == c10::TypeKind::BoolType || kind == c10::TypeKind::IntType ||
        kind == c10::TypeKind::FloatType || kind == c10::TypeKind::NumberType) {
      return true;
    }
  }
  return false;
}

// Random, and without an argument for a generator (native_dropout): such a kernel draws from the
// CPU's default generator, and is shown the device's under that name.
bool Call::draws_from_default() const {
  return !has_generator_ && op_.hasTag(at::Tag::nondeterministic_seeded);
}

class DefaultGeneratorSwapped {
 public:
  DefaultGeneratorSwapped(bool wanted, c10::DeviceIndex device) : wanted_(wanted) {
    if (!wanted_) return;
    ours_ = cpu_generator(default_generator(device));
    host_ = at::detail::getDefaultCPUGenerator();
    saved_ = host_.get_state();
    host_.set_state(ours_.get_state());
  }
  ~DefaultGeneratorSwapped() {
    if (!wanted_) return;
    ours_.set_state(host_.get_state());
    host_.set_state(saved_);
  }
  DefaultGeneratorSwapped(const DefaultGeneratorSwapped&) = delete;
  DefaultGeneratorSwapped& operator=(const DefaultGeneratorSwapped&) = delete;

 private:
  bool wanted_;
  at::Generator ours_, host_;
  at::Tensor saved_;
};

void Call::run(const c10::OperatorHandle& kernel, bool redispatch) {
  collect();
  choose_device();
  check_devices();
  Stream& stream = current_stream(device_);
  aliases_.emplace(device_);
  note_uses();
  {
    const Stream::Turn turn(stream);
    at::AutoDispatchBelowADInplaceOrView below;
    swap_arguments();
    const DefaultGeneratorSwapped swapped(draws_from_default(), device_);
    if (redispatch) {
      kernel.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
    } else {
      kernel.callBoxed(&stack_);
    }
    convert_results();
  }
  if (tells_the_host()) synchronize(stream);
}

}  // namespace

void run_on_cpu(const c10::OperatorHandle& op, Stack* stack) { Call(op, *stack).run(op, true); }

void prefer_kernels_of_the_cpu() {
  static auto* library = new torch::Library(torch::Library::IMPL, "aten",
                                            c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (!op || !name.name.starts_with("aten::") || !op->hasSchema()) continue;
    const auto has = [&](c10::DispatchKey key) { return op->hasKernelForDispatchKey(key); };
    const bool general = has(c10::DispatchKey::CompositeImplicitAutograd) ||
                         has(c10::DispatchKey::CompositeExplicitAutograd);
    if (!general || !has(c10::DispatchKey::CPU) || has(c10::DispatchKey::PrivateUse1)) continue;
    const auto full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  }
}

namespace {

// PyTorch lets a device of its own kind choose a convolution; ours chooses what the CPU would.
void convolution(const c10::OperatorHandle& op, Stack* stack) {
  static const auto kernel =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  Call(op, *stack).run(kernel, false);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
    c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
    c10::IntArrayRef output_padding, std::int64_t groups, std::array<bool, 3> wanted) {
  Stream& stream = current_stream(input.get_device());
  Aliases aliases(stream.device);
  {
    std::lock_guard lock(issue_mutex());
    issue(stream);
    for (const auto& read : {gradient, input, weight}) {
      note_use(read, false, stream, "convolution_backward");
    }
  }
  const Stream::Turn turn(stream);
  at::AutoDispatchBelowADInplaceOrView below;
  const auto [to_input, to_weight, to_bias] = at::convolution_backward(
      aliases.to_cpu(gradient), aliases.to_cpu(input), aliases.to_cpu(weight),
      at::OptionalIntArrayRef(gradient.sizes().slice(1, 1)), stride, padding, dilation, transposed,
      output_padding, groups, wanted);
  return {aliases.to_device(to_input), aliases.to_device(to_weight), aliases.to_device(to_bias)};
}

// Attention takes the way that it takes on the CPU, so that its numbers are the same.
std::int64_t attention_choice(const at::Tensor& query, const at::Tensor& key,
                              const at::Tensor& value, const std::optional<at::Tensor>& mask,
                              double dropout, bool causal, std::optional<double> scale,
                              bool grouped) {
  Aliases aliases(query.get_device());
  const auto alias = [&](const at::Tensor& tensor) {
    auto cpu = aliases.to_cpu(tensor);
    if (tensor.defined() && tensor.requires_grad()) cpu.set_requires_grad(true);
    return cpu;
  };
  const auto cpu_mask = mask ? std::optional(alias(*mask)) : std::nullopt;
  // Not through the dispatcher: modes would see an operator that other devices do not call.
  return at::native::_fused_sdp_choice_cpp(alias(query), alias(key), alias(value), cpu_mask,
                                           dropout, causal, scale, grouped);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution>());
  m.impl("convolution_backward_overrideable", &convolution_backward);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

// PyTorch warns of backends without kernels for autograd of their own; the general ones do.
TORCH_LIBRARY_IMPL(_, AutogradPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

}  // namespace pretend

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &pretend::attention_choice)
}  // namespace at::native
