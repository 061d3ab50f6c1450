// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/cost_options.h"

#include <fmt/format.h>

namespace kerf::cli {

std::string unknown_ops_text(const Profile& profile) {
  std::string out;
  for (const UnknownOp& op : profile.unknown_ops) {
    out += fmt::format(
        "kerf: no formula for {} ({} times): costed by the bytes it moves, {:.1f} % of "
        "the time\n",
        op.op, op.count, op.share * 100);
  }
  return out;
}

}  // namespace kerf::cli
