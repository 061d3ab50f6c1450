# SPDX-License-Identifier: Apache-2.0
# Compiler settings shared by every target of Kerf. Nothing here leaks into a parent project
# beyond this folder's own variables.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
  endif()
endif()

if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(KERF_CCACHE ccache)
  mark_as_advanced(KERF_CCACHE)
  if(KERF_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${KERF_CCACHE}")
  endif()
endif()

# A file that includes PyTorch takes about 2 GB to compile: never more than two at once.
set_property(GLOBAL APPEND PROPERTY JOB_POOLS kerf_torch_pool=2)

# kerf_unity(<target> <files>): so many files are compiled as one. Half the time of a build went into
# headers that every file of a room includes again: PyTorch's, pybind11's, GoogleTest's, and the
# standard library's. Helpers in the anonymous namespaces of a room need names of their own. With
# KERF_UNITY off every file is compiled alone, which shows an include that is missing and builds
# sooner after an edit.
function(kerf_unity target files)
  if(KERF_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files})
  endif()
endfunction()

# What Kerf's own sources are compiled with, and consumers' are not.
add_library(kerf_flags INTERFACE)
target_compile_options(kerf_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
                                            -Woverloaded-virtual)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 sees overlaps in "a" + std::to_string(n) that are not there (GCC bug 105651).
  target_compile_options(kerf_flags INTERFACE -Wno-restrict)
endif()
if(CMAKE_COMPILE_WARNING_AS_ERROR OR KERF_WARNINGS_AS_ERRORS)
  target_compile_options(kerf_flags INTERFACE -Werror)
endif()
if(KERF_SANITIZE)
  # vptr needs type information of libraries that were not built for it (libtorch).
  set(sanitize "-fsanitize=${KERF_SANITIZE}" -fno-omit-frame-pointer)
  if(KERF_SANITIZE MATCHES "undefined")
    list(APPEND sanitize -fno-sanitize=vptr -fno-sanitize-recover=undefined)
  endif()
  # For every target, GoogleTest built from source included.
  add_compile_options(${sanitize})
  add_link_options(${sanitize})
endif()
