# SPDX-License-Identifier: Apache-2.0
# The Python package: extensions `_core` (python/src/*.cpp, no PyTorch) and `_torch`
# (python/src/torch/*.cpp), and the files of python/kerf.
#
# The build tree holds a package that runs: PYTHONPATH=build/<preset>/python. Python files there are
# links, so an edit needs no build.
set(KERF_PACKAGE_DIR "${PROJECT_BINARY_DIR}/python/kerf")

function(kerf_extension name)
  set(target kerf_python${name})
  Python_add_library(${target} MODULE WITH_SOABI ${ARGN})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name}
                                             LIBRARY_OUTPUT_DIRECTORY "${KERF_PACKAGE_DIR}")
  target_compile_definitions(${target} PRIVATE "KERF_VERSION=\"${PROJECT_VERSION}\"")
  target_link_libraries(${target} PRIVATE kerf_core kerf_pybind11 kerf_flags)
  add_dependencies(kerf_install ${target})
  if(SKBUILD)
    set(destination kerf) # the wheel's root is site-packages
  else()
    set(destination "lib/python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}/site-packages/kerf")
  endif()
  install(TARGETS ${target} LIBRARY DESTINATION "${destination}" COMPONENT kerf)
endfunction()

file(GLOB core_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/python/src/*.cpp")
if(core_sources)
  kerf_extension(_core ${core_sources})
  kerf_unity(kerf_python_core 4)
endif()

file(GLOB torch_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/python/src/torch/*.cpp")
if(torch_sources AND KERF_WITH_TORCH)
  kerf_extension(_torch ${torch_sources})
  target_link_libraries(kerf_python_torch PRIVATE kerf_libtorch TorchWheel::python)
  # Installed beside the torch package; and `import torch` has loaded the libraries before.
  set_target_properties(kerf_python_torch PROPERTIES JOB_POOL_COMPILE kerf_torch_pool
                                                     INSTALL_RPATH "$ORIGIN/../torch/lib")
endif()

file(GLOB_RECURSE stale LIST_DIRECTORIES FALSE "${KERF_PACKAGE_DIR}/*.py*")
foreach(file IN LISTS stale)
  if(IS_SYMLINK "${file}" AND NOT EXISTS "${file}")
    file(REMOVE "${file}")
  endif()
endforeach()
file(GLOB_RECURSE package_files CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/python/kerf"
     "${PROJECT_SOURCE_DIR}/python/kerf/*.py" "${PROJECT_SOURCE_DIR}/python/kerf/*.pyi"
     "${PROJECT_SOURCE_DIR}/python/kerf/py.typed")
foreach(file IN LISTS package_files)
  get_filename_component(folder "${KERF_PACKAGE_DIR}/${file}" DIRECTORY)
  file(MAKE_DIRECTORY "${folder}")
  file(CREATE_LINK "${PROJECT_SOURCE_DIR}/python/kerf/${file}" "${KERF_PACKAGE_DIR}/${file}" SYMBOLIC)
endforeach()
