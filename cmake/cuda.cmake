# SPDX-License-Identifier: Apache-2.0
# CUDA in the build, or why not. Sets YOKE_HAS_CUDA, YOKE_HAS_CUDNN and YOKE_HAS_NCCL; yoke_cuda is what to compile
# with (headers, definitions, flags) and yoke_cuda_runtime what to link. With YOKE_SIMCUDA the GPUs are those of
# tests/simcuda, .cu files are C++, and the toolkit's headers are enough.
include(${CMAKE_CURRENT_LIST_DIR}/cuda_places.cmake)
include(CheckLanguage)
yoke_feature(CUDA)
yoke_feature(CUDNN)
yoke_feature(NCCL)
option(YOKE_SIMCUDA "Simulated GPUs in place of CUDA, for tests" OFF)
option(YOKE_SIMCOUNT "Simulated GPUs that count what kernels move, for yoke bench --kernels --count" OFF)

# What people have, as far as this nvcc knows it, and PTX of the newest for what comes later. Not "native", which
# fails without a GPU.
function(yoke_choose_architectures)
  if(DEFINED CMAKE_CUDA_ARCHITECTURES OR DEFINED ENV{CUDAARCHS})
    return()
  endif()
  execute_process(COMMAND ${YOKE_NVCC} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
  foreach(architecture 75 80 86 89 90 100 120)
    if(known MATCHES "compute_${architecture}\n")
      list(APPEND chosen ${architecture}-real)
      set(newest ${architecture}-virtual)
    endif()
  endforeach()
  set(CMAKE_CUDA_ARCHITECTURES ${chosen} ${newest} PARENT_SCOPE)
endfunction()

set(missing)
set(advice "install the CUDA toolkit or name it with -DCUDAToolkit_ROOT=FOLDER")
if(YOKE_WITH_CUDA OR YOKE_SIMCUDA)
  yoke_find_toolkit()
  yoke_cuda_places(places CUDAToolkit_ROOT)
  # The compiler's own header first: a wheel of the runtime comes without crt/, which the header needs.
  set(compiler)
  if(YOKE_NVCC)
    set(compiler "${YOKE_CUDA_ROOT}|${YOKE_CUDA_PLACE}")
  endif()
  yoke_cuda_find(CUDART HEADER cuda_runtime_api.h VERSION cuda_runtime_api.h CUDART_VERSION
    PLACES ${compiler} ${places})
  yoke_cuda_find(CUBLASLT LIBRARY cublasLt HEADER cublasLt.h PLACES ${places}
    VERSION cublas_api.h CUBLAS_VER_MAJOR CUBLAS_VER_MINOR CUBLAS_VER_PATCH)
  find_package(CUDNN 9 QUIET)
  find_package(NCCL 2.22 QUIET) # aborts in groups
endif()

if(YOKE_SIMCUDA)
  if(NOT CUDART_INCLUDE_DIR OR NOT CUBLASLT_INCLUDE_DIR)
    message(FATAL_ERROR "YOKE_SIMCUDA needs the headers of the CUDA toolkit and of cuBLAS: ${advice}")
  endif()
  enable_language(CXX)
  set(CMAKE_CXX_STANDARD 17)
elseif(YOKE_WITH_CUDA AND NOT YOKE_NVCC)
  set(missing "there is no nvcc: ${advice}")
elseif(YOKE_WITH_CUDA AND NOT CUBLASLT_LIBRARY)
  set(missing "there is no cublasLt.h with its library: install the whole CUDA toolkit")
elseif(YOKE_WITH_CUDA)
  set(ENV{CUDACXX} ${YOKE_NVCC})
  if(NOT CMAKE_CUDA_COMPILER)
    unset(CMAKE_CUDA_COMPILER CACHE) # of an earlier failure
    check_language(CUDA)
  endif()
  if(CMAKE_CUDA_COMPILER)
    yoke_choose_architectures()
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 17)
    set(CMAKE_CUDA_RUNTIME_LIBRARY None) # yoke_cuda_runtime brings it
    find_library(CUDART_STATIC libcudart_static.a NO_CACHE NO_DEFAULT_PATH
      PATHS ${CMAKE_CUDA_HOST_IMPLICIT_LINK_DIRECTORIES} ${YOKE_CUDA_ROOT}/lib)
  endif()
  if(NOT CMAKE_CUDA_COMPILER)
    set(missing "${YOKE_NVCC} does not work here (CMakeFiles/CMakeError.log): -DCMAKE_CUDA_HOST_COMPILER=g++-NN names another host compiler")
  elseif(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12)
    set(missing "CUDA ${CMAKE_CUDA_COMPILER_VERSION} is older than 12: ${advice}")
  elseif(NOT CUDART_STATIC)
    set(missing "there is no libcudart_static.a beside ${YOKE_NVCC}: install the whole CUDA toolkit")
  endif()
endif()

if(YOKE_SIMCUDA)
  set(YOKE_HAS_CUDA ON)
  yoke_note(CUDA sim "" "simulated GPUs; headers of ${CUDART_PLACE}")
else()
  list(JOIN CMAKE_CUDA_ARCHITECTURES " " architectures)
  if(NOT missing AND YOKE_WITH_CUDA AND SKBUILD)
    message(STATUS "CUDA: nvcc compiles kernels for minutes; "
      "pip install . --config-settings=cmake.define.YOKE_WITH_CUDA=OFF leaves GPUs out")
  endif()
  yoke_decide(CUDA CUDA "${missing}" "${CMAKE_CUDA_COMPILER_VERSION}" "${CUDART_PLACE}; code for ${architectures}")
endif()
foreach(library CUDNN=cuDNN=9 NCCL=NCCL=2.22)
  string(REPLACE "=" ";" library ${library})
  list(POP_FRONT library feature name least)
  set(missing)
  if(NOT YOKE_HAS_CUDA)
    set(missing "CUDA is not in this build")
  elseif(NOT ${feature}_FOUND)
    set(missing "none of version ${least} or newer was found: install it or name it with -D${feature}_ROOT=FOLDER")
  endif()
  yoke_decide(${feature} ${name} "${missing}" "${${feature}_VERSION}" "${${feature}_PLACE}")
endforeach()

add_library(yoke_cuda INTERFACE)
add_library(yoke_cuda_runtime INTERFACE)
if(NOT YOKE_HAS_CUDA)
  return()
endif()
target_include_directories(yoke_cuda SYSTEM INTERFACE ${CUDART_INCLUDE_DIR} ${CUBLASLT_INCLUDE_DIR}
  $<$<BOOL:${YOKE_HAS_CUDNN}>:${CUDNN_INCLUDE_DIR}> $<$<BOOL:${YOKE_HAS_NCCL}>:${NCCL_INCLUDE_DIR}>)
target_compile_definitions(yoke_cuda INTERFACE YOKE_HAS_CUDA $<$<BOOL:${YOKE_HAS_CUDNN}>:YOKE_HAS_CUDNN>
  $<$<BOOL:${YOKE_HAS_NCCL}>:YOKE_HAS_NCCL>)
if(YOKE_SIMCUDA)
  target_compile_definitions(yoke_cuda INTERFACE YOKE_SIMCUDA $<$<BOOL:${YOKE_SIMCOUNT}>:YOKE_SIMCOUNT>)
  target_compile_options(yoke_cuda INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-unknown-pragmas>) # unroll is nvcc's
  target_include_directories(yoke_cuda INTERFACE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(yoke_cuda_runtime INTERFACE simcuda)
else()
  target_compile_options(yoke_cuda INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:--threads 2 -Xcompiler=-Wall,-Wextra>"
    "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${YOKE_WERROR}>>:SHELL:-Werror all-warnings -Xcompiler=-Werror>")
  # nvcc's launch stubs guard their statics as C++ does.
  target_link_libraries(yoke_cuda_runtime INTERFACE ${CUDART_STATIC} Threads::Threads ${CMAKE_DL_LIBS} rt stdc++)
endif()
