// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What the user's own code raised while a pipeline ran it: an opaque block, a loss, an operator
// that is written in Python. It leaves the pipeline as it is, with a note of where that was.
#pragma once

#include <exception>
#include <string>

namespace kerf {

// Kept by whoever can call such code.
class BlockError : public std::exception {
 public:
  virtual void add_note(const std::string& note) = 0;
};

// Operators of Python raise exceptions of their own kind. Whoever knows them says how they are
// rethrown: `rethrow` is called while one is handled, and throws it as a BlockError, or returns.
void set_block_errors(void (*rethrow)());

// In a handler: throws a BlockError with the note for what is being handled, or returns.
void rethrow_block_error(const std::string& note);

}  // namespace kerf
