// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/portfolio/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kerf/base/error.h"
#include "kerf/place/acyclic/acyclic_split.h"
#include "kerf/place/binpack2d/binpack2d.h"
#include "kerf/place/metis/metis_split.h"
#include "kerf/place/mixed_pipe/mixed_pipe.h"
#include "kerf/place/mixed_pipe/one_stage_each.h"
#include "kerf/place/pipedream/pipedream.h"

namespace kerf::place {
namespace {

struct Family {
  std::string_view name;
  LoadAnswer (*solve)(const Instance&, const LoadOptions&);
  bool mixes;  // it may give a device several stages
};

LoadAnswer single_level(const Instance& instance, const LoadOptions& options) {
  return acyclic_split(instance, options, false);
}
LoadAnswer multilevel(const Instance& instance, const LoadOptions& options) {
  return acyclic_split(instance, options, true);
}

constexpr std::array kFamilies = {
    Family{"mixed_pipe", mixed_pipe, true}, Family{"multilevel", multilevel, false},
    Family{"acyclic", single_level, false}, Family{"metis", metis_split, true},
    Family{"pipedream", pipedream, false},  Family{"binpack2d", binpack2d, true},
};

const Family* find_family(std::string_view name) {
  const auto found = std::find_if(kFamilies.begin(), kFamilies.end(),
                                  [&](const Family& family) { return family.name == name; });
  return found == kFamilies.end() ? nullptr : &*found;
}

}  // namespace

std::vector<std::string_view> family_names() {
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) names.push_back(family.name);
  return names;
}

bool is_family(std::string_view name) { return find_family(name) != nullptr; }

bool family_mixes(std::string_view name) {
  const Family* family = find_family(name);
  return family != nullptr && family->mixes;
}

void check_family_options(std::string_view method, const LoadOptions& options) {
  const LoadOptions defaults;
  const auto refuse = [&](const std::string& found, std::string_view expected) {
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("[partition.plan] {} for method '{}'; expected {}", found, method, expected));
  };
  if (options.stages < 0) {
    refuse(fmt::format("{} stages", options.stages), "1 or more, or 0: found");
  }
  if (options.stages != 0 && method != "mixed_pipe") {
    refuse(fmt::format("{} stages", options.stages), "method mixed_pipe, or no number of stages");
  }
  const bool acyclic = method == "acyclic" || method == "multilevel";
  if (!(options.imbalance >= 0) || options.imbalance > 1e6) {
    refuse(fmt::format("an imbalance of {}", options.imbalance), "0 or more, such as 0.03");
  }
  if (!acyclic && options.minimise != defaults.minimise) {
    refuse("minimising edge_cut", "method acyclic or multilevel, or stage_time");
  }
  if (options.imbalance != defaults.imbalance &&
      (!acyclic || options.minimise != Minimise::edge_cut)) {
    refuse(fmt::format("an imbalance of {}", options.imbalance),
           "method acyclic or multilevel that minimises edge_cut");
  }
}

LoadAnswer plan_family(std::string_view name, const Instance& instance,
                       const LoadOptions& options) {
  const Family* family = find_family(name);
  KERF_CHECK(family != nullptr, "no such family");
  if (instance.num_tasks() == 0) return {};
  LoadAnswer answer = family->solve(instance, options);
  if (options.mixed || !family->mixes || answer.device.empty()) return answer;
  return one_stage_each(instance, answer.device, options);
}

}  // namespace kerf::place
