/* Yoke: data-parallel training on all the devices of one machine from one process.
 *
 * Calls that answer a yoke_status check their pointers; those that return a value directly expect
 * an object that exists. destroy and close take NULL. */
#ifndef YOKE_YOKE_H
#define YOKE_YOKE_H

#include "yoke/data_parallel.h"
#include "yoke/dataset.h"
#include "yoke/device.h"
#include "yoke/distributed.h"
#include "yoke/model.h"
#include "yoke/optimizer.h"
#include "yoke/status.h"
#include "yoke/trace.h"
#include "yoke/trainer.h"

#endif
