/* Where the tool keeps the choices of measured algorithms. */
#ifndef CLI_CHOICES_PLACE_H
#define CLI_CHOICES_PLACE_H

#include <stdbool.h>

typedef struct choices_path {
    char text[4096];
} choices_path;

/* The file that --choices names; NULL for "none". given NULL: choices-1.txt in $XDG_CACHE_HOME/yoke
 * or ~/.cache/yoke, whose folders it makes; NULL when the environment has neither, which it says on
 * stderr if `speaks`. */
const char *choices_place(choices_path *path, const char *given, bool speaks);

#endif
