// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/again.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/variable.h>

#include "kerf/base/error.h"
#include "kerf/libtorch/autograd_function.h"
#include "kerf/libtorch/gradient_sink.h"

namespace kerf {
namespace {

using torch::autograd::variable_list;

class AgainFunction : public AutogradFunction {
 public:
  explicit AgainFunction(Again again) : again_(std::move(again)) {
    torch::autograd::edge_list edges;
    for (c10::IValue& input : again_.inputs) {
      versions_.push_back(0);
      with_gradient_.push_back(false);
      if (!input.isTensor()) continue;
      const at::Tensor& tensor = input.toTensor();
      versions_.back() = tensor._version();
      if (tensor.requires_grad()) {
        edges.push_back(torch::autograd::impl::gradient_edge(tensor));
        with_gradient_.back() = true;
      }
      input = tensor.detach();
    }
    set_next_edges(std::move(edges));
  }

  std::string name() const override { return "KerfAgain"; }
  void release_variables() override { again_ = {}; }

  variable_list apply(variable_list&& gradients) override {
    std::vector<c10::IValue> inputs;
    std::vector<SunkTensor> sunk;
    for (std::size_t i = 0; i < again_.inputs.size(); ++i) {
      check_unwritten(i);
      inputs.push_back(again_.inputs[i]);
      if (!with_gradient_[i]) continue;
      sunk.emplace_back(inputs.back().toTensor());
      inputs.back() = sunk.back().tensor();
    }
    again_.rerun(inputs, gradients);
    variable_list out;
    for (const SunkTensor& tensor : sunk) out.push_back(tensor.gradient());
    return out;
  }

 private:
  void check_unwritten(std::size_t i) const {
    const c10::IValue& input = again_.inputs[i];
    if (!input.isTensor() || input.toTensor()._version() == versions_[i]) return;
    throw Error(ErrorKind::run_failed,
                fmt::format("block '{}' is computed again, and something that it read was written "
                            "since; expected inputs that stay; plan with another recompute=, or "
                            "write to a copy",
                            again_.name));
  }

  Again again_;
  std::vector<std::uint32_t> versions_;  // by input
  std::vector<bool> with_gradient_;      // by input
};

}  // namespace

void attach(Again again, std::vector<at::Tensor>& outputs) {
  const AutogradFunctionPtr function = make_autograd_function<AgainFunction>(std::move(again));
  for (at::Tensor& output : outputs) {
    if (!output.defined() || !torch::autograd::isDifferentiableType(output.scalar_type())) continue;
    output = output.detach();  // counts writes together with what the block made
    const std::uint32_t number = function->add_input_metadata(output);
    torch::autograd::impl::set_gradient_edge(output, {function, number});
  }
}

}  // namespace kerf
