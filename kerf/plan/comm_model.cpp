// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/comm_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kerf/base/error.h"

namespace kerf {
namespace {

constexpr CommModel kModels[] = {CommModel::link, CommModel::host_staged, CommModel::overlapped};

}  // namespace

std::string_view to_string(CommModel model) {
  switch (model) {
    case CommModel::link: return "link";
    case CommModel::host_staged: return "host_staged";
    case CommModel::overlapped: return "overlapped";
  }
  return "unknown";
}

CommModel parse_comm_model(std::string_view name) {
  for (const CommModel model : kModels) {
    if (to_string(model) == name) return model;
  }
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[plan.comm_model] unknown communication model '{}'; expected one of {}",
                          name, fmt::join(comm_model_names(), ", ")));
}

std::vector<std::string> comm_model_names() {
  std::vector<std::string> names;
  for (const CommModel model : kModels) names.emplace_back(to_string(model));
  return names;
}

}  // namespace kerf
