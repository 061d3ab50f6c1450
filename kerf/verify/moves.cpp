// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/verify/moves.h"

#include <algorithm>

namespace kerf::derive {
namespace {

void wait_for(Moves& moves, std::size_t row, StageId maker, StageId user) {
  if (user < maker) return;  // backward: walks with an order of their own keep all moments
  moves.wait[row] = std::max(moves.wait[row], user.index() - maker.index());
}

std::size_t add_row(Moves& moves) {
  moves.wait.push_back(0);
  return moves.wait.size() - 1;
}

}  // namespace

Moves read_moves(const Flow& flow, const Traffic& traffic) {
  const std::size_t stages = flow.num_stages();
  Moves moves;
  moves.incoming.resize(stages);
  moves.outgoing.resize(stages);
  moves.wait.resize(stages);
  for (std::size_t s = 0; s < stages; ++s) {
    for (const StageId before : flow.after[s]) wait_for(moves, before.index(), before, StageId{s});
  }
  for (const Shipment& shipment : traffic.shipments) {
    const StageId from = shipment.from;
    std::size_t row = from.index();
    if (traffic.staged) {
      row = add_row(moves);
      moves.outgoing[from.index()].push_back({row, shipment.upload, false, {}});
    }
    for (const Delivery& delivery : shipment.deliveries) {
      double time = delivery.time;
      bool wire = delivery.wire;
      if (traffic.overlapped) {
        row = add_row(moves);
        moves.outgoing[from.index()].push_back({row, time, wire, delivery.to});
        time = 0;
        wire = false;
      }
      for (const StageId user : delivery.users) {
        const bool first = user == delivery.users.front();
        moves.incoming[user.index()].push_back({row, time, wire, moves.num_fetches, first});
      }
      wait_for(moves, row, from, delivery.users.front());
      ++moves.num_fetches;
    }
  }
  return moves;
}

}  // namespace kerf::derive
