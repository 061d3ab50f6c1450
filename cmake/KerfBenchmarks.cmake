# SPDX-License-Identifier: Apache-2.0
# benchmarks/<question>/*.cpp becomes the program kerf_bench_<question>. Not part of the ordinary
# build: cmake --build --preset release --target benchmarks
add_custom_target(benchmarks)
file(GLOB benchmark_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/benchmarks/*/*.cpp")
if(NOT benchmark_sources)
  return()
endif()
find_package(benchmark QUIET)
if(NOT benchmark_FOUND)
  message(STATUS "Google Benchmark not found: benchmarks are left out. "
                 "Fix: apt-get install libbenchmark-dev (or run tools/setup)")
  return()
endif()

set(questions "")
foreach(source IN LISTS benchmark_sources)
  get_filename_component(folder "${source}" DIRECTORY)
  list(APPEND questions "${folder}")
endforeach()
list(REMOVE_DUPLICATES questions)
foreach(folder IN LISTS questions)
  get_filename_component(question "${folder}" NAME)
  file(GLOB sources CONFIGURE_DEPENDS "${folder}/*.cpp")
  add_executable(kerf_bench_${question} EXCLUDE_FROM_ALL ${sources})
  target_link_libraries(kerf_bench_${question} PRIVATE kerf_core kerf_flags benchmark::benchmark_main)
  add_dependencies(benchmarks kerf_bench_${question})
endforeach()
