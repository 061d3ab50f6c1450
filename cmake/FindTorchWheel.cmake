# SPDX-License-Identifier: Apache-2.0
# Finds PyTorch inside a Python installation, by asking the interpreter where it is.
#
# PyTorch's own TorchConfig.cmake is not used: in CUDA builds it insists on a CUDA toolkit that
# Kerf does not need, and it sets global compiler flags.
#
#   in:   Python_EXECUTABLE
#   out:  TorchWheel_FOUND, TorchWheel_VERSION, TorchWheel_INCLUDE_DIR, TorchWheel_LIBRARY_DIR
#         TorchWheel::torch   headers and libraries of the C++ side, CUDA's among them when present
#         TorchWheel::python  the above and torch_python, for extension modules
set(TorchWheel_FOUND FALSE)
# find_spec does not import torch: two seconds saved on every configure.
execute_process(
  COMMAND
    "${Python_EXECUTABLE}" -c "
import importlib.util, pathlib, re
spec = importlib.util.find_spec('torch')
root = pathlib.Path(spec.origin).parent
text = (root / 'version.py').read_text()
print(root)
print(re.search(r'^__version__ *(?::[^=]*)?= *.([0-9]+[.][0-9]+[.][0-9]+)', text, re.M).group(1))
"
  OUTPUT_VARIABLE answer RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
if(failed)
  set(TorchWheel_problem "${Python_EXECUTABLE} has no PyTorch")
else()
  string(REPLACE "\n" ";" answer "${answer}")
  list(GET answer 0 root)
  list(GET answer 1 TorchWheel_VERSION)
  set(TorchWheel_INCLUDE_DIR "${root}/include")
  set(TorchWheel_LIBRARY_DIR "${root}/lib")
  if(TorchWheel_VERSION VERSION_LESS TorchWheel_FIND_VERSION)
    set(TorchWheel_problem "PyTorch ${TorchWheel_VERSION} in ${root} is older than "
                           "${TorchWheel_FIND_VERSION}")
  else()
    set(TorchWheel_FOUND TRUE)
  endif()
endif()

foreach(name c10 torch_cpu torch torch_python)
  if(TorchWheel_FOUND AND NOT EXISTS "${TorchWheel_LIBRARY_DIR}/lib${name}.so")
    set(TorchWheel_problem "${TorchWheel_LIBRARY_DIR} has no lib${name}.so")
    set(TorchWheel_FOUND FALSE)
  endif()
endforeach()

if(NOT TorchWheel_FOUND)
  if(TorchWheel_FIND_REQUIRED)
    list(JOIN TorchWheel_problem "" TorchWheel_problem)
    message(FATAL_ERROR "Kerf needs PyTorch ${TorchWheel_FIND_VERSION} or later: ${TorchWheel_problem}. "
                        "Fix: run tools/setup, or ${Python_EXECUTABLE} -m pip install torch==2.13.0. "
                        "With pip, build in that environment: pip install --no-build-isolation . "
                        "Without PyTorch: -DKERF_WITH_TORCH=OFF (preset core-only).")
  endif()
  return()
endif()

if(NOT TARGET TorchWheel::torch)
  add_library(TorchWheel::torch INTERFACE IMPORTED)
  set_target_properties(
    TorchWheel::torch
    PROPERTIES INTERFACE_INCLUDE_DIRECTORIES
               "${TorchWheel_INCLUDE_DIR};${TorchWheel_INCLUDE_DIR}/torch/csrc/api/include"
               INTERFACE_SYSTEM_INCLUDE_DIRECTORIES
               "${TorchWheel_INCLUDE_DIR};${TorchWheel_INCLUDE_DIR}/torch/csrc/api/include")
  set(libraries torch torch_cpu c10)
  foreach(name c10_cuda torch_cuda)
    if(EXISTS "${TorchWheel_LIBRARY_DIR}/lib${name}.so")
      list(APPEND libraries ${name})
    endif()
  endforeach()
  # Backends register themselves when loaded and nobody names their symbols, so a linker that
  # drops unneeded libraries (Ubuntu's does) would drop CUDA. The libraries that PyTorch itself
  # needs (CUDA's, OpenMP's) are found by its own run paths, not by the linker.
  list(TRANSFORM libraries PREPEND "${TorchWheel_LIBRARY_DIR}/lib")
  list(TRANSFORM libraries APPEND ".so")
  target_link_libraries(
    TorchWheel::torch INTERFACE -Wl,--push-state,--no-as-needed ${libraries} -Wl,--pop-state
                                -Wl,--allow-shlib-undefined)

  # CUDA's headers, for a PyTorch with CUDA: from a toolkit, or from the packages beside PyTorch.
  if(EXISTS "${TorchWheel_LIBRARY_DIR}/libc10_cuda.so")
    file(GLOB packaged LIST_DIRECTORIES TRUE "${TorchWheel_LIBRARY_DIR}/../../nvidia/*/include")
    find_path(TorchWheel_CUDA_INCLUDE_DIR cuda_runtime_api.h
              HINTS "$ENV{CUDA_HOME}/include" "/usr/local/cuda/include" ${packaged})
    mark_as_advanced(TorchWheel_CUDA_INCLUDE_DIR)
    if(TorchWheel_CUDA_INCLUDE_DIR)
      message(STATUS "Found CUDA's headers: ${TorchWheel_CUDA_INCLUDE_DIR}")
    else()
      message(STATUS "CUDA's headers were not found: stages on CUDA devices are not recorded. "
                     "Fix: give -DTorchWheel_CUDA_INCLUDE_DIR=<folder of cuda_runtime_api.h>")
    endif()
  endif()

  add_library(TorchWheel::python INTERFACE IMPORTED)
  target_link_libraries(TorchWheel::python
                        INTERFACE TorchWheel::torch "${TorchWheel_LIBRARY_DIR}/libtorch_python.so")
endif()
message(STATUS "Found PyTorch ${TorchWheel_VERSION}: ${TorchWheel_INCLUDE_DIR}")
