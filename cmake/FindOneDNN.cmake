# oneDNN's C API. ONEDNN_ROOT or DNNL_ROOT name another place than the system's. Defines OneDNN::dnnl.
find_path(ONEDNN_INCLUDE_DIR dnnl.h HINTS ${ONEDNN_ROOT} ${DNNL_ROOT} ENV ONEDNN_ROOT ENV DNNL_ROOT PATH_SUFFIXES include)
find_library(ONEDNN_LIBRARY NAMES dnnl HINTS ${ONEDNN_ROOT} ${DNNL_ROOT} ENV ONEDNN_ROOT ENV DNNL_ROOT PATH_SUFFIXES lib)
foreach(header oneapi/dnnl/dnnl_version.h dnnl_version.h)
  if(ONEDNN_INCLUDE_DIR AND EXISTS ${ONEDNN_INCLUDE_DIR}/${header})
    file(STRINGS ${ONEDNN_INCLUDE_DIR}/${header} lines REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH)")
    string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*PATCH +([0-9]+).*" "\\1.\\2.\\3" ONEDNN_VERSION "${lines}")
    if(ONEDNN_VERSION MATCHES "^[0-9.]+$")
      break()
    endif()
  endif()
endforeach()
# Twin files: one speaks the C API of version 2, one that of version 3.
string(REGEX MATCH "^[0-9]+" ONEDNN_MAJOR "${ONEDNN_VERSION}")
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN REQUIRED_VARS ONEDNN_LIBRARY ONEDNN_INCLUDE_DIR VERSION_VAR ONEDNN_VERSION
  REASON_FAILURE_MESSAGE "install libdnnl-dev (scripts/install-deps.sh does) or set -DONEDNN_ROOT=PREFIX")
if(OneDNN_FOUND AND NOT TARGET OneDNN::dnnl)
  add_library(OneDNN::dnnl UNKNOWN IMPORTED)
  set_target_properties(OneDNN::dnnl PROPERTIES IMPORTED_LOCATION ${ONEDNN_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${ONEDNN_INCLUDE_DIR})
endif()
