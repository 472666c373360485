# SPDX-License-Identifier: Apache-2.0
# What Debian asks of a package's files and `cmake --install` does not do. cpack runs it before it packs.
set(version ${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})
string(TIMESTAMP today "%a, %d %b %Y %H:%M:%S +0000" UTC) # SOURCE_DATE_EPOCH, where it is set

function(compress file)
  execute_process(COMMAND gzip -9nf ${file} COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND chmod 644 ${file}.gz COMMAND_ERROR_IS_FATAL ANY)
endfunction()

foreach(component ${CPACK_COMPONENTS_ALL})
  string(TOUPPER ${component} upper)
  set(package ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  set(tree ${CPACK_TEMPORARY_DIRECTORY}/${component}/usr)
  set(doc ${tree}/share/doc/${package})
  file(REMOVE ${doc}/LICENSE ${doc}/CHANGELOG.md)
  if(component STREQUAL "development")
    file(MAKE_DIRECTORY ${doc})
    file(RENAME ${tree}/share/doc/yoke/samples ${doc}/examples)
    file(REMOVE_RECURSE ${tree}/share/doc/yoke)
  endif()
  file(WRITE ${doc}/copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: yoke

Files: *
Copyright: 2026 the contributors of Yoke
License: Apache-2.0
 On Debian systems, the text of the Apache License 2.0 is in
 /usr/share/common-licenses/Apache-2.0.
")
  file(COPY_FILE ${CPACK_YOKE_SOURCE}/CHANGELOG.md ${doc}/changelog)
  file(WRITE ${doc}/changelog.Debian "yoke (${version}) unstable; urgency=medium

  * Packages of this version; changelog.gz says what changed in it.

 -- ${CPACK_PACKAGE_CONTACT}  ${today}
")
  compress(${doc}/changelog)
  compress(${doc}/changelog.Debian)
  execute_process(COMMAND chmod -R u=rwX,go=rX ${tree} COMMAND_ERROR_IS_FATAL ANY)
endforeach()

set(tool ${CPACK_TEMPORARY_DIRECTORY}/tool/usr/share)
compress(${tool}/man/man1/yoke.1)
file(RENAME ${tool}/zsh/site-functions ${tool}/zsh/vendor-completions)

# As dh_strip does.
file(GLOB_RECURSE archives ${CPACK_TEMPORARY_DIRECTORY}/development/*.a)
file(GLOB_RECURSE linked ${CPACK_TEMPORARY_DIRECTORY}/runtime/*.so.* ${CPACK_TEMPORARY_DIRECTORY}/runtime/*.so
  ${CPACK_TEMPORARY_DIRECTORY}/tool/usr/bin/*)
execute_process(COMMAND ${CPACK_YOKE_STRIP} --strip-debug --remove-section=.comment --remove-section=.note
  --enable-deterministic-archives ${archives} COMMAND_ERROR_IS_FATAL ANY)
foreach(file ${linked})
  if(NOT IS_SYMLINK ${file})
    execute_process(COMMAND ${CPACK_YOKE_STRIP} --strip-unneeded --remove-section=.comment --remove-section=.note ${file}
      COMMAND_ERROR_IS_FATAL ANY)
  endif()
endforeach()
