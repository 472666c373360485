# SPDX-License-Identifier: Apache-2.0
# What a build may have or lack: YOKE_WITH_<feature> = AUTO, ON or OFF, and the table that says what came of it.

function(yoke_feature feature)
  set(YOKE_WITH_${feature} AUTO CACHE STRING "${feature}: AUTO takes what is found, ON insists, OFF goes without")
  set_property(CACHE YOKE_WITH_${feature} PROPERTY STRINGS AUTO ON OFF)
endfunction()

function(yoke_note name in_build version from)
  string(SUBSTRING "${name}        " 0 8 name)
  string(SUBSTRING "${in_build}    " 0 4 in_build)
  string(SUBSTRING "${version}         " 0 9 version)
  set_property(GLOBAL APPEND_STRING PROPERTY YOKE_NOTES "\n     ${name}${in_build}${version}${from}")
endfunction()

function(yoke_print_notes)
  get_property(notes GLOBAL PROPERTY YOKE_NOTES)
  message(STATUS "In this build of Yoke:${notes}")
endfunction()

# Sets YOKE_HAS_<feature> and notes it. `missing`: what stands against it, with the fix; "" when nothing does.
function(yoke_decide feature name missing version from)
  if(NOT YOKE_WITH_${feature})
    set(missing "YOKE_WITH_${feature}=${YOKE_WITH_${feature}}")
  elseif(missing AND NOT YOKE_WITH_${feature} STREQUAL "AUTO")
    message(FATAL_ERROR "YOKE_WITH_${feature}=${YOKE_WITH_${feature}} can't be met: ${missing}")
  endif()
  if(missing)
    set(YOKE_HAS_${feature} OFF PARENT_SCOPE)
    yoke_note(${name} no "" "${missing}")
  else()
    set(YOKE_HAS_${feature} ON PARENT_SCOPE)
    yoke_note(${name} yes "${version}" "${from}")
  endif()
endfunction()
