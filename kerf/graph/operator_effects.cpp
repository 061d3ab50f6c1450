// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/operator_effects.h"

#include <algorithm>
#include <array>

namespace kerf {
namespace {

// Normalisations update their running statistics without saying so.
constexpr std::array<std::string_view, 2> kStatistics = {"running_mean", "running_var"};
constexpr HiddenWrites kInTraining = {"training", kStatistics};
constexpr HiddenWrites kWithInputStats = {"use_input_stats", kStatistics};

struct HiddenRow {
  std::string_view packet;
  HiddenWrites writes;
};
constexpr HiddenRow kHiddenWrites[] = {
    {"aten.batch_norm", kInTraining},
    {"aten.native_batch_norm", kInTraining},
    {"aten.cudnn_batch_norm", kInTraining},
    {"aten.miopen_batch_norm", kInTraining},
    {"aten._batch_norm_impl_index", kInTraining},
    {"aten.instance_norm", kWithInputStats},
};

constexpr std::string_view kDropouts[] = {
    "aten.dropout",
    "aten.dropout_",
    "aten.feature_dropout",
    "aten.feature_dropout_",
    "aten.alpha_dropout",
    "aten.alpha_dropout_",
    "aten.feature_alpha_dropout",
    "aten.feature_alpha_dropout_",
};

// They give back their argument where there is nothing to do, as schemas do not tell.
constexpr std::string_view kShareFirst[] = {
    "aten._unsafe_view",
    "aten.sum_to_size",
    "aten.to_dense",
    "aten.type_as",
    "_c10d_functional.wait_tensor",
};
constexpr std::string_view kShareAny[] = {
    "aten.atleast_1d",     "aten.atleast_2d",   "aten.atleast_3d", "aten.broadcast_tensors",
    "aten.cartesian_prod", "aten.combinations", "aten.einsum",     "aten.meshgrid",
};

// Operators that may be the identity in a trace and are not always: squeeze depends on the batch
// being one, contiguous on strides that kernels choose, the others carry a flag that shape and
// strides do not show.
constexpr std::string_view kNeverIdentity[] = {
    "aten.squeeze", "aten.contiguous", "aten._conj", "aten._neg_view", "aten.conj", "aten.adjoint",
};

// Views of any memory, and what gives back its argument as dtypes and shapes ask for: strides have
// no part in it. What is not here may copy.
constexpr std::string_view kSharesOnAnyStrides[] = {
    "aten._conj",
    "aten._neg_view",
    "aten._reshape_alias",
    "aten._unsafe_view",
    "aten.adjoint",
    "aten.alias",
    "aten.as_strided",
    "aten.atleast_1d",
    "aten.atleast_2d",
    "aten.atleast_3d",
    "aten.broadcast_tensors",
    "aten.broadcast_to",
    "aten.chunk",
    "aten.conj",
    "aten.detach",
    "aten.diagonal",
    "aten.dropout",
    "aten.dsplit",
    "aten.expand",
    "aten.expand_as",
    "aten.hsplit",
    "aten.imag",
    "aten.lift_fresh",
    "aten.mH",
    "aten.mT",
    "aten.matrix_H",
    "aten.meshgrid",
    "aten.moveaxis",
    "aten.movedim",
    "aten.narrow",
    "aten.numpy_T",
    "aten.permute",
    "aten.positive",
    "aten.real",
    "aten.resolve_conj",
    "aten.resolve_neg",
    "aten.select",
    "aten.slice",
    "aten.split",
    "aten.split_with_sizes",
    "aten.squeeze",
    "aten.swapaxes",
    "aten.swapdims",
    "aten.t",
    "aten.tensor_split",
    "aten.transpose",
    "aten.type_as",
    "aten.unbind",
    "aten.unflatten",
    "aten.unfold",
    "aten.unsqueeze",
    "aten.view",
    "aten.view_as",
    "aten.view_as_complex",
    "aten.view_as_real",
    "aten.vsplit",
};

// Row by row, or in the format they are told, whatever the strides of their arguments.
constexpr std::string_view kLaidOutByRows[] = {
    "aten.addmm",     "aten.baddbmm", "aten.bmm", "aten.contiguous",
    "aten.embedding", "aten.linear",  "aten.mm",
};

template <std::size_t N>
bool is_in(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool is_false(const Argument* argument) {
  const auto* const flag = argument == nullptr ? nullptr : argument->find<bool>();
  return flag != nullptr && !*flag;
}

bool is_true(const Argument* argument) {
  const auto* const flag = argument == nullptr ? nullptr : argument->find<bool>();
  return flag != nullptr && *flag;
}

bool is_zero(const Argument* argument) {
  if (argument == nullptr) return false;
  if (const auto* const number = argument->find<double>()) return *number == 0;
  const auto* const whole = argument->find<Expr>();
  return whole != nullptr && *whole == Expr(0);
}

void add_values(const Argument* argument, std::vector<ValueId>& out) {
  if (argument == nullptr) return;
  for_each_value(*argument, [&](ValueId id) { out.push_back(id); });
}

template <class Wanted>
std::vector<ValueId> values_of(const Operator& op, const Node& call, Wanted wanted) {
  std::vector<ValueId> out;
  for (const Parameter& parameter : op.parameters) {
    if (wanted(parameter)) add_values(find_given(op, call, parameter.name), out);
  }
  return out;
}

// Is the memory format left as it is? Another one makes a copy on some strides and none on others.
bool keeps_format(const Argument* format) {
  if (format == nullptr || format->is_none()) return true;
  const auto* const name = format->find<EnumName>();
  return name != nullptr && name->name == "preserve";
}

// May results lie in the memory of the first argument, and in no other?
bool aliases_first_only(const Operator& op) {
  if (op.parameters.empty() || !op.parameters[0].aliased) return false;
  return std::none_of(op.parameters.begin() + 1, op.parameters.end(),
                      [](const Parameter& parameter) { return parameter.aliased; });
}

}  // namespace

const HiddenWrites* find_hidden_writes(std::string_view packet) {
  for (const HiddenRow& row : kHiddenWrites) {
    if (row.packet == packet) return &row.writes;
  }
  return nullptr;
}

HiddenSharing hidden_sharing(std::string_view packet) {
  if (is_in(kShareAny, packet)) return HiddenSharing::any;
  return is_in(kShareFirst, packet) || is_in(kDropouts, packet) ? HiddenSharing::first
                                                                : HiddenSharing::none;
}

std::vector<ValueId> written_values(const Operator& op, const Node& call) {
  std::vector<ValueId> out = values_of(op, call, [](const Parameter& p) { return p.written; });
  const HiddenWrites* const hidden = find_hidden_writes(op.packet());
  if (hidden != nullptr && is_true(find_bound(op, call, hidden->flag))) {
    for (const std::string_view name : hidden->parameters) {
      add_values(find_given(op, call, name), out);
    }
  }
  return out;
}

std::vector<ValueId> aliased_values(const Operator& op, const Node& call) {
  return values_of(op, call, [](const Parameter& p) { return p.aliased; });
}

bool draws_numbers(const Operator& op, const Node& call) {
  if (!op.draws) return false;
  const auto bound = [&](std::string_view parameter) { return find_bound(op, call, parameter); };
  if (is_false(bound("train")) || is_false(bound("training"))) return false;
  if (is_in(kDropouts, op.packet())) return !is_zero(bound("p"));
  // Attention has the one, recurrent networks have the other.
  return !is_zero(bound("dropout_p")) && !is_zero(bound("dropout"));
}

bool gives_back_first(const Operator& op, const Node& call) {
  if (!is_in(kDropouts, op.packet())) return false;
  // With p = 0 the other dropouts still make a copy.
  return is_false(find_bound(op, call, "train")) ||
         (op.packet() == "aten.dropout" && is_zero(find_bound(op, call, "p")));
}

bool may_copy_on_some_strides(const Node& call) {
  const std::string_view packet = packet_of(call.op);
  if (is_in(kSharesOnAnyStrides, packet)) return false;
  if (packet != "aten.to") return true;
  return std::any_of(call.args.begin(), call.args.end(), [](const NamedArgument& given) {
    const auto* const format = given.value.find<EnumName>();
    return format != nullptr && format->type == "memory_format" && format->name != "preserve";
  });
}

bool lays_out_by_rows(const Node& call) { return is_in(kLaidOutByRows, packet_of(call.op)); }

bool may_give_back_first(const Operator& op, const Node& call) {
  if (!op.one_tensor || is_in(kNeverIdentity, op.packet())) return false;
  if (!keeps_format(find_bound(op, call, "memory_format"))) return false;
  if (op.packet() == "aten.detach_") return true;
  return aliases_first_only(op) && std::none_of(op.parameters.begin(), op.parameters.end(),
                                                [](const Parameter& p) { return p.written; });
}

}  // namespace kerf
