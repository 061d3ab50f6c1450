// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What the passes of a training step allocate, receive and leave behind. Private to simulate/.
//
//   forward            as in inference, but what backward needs stays: values by storage, tensors
//                      that only an operator knows, received tensors. Of a block that is computed
//                      again only what it reads from outside stays.
//   backward           nodes in reverse order: a gradient is there from the first backward that
//                      makes a part of it to the end of its maker's; a second part, and gradients
//                      of weights that are added to those of earlier micro-batches, are there
//                      beside it for a moment. What was kept is released when no earlier node needs
//                      it, unless gradients of weights come later. A block that is computed again
//                      has all that its nodes keep from its last node to its first. In front of the
//                      last stage's that makes a result there is the loss (plan/loss_memory.h).
//   weight_gradient    where gradients of weights are apart: an operator with weights keeps what
//                      its backward was given until then, and nothing that was kept is released
//                      before. A stage that sends no gradient has nothing to do earlier, and does
//                      all of its backward here.
#pragma once

#include "kerf/plan/plan.h"
#include "kerf/profile/profile.h"
#include "kerf/profile/saved/saved.h"
#include "kerf/simulate/footprint.h"

namespace kerf {

struct TrainingFootprints {
  std::vector<Footprint> passes;  // by PassId
  std::vector<Bytes> saved;       // by stage: kept for its backward, weights left out
};

// `plan` has stages with nodes, `has_backward` and `after`, and cuts; `profile` the workspaces.
TrainingFootprints training_footprints(const Graph& graph, const Plan& plan,
                                       const Profile& profile);

// By stage: does it send a gradient to another?
std::vector<bool> gradient_senders(const Plan& plan);

}  // namespace kerf
