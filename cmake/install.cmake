# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where, and how other builds find it: find_package(yoke) and yoke.pc give the
# shared library, whose dependencies do not show and need not be there for development; find_package(yoke COMPONENTS
# static) and `pkg-config --static` give libyoke.a with what it needs. Components, a Debian package each (packages.cmake): runtime, tool, and development for
# all else.
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)
set(YOKE_CONFIG_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/yoke)
set(YOKE_MODULES "jansson libxxhash libsodium libjpeg libpng") # what libyoke.a needs, by pkg-config
if(YOKE_HAS_PCRE2)
  string(APPEND YOKE_MODULES " libpcre2-8")
endif()
if(YOKE_HAS_ONNX)
  string(APPEND YOKE_MODULES " libprotobuf-c")
endif()

install(TARGETS yoke_shared EXPORT yokeTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
  NAMELINK_COMPONENT development)
install(TARGETS yoke_static EXPORT yokeStaticTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
set_target_properties(yoke_shared PROPERTIES EXPORT_NAME yoke)
install(TARGETS yoke-tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tool)
if(YOKE_HAS_MPI)
  install(TARGETS yoke_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/yoke${YOKE_ABI} COMPONENT runtime)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/yoke DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

foreach(targets yokeTargets yokeStaticTargets)
  install(EXPORT ${targets} NAMESPACE yoke:: DESTINATION ${YOKE_CONFIG_FOLDER})
endforeach()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/yokeConfig.cmake.in
  ${PROJECT_BINARY_DIR}/yokeConfig.cmake INSTALL_DESTINATION ${YOKE_CONFIG_FOLDER})
set(compatible SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatible SameMinorVersion) # a new 0.MINOR may break programs
endif()
write_basic_package_version_file(${PROJECT_BINARY_DIR}/yokeConfigVersion.cmake COMPATIBILITY ${compatible})
install(FILES ${PROJECT_BINARY_DIR}/yokeConfig.cmake ${PROJECT_BINARY_DIR}/yokeConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/FindOneDNN.cmake DESTINATION ${YOKE_CONFIG_FOLDER})

file(RELATIVE_PATH YOKE_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /) # the installation may be moved
list(TRANSFORM OpenMP_C_LIB_NAMES PREPEND " -l" OUTPUT_VARIABLE YOKE_PC_OPENMP) # gcc's gomp or clang's omp
list(JOIN YOKE_PC_OPENMP "" YOKE_PC_OPENMP)
# Words for the linker, not Requires.private: for that pkg-config wants each package's file, also for --cflags alone.
string(REPLACE " " ";" modules "${YOKE_MODULES}")
set(words)
foreach(module ${modules})
  string(REGEX REPLACE "^lib" "" module ${module})
  string(TOUPPER ${module} module)
  list(APPEND words ${${module}_LDFLAGS})
endforeach()
list(APPEND words -lz) # behind libpng, which needs it
foreach(folder ${CMAKE_C_IMPLICIT_LINK_DIRECTORIES})
  list(REMOVE_ITEM words -L${folder})
endforeach()
list(REMOVE_DUPLICATES words)
list(JOIN words " " YOKE_PC_PRIVATE)
if(PROJECT_HOMEPAGE_URL)
  set(YOKE_PC_URL "\nURL: ${PROJECT_HOMEPAGE_URL}")
endif()
if(YOKE_HAS_CUDA)
  set(YOKE_PC_CUDA " ${CUDART_STATIC} -ldl -lrt -lstdc++")
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/yoke.pc.in ${PROJECT_BINARY_DIR}/yoke.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/yoke.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
