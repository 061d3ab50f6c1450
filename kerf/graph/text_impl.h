// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kerf/base/hash.h"
#include "kerf/graph/graph.h"

namespace kerf {

// The printed lines of a graph, piece by piece; `for_hash` leaves out what the hash must not cover:
// names of the graph, notes, source lines, devices and the example batch.
struct PrintOptions {
  bool for_hash = false;
};
void print_lines(const GraphData& data, PrintOptions options, std::string& out);

// What a value has when its line says nothing else: row-major strides, a storage of its own size.
std::vector<Expr> contiguous_strides(const std::vector<Expr>& shape);
Expr element_bytes(DType dtype, const std::vector<Expr>& shape);

void hash_graph(const GraphData& data, Hasher& hasher);

}  // namespace kerf
