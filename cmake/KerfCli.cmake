# SPDX-License-Identifier: Apache-2.0
# The command `kerf` from cli/*.cpp, without PyTorch: it starts at once and plans anywhere. What
# needs PyTorch lives in cli/torch/*.cpp, a second program `kerf-torch` that `kerf` may call.
if(SKBUILD)
  set(KERF_BIN_DIR "${SKBUILD_SCRIPTS_DIR}")
else()
  set(KERF_BIN_DIR bin)
endif()

function(kerf_program target output)
  add_executable(${target} ${ARGN})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${output})
  target_compile_definitions(${target} PRIVATE "KERF_VERSION=\"${PROJECT_VERSION}\"")
  target_link_libraries(${target} PRIVATE kerf_core kerf_cli11 kerf_flags)
  install(TARGETS ${target} RUNTIME DESTINATION "${KERF_BIN_DIR}" COMPONENT kerf)
  add_dependencies(kerf_install ${target})
endfunction()

file(GLOB cli_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/cli/*.cpp")
if(cli_sources)
  kerf_program(kerf_cli kerf ${cli_sources})
  kerf_unity(kerf_cli 5)
endif()

file(GLOB cli_torch_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/cli/torch/*.cpp")
if(cli_torch_sources AND KERF_WITH_TORCH)
  kerf_program(kerf_cli_torch kerf-torch ${cli_torch_sources})
  target_link_libraries(kerf_cli_torch PRIVATE kerf_libtorch)
  set_target_properties(kerf_cli_torch PROPERTIES JOB_POOL_COMPILE kerf_torch_pool
                                                  INSTALL_RPATH "${TorchWheel_LIBRARY_DIR}")
endif()
