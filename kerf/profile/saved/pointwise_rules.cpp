// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Element by element: the derivative of f(x) in terms of x, or of f(x) where that is simpler.
#include "kerf/profile/saved/rules.h"

namespace kerf {
namespace {

void of_input(SavedCall& call) { call.keep_before(call.tensor(0, "self")); }

void of_result(SavedCall& call) { call.keep(call.result()); }

// Whose in-place form has no derivative.
void of_input_out_of_place(SavedCall& call) {
  if (!call.in_place()) call.keep(call.tensor(0, "self"));
}

// The second operand gives signs alone.
void magnitude(SavedCall& call) {
  if (call.needs(call.tensor(0, "self"))) of_input(call);
  of_result(call);
}

// In place, the input is gone and the result says as much.
void of_input_or_result(SavedCall& call) {
  call.keep(call.in_place() ? call.result() : call.tensor(0, "self"));
}

// Bounds that are tensors are compared again.
void bounded(SavedCall& call) {
  of_input(call);
  call.keep(call.tensor(1, "min"));
  call.keep(call.tensor(2, "max"));
}

void bounded_above(SavedCall& call) {
  of_input(call);
  call.keep(call.tensor(1, "max"));
}

// Factors that are plain numbers are no tensors.
void product(SavedCall& call) {
  const ValueId a = call.tensor(0, "self");
  const ValueId b = call.tensor(1, "other");
  if (call.needs(a)) call.keep(b);
  if (call.needs(b)) call.keep_before(a);
}

void quotient(SavedCall& call) {
  const ValueId divisor = call.tensor(1, "other");
  call.keep(divisor);
  if (call.needs(divisor)) call.keep_before(call.tensor(0, "self"));
}

void power(SavedCall& call) {
  const ValueId base = call.tensor(0, "self");
  const ValueId exponent = call.tensor(1, "exponent");
  if (base.valid()) call.keep_before(base);
  if (exponent.valid()) call.keep(exponent);
  if (exponent.valid()) call.keep(call.result());
}

// The host's kernel keeps exp(-|x|) too.
void log_sigmoid(SavedCall& call) {
  const ValueId x = call.tensor(0, "self");
  call.keep(x);
  if (!call.on_accelerator()) call.keep_copy(x);
}

void input_and_weight(SavedCall& call) {
  call.keep(call.tensor(0, "self"));
  call.keep(call.tensor(1, "weight"));
}

void both_operands(SavedCall& call) {
  call.keep_before(call.tensor(0, "self"));
  call.keep(call.tensor(1, "other"));
}

void of_second(SavedCall& call) { call.keep(call.tensor(1, "self")); }

// Real numbers become complex ones: it is kept what they were.
void complex_number(SavedCall& call) {
  const ValueId real = call.tensor(0, "real");
  const ValueId imaginary = call.tensor(1, "imag");
  if (call.needs(real)) call.keep(real);
  if (call.needs(imaginary)) call.keep(imaginary);
}

void hypotenuse(SavedCall& call) {
  const ValueId a = call.tensor(0, "self");
  const ValueId b = call.tensor(1, "other");
  if (call.needs(a)) call.keep_before(a);
  if (call.needs(b)) call.keep(b);
  call.keep(call.result());
}

// What is divided gets the gradient as it is.
void remainder(SavedCall& call) {
  const ValueId divisor = call.tensor(1, "other");
  if (!call.needs(divisor)) return;
  call.keep_before(call.tensor(0, "self"));
  call.keep(divisor);
}

// y = a + value * b * c
void product_added(SavedCall& call) {
  const ValueId b = call.tensor(1, "tensor1");
  const ValueId c = call.tensor(2, "tensor2");
  if (call.needs(b)) call.keep(c);
  if (call.needs(c)) call.keep(b);
}

void quotient_added(SavedCall& call) {
  const ValueId b = call.tensor(1, "tensor1");
  const ValueId c = call.tensor(2, "tensor2");
  call.keep(c);
  if (call.needs(c)) call.keep(b);
}

void lerp(SavedCall& call) {
  const ValueId weight = call.tensor(2, "weight");
  call.keep(weight);
  if (!call.needs(weight)) return;
  call.keep_before(call.tensor(0, "self"));
  call.keep(call.tensor(1, "end"));
}

// On an accelerator one kernel gives the result and which elements it kept, a byte each. On the
// host the input is multiplied by a tensor of zeros and factors.
void dropout(SavedCall& call) {
  const ValueId x = call.tensor(0, "input");
  const double p = call.number(1, "p", 0.5);
  if (p == 0 || !call.flag(2, "train", true) || call.numel(x) == 0) return;
  if (p == 1) return call.keep_own(1, call.value(x).dtype);  // the input times a zero
  if (call.on_accelerator() && !call.in_place()) {
    call.keep_own(call.numel(x), DType::boolean);
  } else {
    call.keep_copy(x);
  }
}

// The first result, and which elements were kept.
void native_dropout(SavedCall& call) { call.keep(call.result(1)); }

void where(SavedCall& call) { call.keep(call.tensor(0, "condition")); }

void mask(SavedCall& call) { call.keep(call.tensor(1, "mask")); }

void softmax(SavedCall& call) { call.keep(call.result()); }

}  // namespace

void add_saved_pointwise_rules(SavedRules& rules) {
  rules.add({"abs",          "acos",
             "angle",        "asin",
             "atan",         "cos",
             "cosh",         "digamma",
             "erf",          "erfc",
             "erfinv",       "gelu",
             "glu",          "hardshrink",
             "hardsigmoid",  "hardswish",
             "hardtanh",     "i0",
             "mvlgamma",     "lgamma",
             "log",          "log10",
             "log1p",        "log2",
             "logit",        "mish",
             "nan_to_num",   "relu6",
             "silu",         "sin",
             "sinc",         "sinh",
             "softplus",     "softshrink",
             "special_entr", "square",
             "threshold",    "threshold_backward"},
            of_input);
  rules.add({"acosh", "asinh", "atanh"}, of_input_out_of_place);
  rules.add({"clamp", "clamp_min", "clip"}, bounded);
  rules.add({"clamp_max"}, bounded_above);
  rules.add({"exp", "exp2", "expm1", "polar", "reciprocal", "relu", "rsqrt", "sigmoid",
             "special_expit", "sqrt", "tan", "tanh"},
            of_result);
  rules.add({"celu", "leaky_relu", "elu", "selu"}, of_input_or_result);
  rules.add({"log_sigmoid"}, log_sigmoid);
  rules.add({"prelu", "_prelu_kernel"}, input_and_weight);
  rules.add({"mul", "multiply"}, product);
  rules.add({"div", "divide", "true_divide"}, quotient);
  rules.add({"pow"}, power);
  rules.add({"maximum", "minimum", "atan2", "fmax", "fmin", "xlogy", "special_xlog1py", "logaddexp",
             "logaddexp2"},
            both_operands);
  rules.add({"polygamma"}, of_second);
  rules.add({"copysign"}, magnitude);
  rules.add({"complex"}, complex_number);
  rules.add({"hypot"}, hypotenuse);
  rules.add({"remainder", "fmod"}, remainder);
  rules.add({"rrelu_with_noise"}, both_operands);
  rules.add({"addcmul"}, product_added);
  rules.add({"addcdiv"}, quotient_added);
  rules.add({"lerp"}, lerp);
  rules.add({"dropout"}, dropout);
  rules.add({"native_dropout"}, native_dropout);
  rules.add({"where"}, where);
  rules.add({"masked_fill"}, mask);
  rules.add({"softmax", "log_softmax", "_softmax", "_log_softmax", "_safe_softmax"}, softmax);
}

}  // namespace kerf
