// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/verify/violation.h"

#include <algorithm>

#include "kerf/base/error.h"

namespace kerf {

std::string list_violations(const std::vector<Violation>& violations) {
  constexpr std::size_t kMostShown = 5;
  std::string shown;
  for (std::size_t i = 0; i < std::min(violations.size(), kMostShown); ++i) {
    shown += fmt::format("{}{}: {}", i == 0 ? "" : "; ", violations[i].rule, violations[i].message);
  }
  if (violations.size() > kMostShown) {
    shown += fmt::format("; and {} more", violations.size() - kMostShown);
  }
  return fmt::format("{} ({})",
                     violations.size() == 1 ? "a rule" : fmt::format("{} rules", violations.size()),
                     shown);
}

void refuse_violations(const std::vector<Violation>& violations) {
  if (violations.empty()) return;
  throw Error(ErrorKind::invalid_plan,
              fmt::format("[verify.plan] the plan breaks {}; expected none; plan again",
                          list_violations(violations)));
}

}  // namespace kerf
