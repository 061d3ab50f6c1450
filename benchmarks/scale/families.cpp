// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/scale/families.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "benchmarks/scale/recipes.h"
#include "kerf/base/error.h"

namespace kerf::families {
namespace {

struct Family {
  std::string_view name;
  Model (*make)(const Size&);
};

constexpr Family kFamilies[] = {
    {"chain", make_chain},
    {"transformer", make_transformer},
    {"encoder_decoder", make_encoder_decoder},
    {"unet", make_unet},
    {"inception", make_inception},
    {"mixture_of_experts", make_mixture_of_experts},
    {"random", make_random},
    {"t5", make_t5},
    {"t5_3b", make_t5_3b},
    {"tile", make_tile},
};

}  // namespace

std::vector<std::string_view> names() {
  std::vector<std::string_view> out;
  for (const Family& family : kFamilies) out.push_back(family.name);
  return out;
}

Model make(std::string_view name, std::size_t nodes, std::uint64_t seed, double noise) {
  if (nodes == 0) {
    throw Error(ErrorKind::invalid_argument,
                "[families.make] 0 nodes; expected at least 1; ask for some");
  }
  if (!(noise >= 0 && noise < 1)) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[families.make] noise {}; expected a fraction from 0 to below 1; "
                            "0.05 is 5 %",
                            noise));
  }
  for (const Family& family : kFamilies) {
    if (family.name == name) return family.make({nodes, seed, noise});
  }
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[families.make] unknown family '{}'; expected one of {}; choose one",
                          name, fmt::join(names(), ", ")));
}

}  // namespace kerf::families
