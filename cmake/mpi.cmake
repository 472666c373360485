# MPI in the build, or why not. Sets YOKE_HAS_MPI; yoke_mpi is what to compile and link with.
yoke_feature(MPI)
set(missing)
if(YOKE_WITH_MPI)
  find_package(MPI 3.1 QUIET COMPONENTS C)
endif()
if(NOT MPI_C_FOUND)
  set(missing "no MPI of version 3.1 or newer was found: install one (Debian: libopenmpi-dev) or name its compiler with -DMPI_C_COMPILER=FILE")
endif()
list(JOIN MPI_C_LIBRARIES " " library) # empty without an MPI
yoke_decide(MPI MPI "${missing}" "${MPI_C_VERSION}" "${library}")

add_library(yoke_mpi INTERFACE)
if(YOKE_HAS_MPI)
  target_compile_definitions(yoke_mpi INTERFACE YOKE_HAS_MPI)
  target_link_libraries(yoke_mpi INTERFACE MPI::MPI_C)
endif()
