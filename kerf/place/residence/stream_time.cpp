// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/residence/stream_time.h"

#include <algorithm>

#include "kerf/base/error.h"

namespace kerf {
namespace {

constexpr int kCalls = 8;  // the first half finds empty slots, or fills them

// The two things that work: the link, and whoever computes.
class StreamClock {
 public:
  StreamClock(const ResidenceProblem& problem, const Residences& residences)
      : problem_(problem), residences_(residences), released_(residences.slots) {}

  // Returns when the call's last unit is done.
  Nanoseconds call() {
    for (std::size_t u = 0; u < problem_.units.size(); ++u) use(u);
    return computed_;
  }

 private:
  void use(std::size_t u) {
    const StreamUnit& unit = problem_.units[u];
    if (residences_.of[u] == Residence::host) return void(computed_ += unit.host_time);
    if (residences_.of[u] != Residence::streamed) return void(computed_ += unit.device_time);
    Nanoseconds& slot = released_[next_slot_];
    copied_ = std::max(copied_, slot) + problem_.copy_time(unit.bytes);
    computed_ = std::max(computed_, copied_) + unit.device_time;
    slot = computed_;
    next_slot_ = (next_slot_ + 1) % released_.size();
  }

  const ResidenceProblem& problem_;
  const Residences& residences_;
  std::vector<Nanoseconds> released_;  // by slot: since when it may be written
  std::size_t next_slot_ = 0;
  Nanoseconds copied_;
  Nanoseconds computed_;
};

}  // namespace

Nanoseconds stream_time(const ResidenceProblem& problem, const Residences& residences) {
  Nanoseconds link;
  Nanoseconds computing;
  for (std::size_t u = 0; u < problem.units.size(); ++u) {
    const StreamUnit& unit = problem.units[u];
    const bool on_host = residences.of[u] == Residence::host;
    computing += on_host ? unit.host_time : unit.device_time;
    if (residences.of[u] == Residence::streamed) link += problem.copy_time(unit.bytes);
  }
  KERF_CHECK(link == Nanoseconds{} || residences.slots > 0, "streamed units need a slot");
  StreamClock clock(problem, residences);
  Nanoseconds middle;
  Nanoseconds end;
  for (int call = 0; call < kCalls; ++call) {
    if (call == kCalls / 2) middle = end;
    end = clock.call();
  }
  // In the long run neither the link nor whoever computes is ahead of its work.
  return std::max({(end - middle) / (kCalls / 2), link, computing});
}

}  // namespace kerf
