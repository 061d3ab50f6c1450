// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "python/src/torch/block_calls.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kerf/base/error.h"

namespace py = pybind11;

namespace kerf::bindings {
namespace {

// A Python exception on its way through threads that do not hold the interpreter lock: pybind11
// takes the lock itself to drop it.
class PythonBlockError : public BlockError {
 public:
  explicit PythonBlockError(py::error_already_set raised)
      : raised_(std::make_shared<py::error_already_set>(std::move(raised))) {}

  const char* what() const noexcept override { return raised_->what(); }

  void add_note(const std::string& note) override {
    const py::gil_scoped_acquire lock;
    try {
      raised_->value().attr("add_note")(note);
    } catch (const py::error_already_set&) {  // of a class that takes no notes
    }
  }

  void restore() const { raised_->restore(); }

 private:
  std::shared_ptr<py::error_already_set> raised_;
};

}  // namespace

class BlockThreads {
 public:
  BlockThreads() = default;
  // After the threads of the pipeline have ended.
  ~BlockThreads() {
    // A forked process, or an interpreter that is ending, has dropped the states already.
    if (states_.empty() || getpid() != made_in_ || _Py_IsFinalizing()) return;
    const py::gil_scoped_acquire lock;
    for (PyThreadState* const state : states_) {
      PyThreadState_Clear(state);
      PyThreadState_Delete(state);
    }
  }
  BlockThreads(const BlockThreads&) = delete;
  BlockThreads& operator=(const BlockThreads&) = delete;

  // A thread that Python does not know gets a state when it takes the lock and loses it with the
  // lock; the memory behind it is mapped and unmapped, which interrupts every other core. It keeps
  // its state from here on. `lock` is the one the calling thread holds.
  void keep_state(py::gil_scoped_acquire& lock) {
    PyThreadState* const state = PyThreadState_Get();
    if (state->gilstate_counter != 1) return;  // an older one than the lock
    lock.inc_ref();
    states_.push_back(state);
  }

  // The calling thread is inside a block while it lives.
  class Inside {
   public:
    explicit Inside(BlockThreads& threads) : threads_(threads) {
      threads_.ids_.push_back(PyThread_get_thread_ident());
    }
    ~Inside() {
      const unsigned long id = PyThread_get_thread_ident();
      auto& ids = threads_.ids_;
      ids.erase(std::find(ids.begin(), ids.end(), id));
      if (std::erase(threads_.interrupted_, id) > 0) drop_late_interrupt();
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    // An interrupt that came too late must not end the next block of this thread. It is raised in
    // code that does nothing: taking it back (PyThreadState_SetAsyncExc with null) leaves the
    // interpreter looking for it for ever, and a program that is traced, by a debugger, hangs.
    static void drop_late_interrupt() {
      PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
      PyErr_Fetch(&type, &value, &traceback);  // what the block raised, on its way out
      const py::dict nothing;
      PyObject* const result = PyRun_String("None", Py_eval_input, nothing.ptr(), nothing.ptr());
      Py_XDECREF(result);
      PyErr_Clear();
      PyErr_Restore(type, value, traceback);
    }

    BlockThreads& threads_;
  };

  void interrupt() {
    for (const unsigned long id : ids_) {
      PyThreadState_SetAsyncExc(id, PyExc_KeyboardInterrupt);
      interrupted_.push_back(id);
    }
  }

 private:
  std::vector<unsigned long> ids_;
  std::vector<unsigned long> interrupted_;  // those inside that were told to end
  std::vector<PyThreadState*> states_;      // kept for threads that Python did not start
  pid_t made_in_ = getpid();
};

namespace {

// May be copied, called and dropped by threads that do not hold the interpreter lock.
std::shared_ptr<py::object> hold(py::object callable) {
  return {new py::object(std::move(callable)), [](py::object* p) {
            const py::gil_scoped_acquire lock;
            delete p;
          }};
}

// The lock is taken for the block alone.
OpaqueCall to_opaque_call(py::object callable, std::shared_ptr<BlockThreads> threads) {
  const std::shared_ptr<py::object> held = hold(std::move(callable));
  return [held, threads](const std::vector<at::Tensor>& inputs, std::int64_t batch) {
    py::gil_scoped_acquire lock;
    threads->keep_state(lock);
    const BlockThreads::Inside inside(*threads);
    try {
      return (*held)(inputs, batch).cast<std::vector<at::Tensor>>();
    } catch (py::error_already_set& error) {
      throw PythonBlockError(std::move(error));
    }
  };
}

at::Tensor as_loss(const py::object& given) {
  try {
    return given.cast<at::Tensor>();
  } catch (const py::cast_error&) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[kerf.train_step] loss_fn gave {}; expected a tensor of one number; "
                            "return the loss itself, without .item()",
                            std::string(py::str(py::type::of(given).attr("__name__")))));
  }
}

}  // namespace

BlockCalls::BlockCalls(const PythonCalls& python_calls)
    : threads_(std::make_shared<BlockThreads>()) {
  for (const auto& [node, callable] : python_calls) {
    calls.emplace(node, to_opaque_call(callable, threads_));
  }
}

void BlockCalls::interrupt() const { threads_->interrupt(); }

LossCall BlockCalls::loss_call(py::object callable) const {
  const std::shared_ptr<py::object> held = hold(std::move(callable));
  return [held, threads = threads_](const std::vector<c10::IValue>& results, std::size_t microbatch,
                                    std::int64_t batch) {
    py::gil_scoped_acquire lock;
    threads->keep_state(lock);
    const BlockThreads::Inside inside(*threads);
    try {
      py::list given;
      for (const c10::IValue& result : results) given.append(to_python(result));
      return as_loss((*held)(given, microbatch, batch));
    } catch (py::error_already_set& error) {
      throw PythonBlockError(std::move(error));
    }
  };
}

py::object to_python(const c10::IValue& value) {
  if (value.isTensor()) return py::cast(value.toTensor());
  if (value.isInt()) return py::int_(value.toInt());
  if (value.isDouble()) return py::float_(value.toDouble());
  if (value.isBool()) return py::bool_(value.toBool());
  return py::none();
}

// What an operator that is written in Python raised.
void rethrow_python_error() {
  try {
    throw;
  } catch (python_error& error) {
    const py::gil_scoped_acquire lock;
    error.persist();
    error.restore();
    if (PyErr_Occurred() == nullptr) return;
    throw PythonBlockError(py::error_already_set());
  } catch (py::error_already_set& error) {
    const py::gil_scoped_acquire lock;
    throw PythonBlockError(error);
  } catch (const std::exception&) {
  }
}

void init_block_errors() {
  set_block_errors(&rethrow_python_error);
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const PythonBlockError& error) {
      error.restore();
    }
  });
}

}  // namespace kerf::bindings
