# SPDX-License-Identifier: Apache-2.0
# What `find_package(kerf)` of another project finds: the rooms that need no PyTorch as static
# libraries, with their headers. A component of its own: the Python package carries none of it.
#
#   cmake --install build/core-only --prefix /opt/kerf --component kerf_cpp
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(kerf_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/kerf")

install(TARGETS ${KERF_PACKAGED_ROOMS} kerf_core EXPORT kerf
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT kerf_cpp)
install(EXPORT kerf NAMESPACE kerf:: FILE kerf-targets.cmake DESTINATION "${kerf_package_dir}"
        COMPONENT kerf_cpp)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/kerf" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        COMPONENT kerf_cpp FILES_MATCHING PATTERN "*.h" PATTERN "*_impl.h" EXCLUDE
        PATTERN "libtorch" EXCLUDE)

# Where this build found nlohmann-json: the first place where a user's build looks.
get_target_property(kerf_json_include_dir kerf_json INTERFACE_INCLUDE_DIRECTORIES)
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/kerf-config.cmake.in"
                              "${PROJECT_BINARY_DIR}/kerf-config.cmake"
                              INSTALL_DESTINATION "${kerf_package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/kerf-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/kerf-config.cmake"
              "${PROJECT_BINARY_DIR}/kerf-config-version.cmake"
        DESTINATION "${kerf_package_dir}" COMPONENT kerf_cpp)
