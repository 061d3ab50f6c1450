// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace kerf {

// A function of an autograd graph, and what holds it: PyTorch 2.11 has shared_ptr, later ones
// intrusive_ptr.
using AutogradFunction = torch::autograd::Node;
using AutogradFunctionPtr = decltype(torch::autograd::Edge::function);

// `Pointer` is a parameter so that the other branch is not looked at.
template <class Made, class Pointer = AutogradFunctionPtr, class... Args>
Pointer make_autograd_function(Args&&... args) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<AutogradFunction>>) {
    return Pointer(new Made(std::forward<Args>(args)...));
  } else {
    return c10::make_intrusive<Made>(std::forward<Args>(args)...);
  }
}

}  // namespace kerf
