# SPDX-License-Identifier: Apache-2.0
# OUTPUT: a C source with the page's script, style and words as arrays of bytes, which no limit of string literals cuts.
# cmake -DFOLDER=src/report/page -DOUTPUT=page_files.c -P embed_page.cmake
set(text "/* SPDX-License-Identifier: Apache-2.0 */\n/* Made of src/report/page by cmake/embed_page.cmake. */\n")
foreach(pair script:page.js style:page.css words:words.txt)
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 name)
  list(GET pair 1 file)
  file(READ ${FOLDER}/${file} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND text "extern const unsigned char yoke_page_${name}[];\nconst unsigned char yoke_page_${name}[] = {${bytes}0};\n")
endforeach()
file(WRITE ${OUTPUT} "${text}")
