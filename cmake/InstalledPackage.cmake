# SPDX-License-Identifier: Apache-2.0
# The test `package`, run by ctest: installs Kerf, builds examples/ against it as a project of its
# own would be built, and plans a graph with the program.
#
#   cmake -DBUILD= -DEXAMPLES= -DGRAPH= -DCOMPILER= -DGENERATOR= -DWORK= -P InstalledPackage.cmake
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command} failed (${status}):\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${WORK}")
run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/kerf" --component kerf_cpp)
run("${CMAKE_COMMAND}" -S "${EXAMPLES}" -B "${WORK}/build" -G "${GENERATOR}"
    "-DCMAKE_CXX_COMPILER=${COMPILER}" "-Dkerf_ROOT=${WORK}/kerf")
run("${CMAKE_COMMAND}" --build "${WORK}/build")
run("${WORK}/build/plan_graph" "${GRAPH}" "cpu:0,cpu:1" 2)
if(NOT output MATCHES "predicted step time")
  message(FATAL_ERROR "plan_graph printed no plan:\n${output}")
endif()
