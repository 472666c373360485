# SPDX-License-Identifier: Apache-2.0
# cuDNN: sets CUDNN_FOUND, CUDNN_VERSION, CUDNN_INCLUDE_DIR, CUDNN_LIBRARY (a full path) and CUDNN_PLACE (where it came
# from). CUDNN_ROOT or CUDNN_HOME name another place than those of cuda_places.cmake.
include(${CMAKE_CURRENT_LIST_DIR}/cuda_places.cmake)
yoke_cuda_places(places CUDNN_ROOT CUDAToolkit_ROOT CUDNN_HOME)
yoke_cuda_find(CUDNN LIBRARY cudnn HEADER cudnn.h PLACES ${places}
  VERSION cudnn_version.h CUDNN_MAJOR CUDNN_MINOR CUDNN_PATCHLEVEL)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN REQUIRED_VARS CUDNN_INCLUDE_DIR VERSION_VAR CUDNN_VERSION)
