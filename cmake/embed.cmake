# SPDX-License-Identifier: Apache-2.0
# As a script, cmake -DFILE=... -DNAME=... -DOUTPUT=... -P embed.cmake: writes a C source with the text of a file as the
# array NAME, ended by 0. Included, it has yoke_embed(TARGET NAME FILE), which adds such a source to a target.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${FILE} bytes HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1, " bytes "${bytes}")
  file(WRITE ${OUTPUT} "/* The text of ${NAME}; cmake/embed.cmake writes this file. */\n"
    "extern const char ${NAME}[];\nconst char ${NAME}[] = {${bytes}0};\n")
  return()
endif()

set(YOKE_EMBED ${CMAKE_CURRENT_LIST_FILE})
function(yoke_embed target name file)
  get_filename_component(file ${file} ABSOLUTE)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/embedded/${name}.c)
  add_custom_command(OUTPUT ${source} DEPENDS ${file} ${YOKE_EMBED} VERBATIM
    COMMAND ${CMAKE_COMMAND} -DFILE=${file} -DNAME=${name} -DOUTPUT=${source} -P ${YOKE_EMBED})
  target_sources(${target} PRIVATE ${source})
endfunction()
