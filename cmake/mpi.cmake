# SPDX-License-Identifier: Apache-2.0
# MPI in the build, or why not. Sets YOKE_HAS_MPI; the target yoke_mpi is libyoke_mpi.so, which alone needs MPI: Yoke
# opens it when the MPI transport is asked for.
yoke_feature(MPI)
set(missing)
if(YOKE_WITH_MPI)
  # Debian's mpicc.mpich comes with an mpiexec.mpich.
  if(MPI_C_COMPILER MATCHES "/?mpicc(\\.[^/]+)$" AND NOT DEFINED MPI_EXECUTABLE_SUFFIX)
    set(MPI_EXECUTABLE_SUFFIX ${CMAKE_MATCH_1})
  endif()
  find_package(MPI 3.1 QUIET COMPONENTS C)
endif()
if(NOT MPI_C_FOUND)
  set(missing "no MPI of version 3.1 or newer was found: install one (Debian: libopenmpi-dev openmpi-bin) or name its compiler with -DMPI_C_COMPILER=FILE")
endif()
list(JOIN MPI_C_LIBRARIES " " library) # empty without an MPI
yoke_decide(MPI MPI "${missing}" "${MPI_C_VERSION}" "${library}")

if(YOKE_HAS_MPI)
  add_library(yoke_mpi MODULE ${PROJECT_SOURCE_DIR}/src/distributed/mpi/module/mpi_module.c)
  target_include_directories(yoke_mpi PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(yoke_mpi PRIVATE yoke_flags MPI::MPI_C)
  set_target_properties(yoke_mpi PROPERTIES C_VISIBILITY_PRESET hidden INSTALL_RPATH_USE_LINK_PATH ON)

  # Where it lies: from the tool's folder as installed, and for a program that is elsewhere.
  file(RELATIVE_PATH from_tool ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/yoke${YOKE_ABI})
  set(folder ${CMAKE_INSTALL_FULL_LIBDIR}/yoke${YOKE_ABI})
  if(NOT PROJECT_IS_TOP_LEVEL) # who adds this folder does not install it
    set(folder $<TARGET_FILE_DIR:yoke_mpi>)
  endif()
  set_source_files_properties(src/distributed/mpi/mpi_library.c PROPERTIES COMPILE_DEFINITIONS
    "YOKE_HAS_MPI;YOKE_MPI_BESIDE=\"yoke${YOKE_ABI}\";YOKE_MPI_FROM_TOOL=\"${from_tool}\";YOKE_MPI_FOLDER=\"${folder}\"")
endif()
