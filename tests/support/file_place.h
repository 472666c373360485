/* SPDX-License-Identifier: Apache-2.0 */
/* Places of files for calls of the library's inside. */
#ifndef SUPPORT_FILE_PLACE_H
#define SUPPORT_FILE_PLACE_H

#include "base/file.h"
#include "base/file_reader.h"

#define FROM(place) (&(const yoke_file_source){.path = (place)})
#define FROM_BYTES(data, length)                                                                   \
    (&(const yoke_file_source){.path = YOKE_BYTES_NAME, .bytes = (data), .count = (length)})
#define TO(place) (&(const yoke_file_target){.path = (place)})

#endif
