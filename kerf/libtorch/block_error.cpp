// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/block_error.h"

#include <atomic>

namespace kerf {
namespace {

std::atomic<void (*)()> rethrow_foreign{nullptr};

}  // namespace

void set_block_errors(void (*rethrow)()) { rethrow_foreign = rethrow; }

void rethrow_block_error(const std::string& note) {
  try {
    try {
      throw;
    } catch (const BlockError&) {
      throw;
    } catch (const std::exception&) {
      if (rethrow_foreign != nullptr) rethrow_foreign.load()();
    }
  } catch (BlockError& error) {
    error.add_note(note);
    throw;
  }
}

}  // namespace kerf
