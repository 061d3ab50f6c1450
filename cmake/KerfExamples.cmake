# SPDX-License-Identifier: Apache-2.0
# examples/<name>.cpp becomes the program examples/<name> in the build tree: built with the tests, so
# that an example cannot fall behind the library. Never installed.
file(GLOB example_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/*.cpp")
foreach(source IN LISTS example_sources)
  get_filename_component(name "${source}" NAME_WE)
  add_executable(kerf_example_${name} "${source}")
  set_target_properties(
    kerf_example_${name} PROPERTIES OUTPUT_NAME ${name}
                                    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/examples")
  target_link_libraries(kerf_example_${name} PRIVATE kerf_core kerf_flags)
endforeach()
