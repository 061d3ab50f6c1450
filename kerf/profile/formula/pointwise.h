// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Operators that take every output element from the same elements of their inputs.
#pragma once

#include "kerf/profile/formula/table.h"

namespace kerf::formula {

template <int Flops>
std::optional<OpCost> per_output(const Call& call) {
  return OpCost{Unit::vector, Flops * call.output_elements(), 0, call.touched()};
}

template <int Flops>
std::optional<OpCost> per_input(const Call& call) {
  return OpCost{Unit::vector, Flops * call.input_elements(), 0, call.touched()};
}

// Of each input: reads the output's gradient and `Kept` tensors of the output's size, computes
// `Flops` an element, writes the gradient; sums it up where the input was broadcast.
void add_derivative(Backward& backward, ValueId input, double flops, Bytes kept);

template <int Flops, int Kept>
void derivative(Backward& backward) {
  for (const ValueId input : backward.wanted()) {
    add_derivative(backward, input, Flops, backward.call().output_bytes() * Kept);
  }
}

// Of each input: `Passes` times its own bytes, and the output's once; `Flops` for each of its
// elements.
template <int Flops, int Passes>
void of_each_input(Backward& backward) {
  const Call& call = backward.call();
  for (const ValueId input : backward.wanted()) {
    backward.add(input, Flops * call.elements(input),
                 call.bytes(input) * Passes + call.output_bytes());
  }
}

}  // namespace kerf::formula
