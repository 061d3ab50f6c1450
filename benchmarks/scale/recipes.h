// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// One function a family. families.cpp holds the table of them.
#pragma once

#include <algorithm>

#include "benchmarks/scale/model_builder.h"

namespace kerf::families {

struct Size {
  std::size_t nodes;
  std::uint64_t seed;
  double noise;
};

// How many equal parts of `each` nodes come nearest to `nodes`; at least one.
inline std::size_t num_parts(std::size_t nodes, std::size_t ends, std::size_t each) {
  const std::size_t rest = nodes > ends ? nodes - ends : 0;
  return std::max<std::size_t>(1, (rest + each / 2) / each);
}

Model make_chain(const Size& size);
Model make_transformer(const Size& size);
Model make_encoder_decoder(const Size& size);
Model make_unet(const Size& size);
Model make_inception(const Size& size);
Model make_mixture_of_experts(const Size& size);
Model make_random(const Size& size);
Model make_t5(const Size& size);
Model make_t5_3b(const Size& size);
Model make_tile(const Size& size);

}  // namespace kerf::families
