/* SPDX-License-Identifier: Apache-2.0 */
/* The caller's sinks, as targets of a file's bytes. */
#ifndef BASE_SINK_H
#define BASE_SINK_H

#include "base/file.h"

/* Copies a caller's sink. ARGUMENT: it is NULL, or cannot write. */
yoke_status yoke_sink_load(yoke_sink *own, const yoke_sink *given);
/* A writer to a sink that yoke_sink_load has checked. */
yoke_status yoke_sink_open(yoke_file_writer *writer, const yoke_sink *sink);

#endif
