/* SPDX-License-Identifier: Apache-2.0 */
/* The door of train: from dataset to checkpoint. The public interface is yoke/trainer.h. */
#ifndef TRAIN_TRAIN_H
#define TRAIN_TRAIN_H

#include "train/metrics.h"
#include "train/safetensors.h"
#include "yoke/trainer.h"

#endif
