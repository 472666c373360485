# SPDX-License-Identifier: Apache-2.0
# yoke_require(NAME VERSION LEAST BELOW PACKAGE): Yoke can't do without it. VERSION is what was found, empty for nothing;
# BELOW is the first version that is too new, "" when every later one serves. PACKAGE is Debian's and Ubuntu's; the
# property YOKE_DEV_PACKAGES lists those that a program links beside libyoke.a.
function(yoke_require name version least below package)
  set(accepted "${least} or newer")
  if(below)
    string(APPEND accepted " but older than ${below}")
  endif()
  if(NOT version)
    set(wrong "${name} was not found")
  elseif(version VERSION_LESS least)
    set(wrong "${name} ${version} is too old")
  elseif(below AND version VERSION_GREATER_EQUAL below)
    set(wrong "${name} ${version} is too new")
  else()
    if(package MATCHES "^[^ ]+-dev$")
      set_property(GLOBAL APPEND PROPERTY YOKE_DEV_PACKAGES ${package})
    endif()
    return()
  endif()
  message(FATAL_ERROR "${wrong}: Yoke takes ${accepted}. Install ${package} (scripts/install-deps.sh does), or name another place with -DCMAKE_PREFIX_PATH=FOLDER.")
endfunction()
