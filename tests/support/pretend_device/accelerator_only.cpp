// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Operators that PyTorch or its users call on accelerators only, and for which the CPU has no
// kernel: cells of recurrent networks, and histograms of integers.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include "tests/support/pretend_device/kernels.h"

namespace pretend {
namespace {

using MaybeTensor = std::optional<at::Tensor>;

at::Tensor plus(const at::Tensor& gates, const MaybeTensor& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

// Made of other operators, for autograd too. Close to the CPU's numbers and not the same: there the
// bias is added by the product.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input,
                                                         const at::Tensor& hidden,
                                                         const at::Tensor& cell,
                                                         const MaybeTensor& input_bias,
                                                         const MaybeTensor& hidden_bias) {
  const auto gates = (plus(hidden, hidden_bias) + plus(input, input_bias)).chunk(4, 1);
  const auto next = gates[1].sigmoid() * cell + gates[0].sigmoid() * gates[2].tanh();
  return {gates[3].sigmoid() * next.tanh(), next, at::empty({0}, cell.options())};
}

std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input, const at::Tensor& hidden,
                                            const at::Tensor& state, const MaybeTensor& input_bias,
                                            const MaybeTensor& hidden_bias) {
  const auto in = plus(input, input_bias).chunk(3, 1);
  const auto of_state = plus(hidden, hidden_bias).chunk(3, 1);
  const auto reset = (of_state[0] + in[0]).sigmoid();
  const auto update = (of_state[1] + in[1]).sigmoid();
  const auto fresh = (in[2] + of_state[2] * reset).tanh();
  return {(state - fresh) * update + fresh, at::empty({0}, state.options())};
}

void histc(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  auto& self = (*stack)[stack->size() - op.schema().arguments().size()];
  const auto type = self.toTensor().scalar_type();
  if (!c10::isIntegralType(type, false)) return run_on_cpu(op, stack);
  self = self.toTensor().to(c10::kDouble);
  run_on_cpu(op, stack);
  stack->back() = stack->back().toTensor().to(type);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", &lstm_cell);
  m.impl("_thnn_fused_gru_cell", &gru_cell);
  m.impl("histc", torch::CppFunction::makeFromBoxedFunction<&histc>());
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", &lstm_cell);
  m.impl("_thnn_fused_gru_cell", &gru_cell);
}

}  // namespace pretend
