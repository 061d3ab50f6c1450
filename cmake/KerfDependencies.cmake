# SPDX-License-Identifier: Apache-2.0
# Finds what Kerf is built from, and says how to get what is missing. Nothing is fetched.

# kerf_header_library(<target> <header> <debian package>): a header-only library, from
# KERF_DEPS_INCLUDE_DIR when it is there, else from the system, else from third_party_headers/.
function(kerf_header_library target header apt_package)
  add_library(${target} INTERFACE)
  if(KERF_DEPS_INCLUDE_DIR AND EXISTS "${KERF_DEPS_INCLUDE_DIR}/${header}")
    target_include_directories(${target} SYSTEM INTERFACE "${KERF_DEPS_INCLUDE_DIR}")
    return()
  endif()
  string(TOUPPER "${target}_INCLUDE_DIR" variable)
  find_path(${variable} "${header}" PATHS "${PROJECT_SOURCE_DIR}/third_party_headers")
  mark_as_advanced(${variable})
  if(NOT ${variable})
    message(FATAL_ERROR "Kerf needs <${header}>, which was not found. "
                        "Fix: apt-get install ${apt_package} (or run tools/setup), "
                        "or give -DKERF_DEPS_INCLUDE_DIR=<folder that holds ${header}>.")
  endif()
  target_include_directories(${target} SYSTEM INTERFACE "${${variable}}")
endfunction()

# kerf_shim(<target> <folder>): an include path that shows one folder of a larger one. PyTorch's
# include folder holds copies of other libraries; a shim gives a room those and hides PyTorch.
function(kerf_shim target folder)
  get_filename_component(name "${folder}" NAME)
  set(shim "${PROJECT_BINARY_DIR}/shim/${name}")
  file(MAKE_DIRECTORY "${shim}")
  file(REMOVE "${shim}/${name}")
  file(CREATE_LINK "${folder}" "${shim}/${name}" SYMBOLIC)
  add_library(${target} INTERFACE)
  target_include_directories(${target} SYSTEM INTERFACE "${shim}")
endfunction()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# ---- Python: the given one, else the checkout's own environment, else the first on the path -------
if(KERF_WITH_PYTHON OR KERF_WITH_TORCH)
  if(NOT Python_EXECUTABLE AND EXISTS "${PROJECT_SOURCE_DIR}/.venv/bin/python")
    set(Python_EXECUTABLE "${PROJECT_SOURCE_DIR}/.venv/bin/python" CACHE FILEPATH
                                                                         "The Python to build for")
  endif()
  set(python_components Interpreter)
  if(KERF_WITH_PYTHON)
    list(APPEND python_components Development.Module)
  endif()
  find_package(Python 3.11 COMPONENTS ${python_components})
  if(NOT Python_FOUND)
    message(FATAL_ERROR "Kerf needs Python 3.11 or 3.12 with its headers. "
                        "Fix: apt-get install python3-dev python3-venv, then tools/setup; "
                        "or give -DPython_EXECUTABLE=...; or build without Python and PyTorch: "
                        "-DKERF_WITH_PYTHON=OFF -DKERF_WITH_TORCH=OFF (preset core-only).")
  endif()
endif()

if(KERF_WITH_TORCH)
  find_package(TorchWheel 2.11 REQUIRED)
endif()

# ---- fmt: one copy a build. PyTorch's headers need the copy beside them, so when PyTorch is there
# every room uses that one: two versions in one program would define Kerf's inline functions twice.
# Its functions are compiled in kerf/base/fmt.cpp.
if(TorchWheel_FOUND AND EXISTS "${TorchWheel_INCLUDE_DIR}/fmt/format.h")
  kerf_shim(kerf_fmt "${TorchWheel_INCLUDE_DIR}/fmt")
else()
  kerf_header_library(kerf_fmt fmt/format.h libfmt-dev)
endif()

kerf_header_library(kerf_json nlohmann/json.hpp nlohmann-json3-dev)
kerf_header_library(kerf_cli11 CLI/CLI.hpp libcli11-dev)

# ---- pybind11: PyTorch's own copy when there is one, so that _core and _torch share their type
# registry with each other and with PyTorch.
if(KERF_WITH_PYTHON)
  if(TorchWheel_FOUND AND EXISTS "${TorchWheel_INCLUDE_DIR}/pybind11/pybind11.h")
    kerf_shim(kerf_pybind11 "${TorchWheel_INCLUDE_DIR}/pybind11")
  else()
    execute_process(COMMAND "${Python_EXECUTABLE}" -m pybind11 --includes
                    OUTPUT_VARIABLE pybind11_flags RESULT_VARIABLE pybind11_missing
                    ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(pybind11_missing)
      message(FATAL_ERROR "Kerf's Python extensions need pybind11, which ${Python_EXECUTABLE} does "
                          "not have. Fix: ${Python_EXECUTABLE} -m pip install pybind11, "
                          "or -DKERF_WITH_PYTHON=OFF.")
    endif()
    string(REPLACE "-I" "" pybind11_dirs "${pybind11_flags}")
    separate_arguments(pybind11_dirs)
    add_library(kerf_pybind11 INTERFACE)
    target_include_directories(kerf_pybind11 SYSTEM INTERFACE ${pybind11_dirs})
  endif()
endif()

# METIS is wanted and not needed: without it searches have other starts.
find_path(KERF_METIS_INCLUDE_DIR metis.h)
find_library(KERF_METIS_LIBRARY metis)
mark_as_advanced(KERF_METIS_INCLUDE_DIR KERF_METIS_LIBRARY)
if(NOT KERF_METIS_LIBRARY OR NOT KERF_METIS_INCLUDE_DIR)
  message(STATUS "METIS was not found: searches go without its starts (Debian: libmetis-dev)")
endif()
