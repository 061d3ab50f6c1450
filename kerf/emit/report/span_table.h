// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "kerf/simulate/spans/span_profile.h"

namespace kerf {

struct SpanTableOptions {
  // As the model runs, or by a figure, largest first: accumulate, incremental, output, temp, param,
  // backward, fwd_flop, bwd_flop.
  std::string sort = {};
  std::size_t limit = 0;  // rows at most, 0: all. The total counts them all.
};

// A row a span, then totals, and operators that no formula knows. Ends with a newline. All throw
// Error(invalid_argument) for a column that nobody knows, with the nearest one.
std::string span_table(const SpanProfile& profile, const SpanTableOptions& options = {});
// The same as an HTML table, for notebooks.
std::string span_table_html(const SpanProfile& profile, const SpanTableOptions& options = {});
// Every figure of every span, in bytes and flops: "kerf-symbolic-profile" 1.0.
std::string span_table_json(const SpanProfile& profile);

}  // namespace kerf
