# SPDX-License-Identifier: Apache-2.0
# One test of tests/must_not_compile, run by ctest: cmake -DCOMPILER= -DSOURCE= -DINCLUDES=a|b -P ...
#
#   control*.cpp                      must compile: the flags and include paths are right
#   a file with KERF_MUST_NOT_COMPILE must compile without that macro and be refused with it, so
#                                     that only the lines under the macro can be the reason
#   any other file                    must be refused
#   "// expect-error: <regex>"        in any of them: the compiler's message must match
string(REPLACE "|" ";" includes "${INCLUDES}")
list(REMOVE_ITEM includes "")
list(TRANSFORM includes PREPEND "-I")
get_filename_component(name "${SOURCE}" NAME_WE)
file(READ "${SOURCE}" text)

function(try_to_compile result_variable)
  execute_process(
    COMMAND "${COMPILER}" -std=c++20 -fsyntax-only -DFMT_HEADER_ONLY=1 ${includes} ${ARGN} "${SOURCE}"
    RESULT_VARIABLE status ERROR_VARIABLE messages OUTPUT_QUIET)
  set(${result_variable} ${status} PARENT_SCOPE)
  set(messages "${messages}" PARENT_SCOPE)
endfunction()

if(name MATCHES "^control" OR text MATCHES "KERF_MUST_NOT_COMPILE")
  try_to_compile(status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${name}: the control case must compile, and does not:\n${messages}")
  endif()
  if(name MATCHES "^control")
    return()
  endif()
endif()

try_to_compile(status -DKERF_MUST_NOT_COMPILE=1)
if(status EQUAL 0)
  message(FATAL_ERROR "${name}: compiles, and must not")
endif()
if(text MATCHES "// expect-error: ([^\n]+)" AND NOT messages MATCHES "${CMAKE_MATCH_1}")
  message(FATAL_ERROR "${name}: refused, but not for the reason it names:\n${messages}")
endif()
