# SPDX-License-Identifier: Apache-2.0
# libyoke.a, as programs link it: one object whose only global names are the functions of include/yoke, so that no name of
# the library's inside meets one of the program's. They are hidden: a plugin that links the archive does not export them.
# Sets YOKE_STATIC_OBJECT. The tool and the tests link the objects as they were compiled.
set(folder ${PROJECT_BINARY_DIR}/static)
file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/yoke/*.h)
set(list_names ${CMAKE_CURRENT_LIST_DIR}/list_public_names.cmake)
add_custom_command(OUTPUT ${folder}/public.txt ${folder}/hidden.c DEPENDS ${headers} ${list_names} VERBATIM
  COMMAND ${CMAKE_COMMAND} -DHEADERS=${PROJECT_SOURCE_DIR}/include/yoke -DFOLDER=${folder} -P ${list_names})
add_library(yoke_hidden OBJECT ${folder}/hidden.c)

file(GENERATE OUTPUT ${folder}/objects.txt CONTENT
  "\"$<JOIN:$<TARGET_OBJECTS:yoke_objects>;$<TARGET_OBJECTS:yoke_cuda_objects>;$<TARGET_OBJECTS:yoke_hidden>,\"\n\">\"\n")
separate_arguments(words NATIVE_COMMAND "${CMAKE_C_FLAGS}")
list(FILTER words INCLUDE REGEX "^-(m|B|flto|fuse-ld|-target)") # for which machine, by which linker
if(CMAKE_C_COMPILER_TARGET)
  list(APPEND words ${CMAKE_C_COMPILE_OPTIONS_TARGET}${CMAKE_C_COMPILER_TARGET})
endif()
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  list(APPEND words -flinker-output=nolto-rel) # objects of -flto become code, which objcopy understands
endif()
include(CheckLinkerFlag)
check_linker_flag(C -Wl,--force-group-allocation YOKE_LINKER_DISSOLVES_GROUPS)
if(YOKE_LINKER_DISSOLVES_GROUPS) # of C++: a program's linker would drop a group whose names are local here
  list(APPEND words -Wl,--force-group-allocation)
endif()
set(YOKE_STATIC_OBJECT ${folder}/yoke.o)
add_custom_command(OUTPUT ${YOKE_STATIC_OBJECT} VERBATIM COMMENT "Joining the objects of libyoke.a"
  DEPENDS ${folder}/public.txt ${folder}/objects.txt $<TARGET_OBJECTS:yoke_objects> $<TARGET_OBJECTS:yoke_cuda_objects>
    $<TARGET_OBJECTS:yoke_hidden>
  COMMAND ${CMAKE_C_COMPILER} ${words} -r -nostdlib -o ${folder}/joined.o @${folder}/objects.txt
  COMMAND ${CMAKE_OBJCOPY} --keep-global-symbols=${folder}/public.txt ${folder}/joined.o ${YOKE_STATIC_OBJECT}
  COMMAND ${CMAKE_COMMAND} -E rm ${folder}/joined.o)
