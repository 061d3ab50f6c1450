// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Which span makes and which keeps a storage. Private to simulate/spans.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/graph/span.h"
#include "kerf/profile/saved/saved.h"

namespace kerf {

// Static graphs only: sizes are numbers. All must outlive it. Linear time.
class SpanStorages {
 public:
  SpanStorages(const Graph& graph, const std::vector<Span>& spans, const SavedSets& sets);

  Bytes bytes(StorageId id) const { return Bytes{graph_.storage(id).bytes.constant()}; }
  // Does backward need it: S?
  bool is_kept(StorageId id) const { return first_keeper_[id.index()] != kNobody; }
  // By this span or one before it?
  bool is_kept_by(StorageId id, std::size_t span) const {
    return is_kept(id) && first_keeper_[id.index()] <= static_cast<std::int64_t>(span);
  }
  // What this span adds to all that backward needs.
  Bytes added(std::size_t span) const { return added_[span]; }
  // Storages of its outputs that no span had before.
  std::vector<StorageId> made_outputs(std::size_t span) const;

  // What the nodes of this span keep, each storage once, weights left out.
  struct Kept {
    Bytes inputs;  // made before
    Bytes inside;  // made here, no output of the span
  };
  Kept kept_by(std::size_t span) const;

  Bytes weight_bytes(std::size_t span, bool parameters) const;
  Bytes all_weight_bytes(bool parameters) const;
  Bytes input_bytes(std::size_t span) const;  // floating ones, weights left out

 private:
  static constexpr std::int64_t kNobody = -1;
  enum class Owner : std::uint8_t { nobody, parameter, buffer };

  void find_makers();
  void find_keepers();
  StorageId storage_of(ValueId id) const { return graph_.value(id).storage; }
  bool is_weight(StorageId id) const { return owners_[id.index()] != Owner::nobody; }

  const Graph& graph_;
  const std::vector<Span>& spans_;
  const SavedSets& sets_;
  std::vector<Owner> owners_;               // by storage: whose weight it is
  std::vector<std::int64_t> makers_;        // by storage: the span it is first seen in
  std::vector<std::int64_t> first_keeper_;  // by storage
  std::vector<Bytes> added_;                // by span
};

}  // namespace kerf
