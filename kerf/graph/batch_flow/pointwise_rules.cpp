// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Operators that compute each element from the elements in its place.
#include "kerf/graph/batch_flow/carry.h"
#include "kerf/graph/batch_flow/rules.h"

namespace kerf {
namespace {

// Elements stay what they are; other tensors give a type or a device.
BatchState moving_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  if (!x || call.rank(*x) != call.rank(result)) return call.unknown("has arguments without a rule");
  return carry(call, {{*x, straight(call.rank(*x))}}, result, Moves::yes);
}

// prelu(x, weight): a weight a channel, the same for all samples.
BatchState prelu_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  const auto weight = call.tensor(1, "weight");
  if (!x || !weight) return call.unknown("has arguments without a rule");
  std::vector<int> to = straight(call.rank(*x));
  if (to.size() > 1) to[1] = kNotFollowed;
  return carry(call, {{*x, to}, {*weight, {}}}, result);
}

// where(condition) alone lists the places, and has no fixed size.
BatchState where_rule(const Call& call, ValueId result, std::size_t position) {
  if (call.node().args.size() < 3) return call.unknown("finds positions by the values of samples");
  return pointwise_rule(call, result, position);
}

// add(arange(B), 0), as masks are made, leaves the numbers of the samples as they are.
BatchState add_rule(const Call& call, ValueId result, std::size_t position) {
  const auto other = call.integer(1, "other");
  const bool scaled = call.argument(2, "alpha") != nullptr;
  if (other && *other == 0 && !scaled) return moving_rule(call, result, position);
  return pointwise_rule(call, result, position);
}

}  // namespace

BatchState pointwise_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  std::vector<Operand> operands;
  for (const NamedArgument& argument : call.node().args) {
    if (argument.value.find<Argument::List>() != nullptr) {
      bool tensors = false;
      for_each_value(argument.value, [&](ValueId) { tensors = true; });
      if (tensors) return call.unknown("takes lists of tensors");
    }
    const auto* id = argument.value.find<ValueId>();
    if (id == nullptr) continue;
    if (call.rank(*id) > call.rank(result)) return call.unknown("gives fewer dimensions");
    operands.push_back({*id, aligned(call.rank(*id), call.rank(result))});
  }
  return carry(call, operands, result);
}

void add_pointwise_rules(BatchRules& rules) {
  rules.add({"to",           "_to_copy",    "clone",      "contiguous",
             "detach",       "alias",       "lift_fresh", "lift_fresh_copy",
             "type_as",      "float",       "half",       "double",
             "long",         "int",         "bool",       "positive",
             "resolve_conj", "resolve_neg", "lift",       "cpu",
             "cuda",         "detach_copy", "alias_copy", "_conj_physical",
             "cast"},
            moving_rule);
  rules.add({"add"}, add_rule);
  rules.add({"where"}, where_rule);
  rules.add({"prelu", "_prelu_kernel"}, prelu_rule);
  rules.add({"sub",
             "rsub",
             "subtract",
             "mul",
             "multiply",
             "div",
             "divide",
             "true_divide",
             "floor_divide",
             "remainder",
             "fmod",
             "pow",
             "float_power",
             "maximum",
             "minimum",
             "fmax",
             "fmin",
             "atan2",
             "arctan2",
             "hypot",
             "copysign",
             "xlogy",
             "special_xlog1py",
             "lerp",
             "addcmul",
             "addcdiv",
             "logaddexp",
             "logaddexp2",
             "nextafter",
             "heaviside",
             "ldexp",
             "gcd",
             "lcm",
             "complex",
             "polar",
             "zeta"},
            pointwise_rule);
  rules.add({"eq",
             "ne",
             "lt",
             "le",
             "gt",
             "ge",
             "not_equal",
             "less",
             "less_equal",
             "greater",
             "greater_equal",
             "isclose",
             "logical_and",
             "logical_or",
             "logical_xor",
             "logical_not",
             "bitwise_and",
             "bitwise_or",
             "bitwise_xor",
             "bitwise_not",
             "bitwise_left_shift",
             "bitwise_right_shift",
             "__and__",
             "__or__",
             "__xor__",
             "__lshift__",
             "__rshift__",
             "__iand__",
             "__ior__",
             "__ixor__",
             "isnan",
             "isinf",
             "isfinite",
             "isposinf",
             "isneginf",
             "isreal"},
            pointwise_rule);
  rules.add({"abs",   "absolute",      "neg",         "negative",      "sign",
             "sgn",   "signbit",       "exp",         "exp2",          "expm1",
             "log",   "log2",          "log10",       "log1p",         "sqrt",
             "rsqrt", "square",        "sin",         "cos",           "tan",
             "asin",  "acos",          "atan",        "sinh",          "cosh",
             "tanh",  "asinh",         "acosh",       "atanh",         "erf",
             "erfc",  "erfinv",        "sigmoid",     "logit",         "floor",
             "ceil",  "round",         "trunc",       "frac",          "fix",
             "angle", "real",          "imag",        "conj",          "lgamma",
             "sinc",  "rad2deg",       "deg2rad",     "arcsin",        "arccos",
             "i0",    "digamma",       "arctan",      "reciprocal",    "nan_to_num",
             "_conj", "special_expit", "special_erf", "special_expm1", "special_log1p"},
            pointwise_rule);
  rules.add({"relu",        "relu6",      "gelu",       "silu",     "mish",        "elu",
             "selu",        "celu",       "leaky_relu", "hardtanh", "hardsigmoid", "hardswish",
             "hardshrink",  "softshrink", "softplus",   "softsign", "threshold",   "log_sigmoid",
             "rrelu",       "tanhshrink", "clamp",      "clip",     "clamp_min",   "clamp_max",
             "masked_fill", "copy",       "fill",       "zero"},
            pointwise_rule);
  // Random: each element draws for itself.
  rules.add({"dropout", "native_dropout", "alpha_dropout", "feature_dropout",
             "feature_alpha_dropout", "bernoulli", "uniform", "normal", "exponential"},
            pointwise_rule);
}

}  // namespace kerf
