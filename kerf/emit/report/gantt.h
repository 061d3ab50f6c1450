// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kerf/plan/timeline.h"

namespace kerf {

inline constexpr int kDefaultGanttWidth = 96;

// A timeline as text, a row for each device and `width` columns for the step:
//
//   cpu:0  000011112222........   a digit: computing that micro-batch (its last digit)
//   cpu:1  ....~000~111~222....   ~ receiving a tensor, . idle
//
// A training step has letters for its phases, and a legend:
//
//   cpu:0  F0F1....B000W0B111W1   F forward, B backward, W gradients of weights made apart
//   cpu:1  ~~F0B00~F1B11......
//
// A column shows what took most of its time. `width` is taken as at least 8.
std::string draw_timeline(const Timeline& timeline, int width = kDefaultGanttWidth);

}  // namespace kerf
