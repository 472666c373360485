/* SPDX-License-Identifier: Apache-2.0 */
/* Which places of a line a window meets. */
#ifndef DEVICE_WINDOW_H
#define DEVICE_WINDOW_H

/* The places begin .. end - 1 of a line. */
typedef struct yoke_window {
    int begin, end;
} yoke_window;
/* Adaptive pooling along one direction: output `place` is the average of these inputs. */
yoke_window yoke_adaptive_window(int place, int outputs, int inputs);
/* Convolution along one direction: the outputs whose tap at `offset` lies inside the input, that is
 * 0 <= output * stride + offset < inputs. */
yoke_window yoke_tap_window(int outputs, int inputs, int stride, int offset);

#endif
