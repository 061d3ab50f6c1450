# SPDX-License-Identifier: Apache-2.0
# tests/<folder>/**/*.cpp becomes the GoogleTest program kerf_<folder>_tests. tests/support/ holds
# headers for all of them. Python tests (tests/python) are pytest's.
set(googletest_dir "${KERF_GOOGLETEST_DIR}")
if(NOT googletest_dir)
  find_package(GTest QUIET)
  if(NOT TARGET GTest::gmock_main)
    set(googletest_dir "${PROJECT_SOURCE_DIR}/third_party_headers/googletest")
  endif()
endif()
if(googletest_dir)
  if(NOT EXISTS "${googletest_dir}/CMakeLists.txt")
    message(FATAL_ERROR "Kerf's tests need GoogleTest and GoogleMock. "
                        "Fix: apt-get install libgtest-dev libgmock-dev (or run tools/setup), "
                        "or give -DKERF_GOOGLETEST_DIR=<its sources>, or -DKERF_DEVELOPER_MODE=OFF.")
  endif()
  set(INSTALL_GTEST OFF)
  set(CMAKE_POLICY_VERSION_MINIMUM 3.5)
  add_subdirectory("${googletest_dir}" googletest EXCLUDE_FROM_ALL SYSTEM)
  unset(CMAKE_POLICY_VERSION_MINIMUM)
  if(NOT TARGET GTest::gmock_main)
    add_library(GTest::gmock_main ALIAS gmock_main)
  endif()
endif()
include(GoogleTest)

# kerf_tests(<folder> [DEPS <target>...]): nothing while the folder holds no sources.
function(kerf_tests folder)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/${folder}/*.cpp")
  if(NOT sources)
    return()
  endif()
  set(target kerf_${folder}_tests)
  add_executable(${target} ${sources})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  # Golden files and models are read from here, whatever folder the test is started in.
  target_compile_definitions(${target} PRIVATE "KERF_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
  target_link_libraries(${target} PRIVATE ${ARG_DEPS} kerf_flags GTest::gmock_main)
  if(folder STREQUAL "cli" AND TARGET kerf_cli)
    # Tests of the command run the command.
    add_dependencies(${target} kerf_cli)
    target_compile_definitions(${target} PRIVATE "KERF_CLI=\"$<TARGET_FILE:kerf_cli>\"")
  endif()
  if(folder STREQUAL "libtorch")
    # Loading PyTorch takes a second: one process for all, not one a test.
    set_target_properties(${target} PROPERTIES JOB_POOL_COMPILE kerf_torch_pool)
    kerf_unity(${target} 3)
    add_test(NAME libtorch COMMAND ${target} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    set_tests_properties(libtorch PROPERTIES LABELS libtorch
                                             ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0")
  else()
    kerf_unity(${target} 4)
    gtest_discover_tests(${target} TEST_PREFIX "${folder}." DISCOVERY_MODE PRE_TEST
                         DISCOVERY_TIMEOUT 60 WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
                         PROPERTIES LABELS ${folder})
  endif()
endfunction()

# A room's tests link that room, and what checks its answers; so a room builds and runs its tests
# while one above it is broken.
kerf_tests(base DEPS kerf_base)
kerf_tests(graph DEPS kerf_graph)
kerf_tests(fuzz DEPS kerf_graph)
kerf_tests(device DEPS kerf_device)
kerf_tests(profile DEPS kerf_profile)
kerf_tests(place DEPS kerf_place kerf_verify kerf_ingest)
kerf_tests(plan DEPS kerf_plan)
kerf_tests(simulate DEPS kerf_simulate)
kerf_tests(verify DEPS kerf_verify kerf_simulate)
kerf_tests(partition DEPS kerf_partition kerf_verify kerf_ingest)
kerf_tests(driver DEPS kerf_driver kerf_ingest)
kerf_tests(ingest DEPS kerf_ingest)
kerf_tests(emit DEPS kerf_emit kerf_verify)
kerf_tests(runtime DEPS kerf_runtime kerf_simulate)
kerf_tests(cli DEPS kerf_core)
kerf_tests(bugs DEPS kerf_core)
kerf_tests(integration DEPS kerf_core)
if(KERF_WITH_TORCH)
  kerf_tests(libtorch DEPS kerf_libtorch kerf_core)
endif()

# An accelerator for tests on machines that have none: see tests/python/pretend.py. Nothing of Kerf is
# in it, and it is not installed.
if(KERF_WITH_TORCH AND KERF_WITH_PYTHON)
  file(GLOB pretend_sources CONFIGURE_DEPENDS
       "${PROJECT_SOURCE_DIR}/tests/support/pretend_device/*.cpp")
  Python_add_library(kerf_pretend_device MODULE WITH_SOABI ${pretend_sources})
  set_target_properties(kerf_pretend_device PROPERTIES OUTPUT_NAME _pretend_device
                                                       LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests"
                                                       JOB_POOL_COMPILE kerf_torch_pool)
  target_include_directories(kerf_pretend_device PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(kerf_pretend_device PRIVATE kerf_pybind11 TorchWheel::python kerf_flags)
  kerf_unity(kerf_pretend_device 4)
endif()

# Each file of tests/must_not_compile must be refused by the compiler, for the reason it gives; see
# MustNotCompile.cmake.
file(GLOB refused CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/must_not_compile/*.cpp")
foreach(source IN LISTS refused)
  get_filename_component(name "${source}" NAME_WE)
  add_test(NAME must_not_compile.${name}
           COMMAND "${CMAKE_COMMAND}" "-DCOMPILER=${CMAKE_CXX_COMPILER}" "-DSOURCE=${source}"
                   "-DINCLUDES=${PROJECT_SOURCE_DIR}|$<JOIN:$<TARGET_PROPERTY:kerf_fmt,INTERFACE_INCLUDE_DIRECTORIES>,|>|$<JOIN:$<TARGET_PROPERTY:kerf_json,INTERFACE_INCLUDE_DIRECTORIES>,|>"
                   -P "${PROJECT_SOURCE_DIR}/cmake/MustNotCompile.cmake")
  set_tests_properties(must_not_compile.${name} PROPERTIES LABELS must_not_compile)
endforeach()

# A sanitizer's flags are not passed on to users.
if(NOT KERF_SANITIZE)
  add_test(NAME package
           COMMAND "${CMAKE_COMMAND}" "-DBUILD=${PROJECT_BINARY_DIR}"
                   "-DEXAMPLES=${PROJECT_SOURCE_DIR}/examples"
                   "-DGRAPH=${PROJECT_SOURCE_DIR}/examples/mlp.graph"
                   "-DCOMPILER=${CMAKE_CXX_COMPILER}" "-DGENERATOR=${CMAKE_GENERATOR}"
                   "-DWORK=${PROJECT_BINARY_DIR}/package_test"
                   -P "${PROJECT_SOURCE_DIR}/cmake/InstalledPackage.cmake")
endif()

if(Python_EXECUTABLE)
  add_test(NAME layers COMMAND "${Python_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/tools/check_layers.py")
endif()
