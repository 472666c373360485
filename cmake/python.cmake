# SPDX-License-Identifier: Apache-2.0
# The parts of a wheel that are not Python (pyproject.toml), and layout.json for the tests of a build folder: the module
# reads the structs and functions of the headers from it. Without Python nobody needs it.
find_package(Python3 COMPONENTS Interpreter QUIET)
if(NOT Python3_Interpreter_FOUND)
  return()
endif()
set(YOKE_LAYOUT ${PROJECT_BINARY_DIR}/layout.json)
file(GLOB YOKE_PUBLIC_HEADERS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/yoke/*.h)
set(YOKE_MAKE_LAYOUT ${CMAKE_CURRENT_LIST_DIR}/make_layout.py)
set(YOKE_OTHER_WORDS ${PROJECT_SOURCE_DIR}/src/cli/other_words.c)
add_custom_command(OUTPUT ${YOKE_LAYOUT} VERBATIM DEPENDS ${YOKE_MAKE_LAYOUT} ${YOKE_PUBLIC_HEADERS} ${YOKE_OTHER_WORDS}
  COMMAND Python3::Interpreter ${YOKE_MAKE_LAYOUT} ${CMAKE_C_COMPILER} ${PROJECT_SOURCE_DIR}/include ${YOKE_OTHER_WORDS} ${YOKE_LAYOUT})
set(YOKE_STUBS ${PROJECT_BINARY_DIR}/_declared.pyi) # of the same declarations, for editors and type checkers
set(YOKE_MAKE_STUBS ${CMAKE_CURRENT_LIST_DIR}/make_stubs.py)
add_custom_command(OUTPUT ${YOKE_STUBS} VERBATIM DEPENDS ${YOKE_MAKE_STUBS} ${YOKE_LAYOUT}
  COMMAND Python3::Interpreter ${YOKE_MAKE_STUBS} ${YOKE_LAYOUT} ${YOKE_STUBS})
add_custom_target(yoke-layout ALL DEPENDS ${YOKE_LAYOUT} ${YOKE_STUBS})

if(SKBUILD) # one file a library, because wheels keep no symbolic links
  install(FILES $<TARGET_FILE:yoke_shared> DESTINATION yoke RENAME libyoke.so COMPONENT python)
  install(FILES ${YOKE_LAYOUT} ${YOKE_STUBS} DESTINATION yoke COMPONENT python)
  # The tool lies beside the library, so that it finds a portable wheel's libraries; the environment's command runs it.
  install(PROGRAMS $<TARGET_FILE:yoke-tool> DESTINATION yoke COMPONENT python)
  install(PROGRAMS ${CMAKE_CURRENT_LIST_DIR}/wheel_command.py DESTINATION ${SKBUILD_SCRIPTS_DIR} RENAME yoke COMPONENT python)
  if(YOKE_HAS_MPI) # the library and the tool look for it beside themselves
    install(FILES $<TARGET_FILE:yoke_mpi> DESTINATION yoke COMPONENT python)
  endif()
endif()
