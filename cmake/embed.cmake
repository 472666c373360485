# SPDX-License-Identifier: Apache-2.0
# As a script, cmake -DFILE=... -DNAME=... -DOUTPUT=... -P embed.cmake: writes a C source with the text of a file as the
# array NAME, ended by 0; an array, because C limits the length of a string literal. Included, it has
# yoke_embed(LIST NAME FILE), which appends such a source to a list of sources.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${FILE} bytes HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
  file(WRITE ${OUTPUT} "/* The text of ${NAME}; cmake/embed.cmake writes this file. */\n"
    "extern const char ${NAME}[];\nconst char ${NAME}[] = {${bytes}0};\n")
  return()
endif()

set(YOKE_EMBED ${CMAKE_CURRENT_LIST_FILE})
function(yoke_embed list name file)
  get_filename_component(file ${file} ABSOLUTE)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/embedded/${name}.c)
  add_custom_command(OUTPUT ${source} DEPENDS ${file} ${YOKE_EMBED} VERBATIM
    COMMAND ${CMAKE_COMMAND} -DFILE=${file} -DNAME=${name} -DOUTPUT=${source} -P ${YOKE_EMBED})
  set(${list} ${${list}} ${source} PARENT_SCOPE)
endfunction()
