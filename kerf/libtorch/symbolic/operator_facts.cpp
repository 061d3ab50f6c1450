// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/symbolic/operator_facts.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "kerf/profile/estimate.h"
#include "kerf/profile/saved/saved.h"

namespace kerf {
namespace {

// "aten::add_" and "Tensor" are "aten.add_.Tensor".
std::string dotted(const c10::OperatorName& name) {
  std::string out = name.name;
  if (const std::size_t colons = out.find("::"); colons != std::string::npos) {
    out.replace(colons, 2, ".");
  }
  return out + "." + (name.overload_name.empty() ? "default" : name.overload_name);
}

bool is_shared(const c10::AliasInfo* info, const c10::FunctionSchema& schema) {
  if (info == nullptr) return false;
  const auto meets = [&](const c10::Argument& result) {
    if (result.alias_info() == nullptr) return false;
    const auto& letters = result.alias_info()->beforeSets();
    return std::any_of(info->beforeSets().begin(), info->beforeSets().end(),
                       [&](const c10::Symbol& letter) { return letters.count(letter) > 0; });
  };
  return std::any_of(schema.returns().begin(), schema.returns().end(), meets);
}

bool is_list(const c10::FunctionSchema& schema) {
  return schema.returns()[0].type()->castRaw<c10::ListType>() != nullptr;
}

OperatorFacts make_facts(const c10::OperatorName& name) {
  OperatorFacts facts;
  facts.op.name = dotted(name);
  const auto handle = c10::Dispatcher::singleton().findSchema(name);
  if (!handle) return facts;
  const c10::FunctionSchema& schema = handle->schema();
  for (const c10::Argument& argument : schema.arguments()) {
    const c10::AliasInfo* const info = argument.alias_info();
    Parameter parameter;
    parameter.name = argument.name();
    parameter.written = info != nullptr && info->isWrite();
    parameter.aliased = is_shared(info, schema);
    facts.forms.push_back(form_of(argument));
    if (argument.default_value()) {
      parameter.preset = to_argument(*argument.default_value(), facts.forms.back(),
                                     [](const at::Tensor&) { return ValueId{}; });
    }
    facts.op.parameters.push_back(std::move(parameter));
    facts.by_keyword.push_back(argument.kwarg_only());
  }
  facts.op.draws = handle->hasTag(at::Tag::nondeterministic_seeded);
  facts.op.one_tensor = schema.returns().size() == 1 && !is_list(schema);
  // The tables know einsum of two operands without an ellipsis; what it calls is always known.
  const bool is_einsum = facts.op.name == "aten.einsum.default";
  const bool is_known = has_formula(facts.op.name) && has_saved_rule(facts.op.name) && !is_einsum;
  facts.look_inside =
      !is_known && handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  return facts;
}

}  // namespace

const OperatorFacts& facts_of(const c10::OperatorName& name) {
  static std::mutex mutex;
  static auto& known = *new std::unordered_map<c10::OperatorName, std::unique_ptr<OperatorFacts>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<OperatorFacts>& facts = known[name];
  if (!facts) facts = std::make_unique<OperatorFacts>(make_facts(name));
  return *facts;
}

}  // namespace kerf
