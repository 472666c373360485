# SPDX-License-Identifier: Apache-2.0
# FOLDER/public.txt: the functions of the headers in HEADERS, one a line. FOLDER/hidden.c, which refers to each as hidden:
# what a linker joins with it is hidden, too. Weak: a function that is
# declared and not there stops only who calls it.
file(GLOB headers ${HEADERS}/*.h)
set(names)
foreach(header ${headers})
  file(READ ${header} text)
  string(REGEX MATCHALL "\nYOKE_API [^(;]*[ *\n]yoke_[a-z0-9_]+\\(" declarations "${text}")
  foreach(declaration ${declarations})
    string(REGEX REPLACE ".*[ *\n](yoke_[a-z0-9_]+)\\(" "\\1" name "${declaration}")
    list(APPEND names ${name})
  endforeach()
endforeach()
list(JOIN names "\n" lines)
file(WRITE ${FOLDER}/public.txt "${lines}\n")
# Without a use it would be no symbol; linkers leave a section with the flag e out of programs.
list(TRANSFORM names REPLACE "(.+)" "__asm__(\".weak \\1\\\\n.hidden \\1\\\\n.8byte \\1\")")
list(JOIN names ";\n" lines)
set(section "__asm__(\".section .yoke.names,\\\"e\\\"\");")
file(WRITE ${FOLDER}/hidden.c "${section}\n${lines};\n__asm__(\".text\");\n")
