// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/metis/kway.h"

#ifdef KERF_WITH_METIS
#include <metis.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <mutex>
#endif

namespace kerf::place {

#ifdef KERF_WITH_METIS

bool has_metis() { return true; }

namespace {

// METIS says on standard output what it thinks of small halves ("***Cannot bisect a graph with 0
// vertices!"), and nothing turns that off. It prints through C's `stdout`, a variable of glibc's,
// which points elsewhere while it runs; the descriptor, Python's own output and C++ streams, which
// took the stream when they were made, are not touched.
class SilentStdout {
 public:
#ifdef __GLIBC__
  SilentStdout() {
    static std::FILE* const nowhere = std::fopen("/dev/null", "w");
    if (nowhere == nullptr) return;
    shown_ = stdout;
    stdout = nowhere;
  }
  ~SilentStdout() {
    if (shown_ != nullptr) stdout = shown_;
  }
  SilentStdout(const SilentStdout&) = delete;
  SilentStdout& operator=(const SilentStdout&) = delete;

 private:
  std::FILE* shown_ = nullptr;
#endif
};

}  // namespace

std::vector<SlotId> metis_kway(const KwayGraph& graph, const KwayOptions& options) {
  auto vertices = static_cast<idx_t>(graph.vertex_weights.size());
  if (vertices == 0) return {};
  if (options.parts < 2) return std::vector<SlotId>(graph.vertex_weights.size(), SlotId{0});
  idx_t settings[METIS_NOPTIONS];
  METIS_SetDefaultOptions(settings);
  settings[METIS_OPTION_SEED] = static_cast<idx_t>(options.seed % 1'000'003);
  settings[METIS_OPTION_UFACTOR] =
      std::max<idx_t>(1, static_cast<idx_t>(std::lround(options.imbalance * 1000)));
  settings[METIS_OPTION_NUMBERING] = 0;
  std::vector<idx_t> first(graph.first.begin(), graph.first.end());
  std::vector<idx_t> neighbours(graph.neighbours.begin(), graph.neighbours.end());
  std::vector<idx_t> edge_weights(graph.edge_weights.begin(), graph.edge_weights.end());
  std::vector<idx_t> vertex_weights(graph.vertex_weights.begin(), graph.vertex_weights.end());
  std::vector<real_t> shares(options.shares.begin(), options.shares.end());
  std::vector<idx_t> part(graph.vertex_weights.size());
  idx_t constraints = 1;
  idx_t parts = options.parts;
  idx_t cut = 0;
  static std::mutex one_at_a_time;
  const std::scoped_lock lock(one_at_a_time);
  const SilentStdout silent;
  const int status = METIS_PartGraphKway(&vertices, &constraints, first.data(), neighbours.data(),
                                         vertex_weights.data(), nullptr, edge_weights.data(),
                                         &parts, shares.empty() ? nullptr : shares.data(), nullptr,
                                         settings, &cut, part.data());
  if (status != METIS_OK) return {};
  return {part.begin(), part.end()};
}

#else

bool has_metis() { return false; }

std::vector<SlotId> metis_kway(const KwayGraph& /*graph*/, const KwayOptions& /*options*/) {
  return {};
}

#endif

}  // namespace kerf::place
