// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "kerf/base/units.h"
#include "kerf/libtorch/torch_run.h"

namespace kerf {

// The host's caches before a pass over one block, as a step of a model that does not fit in them
// leaves them: weights were last used a step ago, memory for results holds something else, and what
// the block before has made is there, as far as it fits. A block that runs again and again finds
// everything there instead, and is up to 15 % faster (benchmarks/profile).
class ColdCaches {
 public:
  // Of so many bytes (`cache_bytes`, device/local_machine.h); 0: caches are left as they are.
  explicit ColdCaches(Bytes bytes);

  // Memory as large as the caches is read, then `made`, by the threads of the caller's operators.
  void prepare(std::span<const ParcelPtr> made) const;

 private:
  std::vector<char> others_;  // what takes the place of everything
};

}  // namespace kerf
