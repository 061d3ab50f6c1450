// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic, comparisons, choices: a few operations an element.
#include "kerf/profile/formula/pointwise.h"

namespace kerf::formula {

void add_derivative(Backward& backward, ValueId input, double flops, Bytes kept) {
  const Call& call = backward.call();
  const double elements = call.output_elements();
  backward.add(input, flops * elements, call.output_bytes() * 2 + kept);
  backward.sum_to(input, elements);
}

namespace {

// The derivative is one: broadcasts are summed up, and nothing else is done.
void of_sum(Backward& backward) {
  for (const ValueId input : backward.wanted()) {
    backward.sum_to(input, backward.call().output_elements());
  }
}

// What is subtracted gets the negative.
template <std::size_t Negative>
void of_difference(Backward& backward) {
  const ValueId negative = backward.call().tensor(Negative);
  for (const ValueId input : backward.wanted()) {
    if (input == negative) {
      add_derivative(backward, input, 1, Bytes{0});
    } else {
      backward.sum_to(input, backward.call().output_elements());
    }
  }
}

Bytes other_bytes(const Call& call, ValueId input) {
  Bytes sum;
  for (const ValueId other : call.inputs()) {
    if (call.is_tensor(other) && other != input) sum += call.bytes(other);
  }
  return sum;
}

// Each factor's gradient reads the other one.
void of_product(Backward& backward) {
  for (const ValueId input : backward.wanted()) {
    add_derivative(backward, input, 1, other_bytes(backward.call(), input));
  }
}

// (a / b)' = 1 / b and -a / b / b.
void of_quotient(Backward& backward) {
  const Call& call = backward.call();
  const ValueId divisor = call.tensor(1);
  for (const ValueId input : backward.wanted()) {
    const bool below = input == divisor;
    add_derivative(backward, input, below ? 3 : 1,
                   other_bytes(call, input) + (below ? call.bytes(input) : Bytes{0}));
  }
}

// A mask of one byte an element says which of the output's gradients pass.
void masked(Backward& backward) {
  for (const ValueId input : backward.wanted()) {
    const auto mask = static_cast<std::int64_t>(backward.call().output_elements());
    add_derivative(backward, input, 1, Bytes{mask});
  }
}

// A step function: zeros.
void flat(Backward& backward) {
  for (const ValueId input : backward.wanted()) {
    backward.add(input, 0, backward.call().bytes(input));
  }
}

}  // namespace

void add_pointwise(Table& table) {
  table.add({per_output<1>, of_sum}, {"add", "positive", "remainder", "fmod"});
  table.add({per_output<1>, of_difference<1>}, {"sub", "subtract"});
  table.add({per_output<1>, of_difference<0>}, {"rsub"});
  table.add({per_output<1>, of_product}, {"mul", "multiply"});
  table.add({per_output<1>, of_quotient}, {"div", "true_divide", "divide"});
  table.add({per_output<1>, derivative<1, 0>},
            {"neg", "conj", "resolve_conj", "resolve_neg", "conj_physical", "_conj", "complex",
             "frac", "deg2rad", "rad2deg"});
  table.add({per_output<1>, derivative<1, 1>},
            {"abs", "relu", "clamp", "clamp_min", "clamp_max", "threshold", "hardtanh", "relu6",
             "leaky_relu", "clip", "nan_to_num", "rrelu_with_noise", "hardshrink", "softshrink"});
  table.add({per_output<1>, derivative<2, 1>}, {"square", "reciprocal", "sgn", "copysign"});
  table.add({per_output<1>, derivative<2, 2>}, {"maximum", "minimum", "max_other", "fmax", "fmin"});
  table.add({per_output<1>, masked}, {"where", "masked_fill"});
  table.add({per_output<1>, flat}, {"eq",
                                    "ne",
                                    "lt",
                                    "le",
                                    "gt",
                                    "ge",
                                    "logical_and",
                                    "logical_or",
                                    "logical_not",
                                    "logical_xor",
                                    "bitwise_and",
                                    "bitwise_or",
                                    "bitwise_not",
                                    "bitwise_xor",
                                    "sign",
                                    "floor",
                                    "ceil",
                                    "round",
                                    "trunc",
                                    "isnan",
                                    "isinf",
                                    "isfinite",
                                    "floor_divide",
                                    "heaviside",
                                    "bitwise_left_shift",
                                    "bitwise_right_shift",
                                    "__and__",
                                    "__or__",
                                    "__xor__",
                                    "__lshift__",
                                    "__rshift__",
                                    "isin",
                                    "isposinf",
                                    "isneginf",
                                    "less",
                                    "greater",
                                    "greater_equal",
                                    "less_equal",
                                    "not_equal",
                                    "one_hot",
                                    "signbit"});
  table.add({per_output<2>, derivative<2, 2>}, {"addcmul", "addcdiv", "lerp"});
  table.add({per_output<2>, derivative<2, 1>},
            {"hardsigmoid", "hardswish", "prelu", "_prelu_kernel"});
  table.add({per_output<2>, masked},
            {"dropout", "native_dropout", "feature_dropout", "alpha_dropout"});
  table.add({per_output<2>, flat},
            {"bernoulli", "rand", "randn", "randint", "rand_like", "randn_like", "uniform",
             "normal", "randperm", "randint_like", "multinomial", "exponential"});
}

}  // namespace kerf::formula
