/* SPDX-License-Identifier: Apache-2.0 */
/* The door of base: things that know neither tensors nor devices. */
#ifndef BASE_BASE_H
#define BASE_BASE_H

#include "base/bfloat16.h"
#include "base/cancel.h"
#include "base/chunk.h"
#include "base/clock.h"
#include "base/element.h"
#include "base/error.h"
#include "base/file.h"
#include "base/file_reader.h"
#include "base/float16.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/precision.h"
#ifndef __cplusplus /* kernels include base, and C++ has no _Atomic */
#include "base/shown_struct.h"
#endif
#include "base/random.h"
#include "base/room.h"
#include "base/same_file.h"
#include "base/signals.h"
#include "base/sink.h"
#include "base/spin.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/tree.h"
#include "base/workers.h"

#endif
