# SPDX-License-Identifier: Apache-2.0
# NCCL: sets NCCL_FOUND, NCCL_VERSION, NCCL_INCLUDE_DIR, NCCL_LIBRARY (a full path) and NCCL_PLACE (where it came from).
# NCCL_ROOT or NCCL_HOME name another place than those of cuda_places.cmake.
include(${CMAKE_CURRENT_LIST_DIR}/cuda_places.cmake)
yoke_cuda_places(places NCCL_ROOT CUDAToolkit_ROOT NCCL_HOME)
yoke_cuda_find(NCCL LIBRARY nccl HEADER nccl.h VERSION nccl.h NCCL_MAJOR NCCL_MINOR NCCL_PATCH PLACES ${places})
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
