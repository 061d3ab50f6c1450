// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kerf/partition/registry/registry.h"

namespace kerf::cli {

// {"nodes": {"linear": 0, "relu": 1}, "devices": {"0": "cpu:0", "1": "cpu:1"}}: the partition of
// every node and the device of every partition, into the options of the method aot. Throws
// Error(invalid_argument) naming the file and the key. Whether the names are those of a graph and a
// cluster is for the method to say.
void load_assignment(const std::string& path, partition::Options& options);

}  // namespace kerf::cli
