# SPDX-License-Identifier: Apache-2.0
include(GNUInstallDirs)

# kerf_room(<room> [DEPS <room>...])
#
# Target kerf_<room> from every .cpp file under kerf/<room>/: a static, position-independent
# library, or an INTERFACE target while the room holds only headers. DEPS are rooms, passed on to
# users. All but libtorch are gathered in KERF_PACKAGED_ROOMS (KerfPackage). For settings that differ between the two kinds the caller gets kerf_<room>_scope (PUBLIC
# or INTERFACE) and kerf_<room>_private (PRIVATE or INTERFACE).
function(kerf_room room)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  set(folder "${PROJECT_SOURCE_DIR}/kerf/${room}")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${folder}/*.cpp")
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${folder}/*.h")
  set(target kerf_${room})
  if(sources)
    add_library(${target} STATIC ${sources} ${headers})
    set(scope PUBLIC)
    set(private PRIVATE)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:kerf_flags>)
    if(room STREQUAL "libtorch")
      set_target_properties(${target} PROPERTIES JOB_POOL_COMPILE kerf_torch_pool)
      kerf_unity(${target} 5)
    else()
      kerf_unity(${target} 8)
    endif()
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
    set(private INTERFACE)
  endif()
  target_compile_features(${target} ${scope} cxx_std_20)
  target_include_directories(${target} ${scope} "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>"
                             "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  list(TRANSFORM ARG_DEPS PREPEND kerf_)
  target_link_libraries(${target} ${scope} ${ARG_DEPS})
  add_library(kerf::${room} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${room})
  if(NOT room STREQUAL "libtorch")
    set(KERF_PACKAGED_ROOMS ${KERF_PACKAGED_ROOMS} ${target} PARENT_SCOPE)
  endif()
  set(${target}_scope ${scope} PARENT_SCOPE)
  set(${target}_private ${private} PARENT_SCOPE)
endfunction()
