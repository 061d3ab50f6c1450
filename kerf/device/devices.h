// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// From what a user writes to a cluster.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "kerf/device/cluster.h"
#include "kerf/device/local_machine.h"

namespace kerf {

// "cpu:0=2GiB,cpu:1=1GiB", "cuda:0,cuda:0", "h200:0,h200:1", "4xh200", "4xcpu=16GiB", "4x16GiB".
// A device is `kind`, `kind:ordinal`, or `count x kind-or-memory`, each with an optional `=memory`.
// Throws Error(invalid_argument) with the text and a caret under the offending character.
Cluster parse_devices(std::string_view text, const LocalMachine& machine = local_machine());

// `max_memory` keys: a device's name ("cuda:0"), an ordinal for accelerators ("0"), or a kind for
// all its devices ("cpu": each gets that limit); the most particular one wins. A key that names
// none of the devices throws, as do an unknown kind and a memory size that is not positive.
//
// - a name that occurs twice: CPU devices are refused, accelerators become "cuda:0" and "cuda:0#1",
//   two logical devices of one memory group;
// - "cpu" devices share out the machine's cores evenly and without overlap; when there are more
//   devices than cores they share cores, and a note says so.
Cluster make_cluster(std::span<const std::string> names,
                     const std::map<std::string, Bytes>& max_memory = {},
                     const LocalMachine& machine = local_machine());

}  // namespace kerf
