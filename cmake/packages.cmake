# SPDX-License-Identifier: Apache-2.0
# What only an installation has: the manual page, completions and documents. And the three Debian packages that cpack
# makes of a build for /usr: scripts/package.sh.

# The tool prints its page and its completions itself.
if(YOKE_TSAN)
  yoke_note(manual no "" "YOKE_TSAN: such programs may need setarch -R to start: neither yoke.1 nor completions")
elseif(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
  yoke_note(manual no "" "cross-compiling without CMAKE_CROSSCOMPILING_EMULATOR: neither yoke.1 nor completions")
else()
  set(pages ${PROJECT_BINARY_DIR}/pages)
  file(MAKE_DIRECTORY ${pages})
  foreach(row "yoke.1:help;--man" "yoke:completion;bash" "_yoke:completion;zsh" "yoke.fish:completion;fish")
    string(REGEX REPLACE ":.*" "" file "${row}")
    string(REGEX REPLACE ".*:" "" words "${row}")
    add_custom_command(OUTPUT ${pages}/${file} DEPENDS yoke-tool VERBATIM COMMAND sh -c "to=$1; shift; \"$@\" >\"$to\"" -
      ${pages}/${file} ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:yoke-tool> ${words})
    list(APPEND made ${pages}/${file})
  endforeach()
  add_custom_target(yoke_pages ALL DEPENDS ${made})
  install(FILES ${pages}/yoke.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tool)
  install(FILES ${pages}/yoke DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT tool)
  install(FILES ${pages}/_yoke DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT tool)
  install(FILES ${pages}/yoke.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT tool)
endif()
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tool)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tool PATTERN Doxyfile EXCLUDE
  REGEX "/docs/play/(build\\.py|door\\.c|libc|play\\.|template|settings|resnet50|__pycache__)" EXCLUDE) # what builds the page
install(DIRECTORY samples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)

if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr" OR CMAKE_CROSSCOMPILING OR NOT EXISTS /etc/debian_version)
  return()
endif()
set(YOKE_PACKAGE_CONTACT "Yoke developers <yoke@packages.invalid>" CACHE STRING "Maintainer of the Debian packages")
# Debian 13 has other versions of the libraries than Debian 12, and its packages replace those of Debian 12.
file(READ /etc/os-release release)
string(REGEX MATCH "(^|\n)ID=\"?([a-z]+)" found "${release}")
set(system ${CMAKE_MATCH_2})
string(REGEX MATCH "\nVERSION_ID=\"?([0-9.]+)" found "${release}") # a release that is still in the making has none
set(revision 1+${system}${CMAKE_MATCH_1})
set(CPACK_GENERATOR DEB)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_DEBIAN_PACKAGE_RELEASE ${revision})
set(version ${PROJECT_VERSION}-${revision})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_CONTACT "${YOKE_PACKAGE_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package has its own
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
  WORLD_READ WORLD_EXECUTE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL runtime development tool)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/debian_tree.cmake)
set(CPACK_YOKE_SOURCE ${PROJECT_SOURCE_DIR})
set(CPACK_YOKE_STRIP ${CMAKE_STRIP})

set(about "Yoke splits every batch of a training over the devices of a machine, as
PyTorch's DataParallel does, with threads in one process, and also runs one
process per device, as DistributedDataParallel does.

")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libyoke${YOKE_ABI})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION
  "data-parallel training of one model on many devices - library\n${about}This is the shared library.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libyoke-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
get_property(dev_packages GLOBAL PROPERTY YOKE_DEV_PACKAGES)
list(JOIN dev_packages ", " dev_packages)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libyoke${YOKE_ABI} (= ${version})")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_RECOMMENDS "${dev_packages}") # for libyoke.a
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION
  "data-parallel training of one model on many devices - C headers\n${about}These are the headers, the static library and samples.")
set(CPACK_DEBIAN_TOOL_PACKAGE_NAME yoke)
set(CPACK_DEBIAN_TOOL_PACKAGE_SECTION science)
set(CPACK_DEBIAN_TOOL_DESCRIPTION
  "data-parallel training of one model on many devices - command\n${about}This is the command, with its manual and its documents.")
if(YOKE_HAS_MPI) # the tool opens its module
  set(CPACK_DEBIAN_TOOL_PACKAGE_DEPENDS "libyoke${YOKE_ABI} (= ${version})")
endif()

# A program built against this version wants it or a newer one with the same name.
set(control ${PROJECT_BINARY_DIR}/debian)
file(WRITE ${control}/shlibs "libyoke ${YOKE_ABI} libyoke${YOKE_ABI} (>= ${PROJECT_VERSION})\n")
file(WRITE ${control}/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${control}/shlibs ${control}/triggers)
include(CPack)
