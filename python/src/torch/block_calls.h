// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Opaque blocks: Python code that a pipeline's threads call.
#pragma once

#include <pybind11/pybind11.h>

#include <map>
#include <memory>
#include <string>

#include "kerf/libtorch/kernel.h"
#include "kerf/libtorch/training_step.h"

namespace kerf::bindings {

using PythonCalls = std::map<std::string, pybind11::object>;  // by node name

// The threads that are inside a block now. To be used with the interpreter lock held.
class BlockThreads;

// The blocks of one pipeline.
struct BlockCalls {
  explicit BlockCalls(const PythonCalls& calls);

  // Raises KeyboardInterrupt in the Python code of every block that is running, as a signal does on
  // the main thread. With the interpreter lock.
  void interrupt() const;

  OpaqueCalls calls;

  // A loss, called as a block is: with a list of results, the number of the micro-batch and its
  // size.
  LossCall loss_call(pybind11::object callable) const;

 private:
  std::shared_ptr<BlockThreads> threads_;
};

// A tensor or number that a model gives; None for anything else.
pybind11::object to_python(const c10::IValue& value);

// Makes an exception that a block raised leave the module's functions as it is.
void init_block_errors();

}  // namespace kerf::bindings
