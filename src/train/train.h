/* The door of train: the room that sees the whole road. Its public face is yoke/trainer.h. */
#ifndef TRAIN_TRAIN_H
#define TRAIN_TRAIN_H

#include "train/metrics.h"
#include "train/safetensors.h"
#include "yoke/trainer.h"

#endif
