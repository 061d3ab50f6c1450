# SPDX-License-Identifier: Apache-2.0
# benchmarks/<question>/*.cpp becomes the program kerf_bench_<question>. Not part of the ordinary
# build: cmake --build --preset release --target benchmarks
#
# benchmarks/scale is different: a library of problems, which tests of planners use too, and the
# program kerf_generate that writes them to files.
file(GLOB family_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/benchmarks/scale/*.cpp")
list(FILTER family_sources EXCLUDE REGEX "/generate\\.cpp$")
add_library(kerf_families STATIC EXCLUDE_FROM_ALL ${family_sources})
target_link_libraries(kerf_families PUBLIC kerf_profile PRIVATE kerf_flags)
add_executable(kerf_generate "${PROJECT_SOURCE_DIR}/benchmarks/scale/generate.cpp")
target_link_libraries(kerf_generate PRIVATE kerf_families kerf_cli11 kerf_flags)
if(TARGET kerf_partition_tests)
  target_link_libraries(kerf_partition_tests PRIVATE kerf_families)
endif()

add_custom_target(benchmarks)
file(GLOB benchmark_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/benchmarks/*/*.cpp")
list(FILTER benchmark_sources EXCLUDE REGEX "/benchmarks/scale/")
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
  target_link_libraries(kerf_bench_${question} PRIVATE kerf_core kerf_families kerf_flags
                                                        benchmark::benchmark_main)
  add_dependencies(benchmarks kerf_bench_${question})
endforeach()
