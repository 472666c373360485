# SPDX-License-Identifier: Apache-2.0
# `cmake --build build/release --target docs`: the API reference of the public headers, in build/release/api.
find_program(DOXYGEN_EXECUTABLE doxygen)
if(DOXYGEN_EXECUTABLE)
  add_custom_target(docs COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/api
    COMMAND ${CMAKE_COMMAND} -E env YOKE_ROOT=${PROJECT_SOURCE_DIR} YOKE_VERSION=${PROJECT_VERSION}
      YOKE_API=${PROJECT_BINARY_DIR}/api ${DOXYGEN_EXECUTABLE} ${PROJECT_SOURCE_DIR}/docs/Doxyfile
    VERBATIM)
else()
  add_custom_target(docs COMMAND ${CMAKE_COMMAND} -E echo "no doxygen: scripts/install-deps.sh --docs installs it"
    COMMAND ${CMAKE_COMMAND} -E false VERBATIM)
endif()
