// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kerf/graph/graph.h"
#include "kerf/plan/plan.h"

namespace kerf {

// How many batches may be under way at a time when they follow each other through the plan's
// stages: one more than there are stages, so that each stage finds the next batch waiting, or as
// many as fit the limits of memory. w batches take no more than one batch of w times the size in
// w times as many micro-batches, whatever the timing (simulate/memory.h), and that is planned. 1
// where a limit cannot be checked that way: for static graphs and plans of training.
int stream_window(const Plan& plan, const Graph& graph);

// Does the plan fit its limits with so many batches under way?
bool fits_stream(const Plan& plan, const Graph& graph, int window);

// Why a batch must have left before the next enters; empty: it need not have.
// `batch_independent`: the user's word for what runs as Python.
std::string why_not_overlapped(const Plan& plan, const Graph& graph, bool batch_independent);

}  // namespace kerf
