# What `cmake --install` puts where, and how other builds find it: find_package(yoke) and yoke.pc give the
# shared library, whose dependencies do not show; `pkg-config --static` lists what libyoke.a needs.
include(CMakePackageConfigHelpers)
set(YOKE_CONFIG_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/yoke)

install(TARGETS yoke_shared EXPORT yokeTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS yoke ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
set_target_properties(yoke_shared PROPERTIES EXPORT_NAME yoke)
install(TARGETS yoke-tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(YOKE_HAS_MPI)
  install(TARGETS yoke_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/yoke)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/yoke DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

install(EXPORT yokeTargets NAMESPACE yoke:: DESTINATION ${YOKE_CONFIG_FOLDER})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/yokeConfig.cmake.in
  ${PROJECT_BINARY_DIR}/yokeConfig.cmake INSTALL_DESTINATION ${YOKE_CONFIG_FOLDER})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/yokeConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/yokeConfig.cmake ${PROJECT_BINARY_DIR}/yokeConfigVersion.cmake
  DESTINATION ${YOKE_CONFIG_FOLDER})

file(RELATIVE_PATH YOKE_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /) # the installation may be moved
if(YOKE_HAS_CUDA)
  set(YOKE_PC_CUDA " ${CUDART_STATIC} -ldl -lrt -lstdc++")
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/yoke.pc.in ${PROJECT_BINARY_DIR}/yoke.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/yoke.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# What pyproject.toml adds to a wheel, beside the module: one file a library, because wheels keep no symbolic links.
install(FILES $<TARGET_FILE:yoke_shared> DESTINATION yoke RENAME libyoke.so COMPONENT python EXCLUDE_FROM_ALL)
install(PROGRAMS $<TARGET_FILE:yoke-tool> DESTINATION yoke COMPONENT python EXCLUDE_FROM_ALL)
if(YOKE_HAS_MPI)
  install(FILES $<TARGET_FILE:yoke_mpi> DESTINATION yoke COMPONENT python EXCLUDE_FROM_ALL)
endif()
