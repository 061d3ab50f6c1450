// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/replay.h"

#include <algorithm>

namespace kerf {

std::vector<Nanoseconds> replay(std::span<const IssueTimes> nodes) {
  std::vector<Nanoseconds> added;
  added.reserve(nodes.size());
  Nanoseconds issued;  // when the host is done with the nodes so far
  Nanoseconds done;    // when the device is
  for (const IssueTimes& node : nodes) {
    issued += node.issue;
    const Nanoseconds end = std::max(done, issued) + node.device;
    added.push_back(end - done);
    done = end;
  }
  return added;
}

}  // namespace kerf
