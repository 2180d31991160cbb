// resize.h - resampling of pictures as Pillow does it: bilinear with antialias, to the bit.
//
// Policies were trained on pictures that went through PIL.Image.resize; a resampler that differs in
// the last bit is another input distribution. The weights are Pillow's fixed-point ones (22 bits),
// the horizontal pass comes first and is rounded to bytes before the vertical one. (Pillow 13 has
// the other order where a picture becomes wider and less high at once, which no policy asks for.)
//
// Threads: a struct resize is read-only once made; every call brings its own scratch.
#ifndef EVALUATION_RESIZE_H
#define EVALUATION_RESIZE_H

#include "common/base/status.h"

#include <stdint.h>

struct resize;

#define RESIZE_MAX 8192 // of a side, in and out

// RESIZE_PAD keeps the picture's shape and centres it on black, as openpi's resize_with_pad.
enum resize_how { RESIZE_PLAIN, RESIZE_PAD };

NODISCARD enum status resize_create(struct resize **out, enum resize_how how, int in_w, int in_h,
                                    int out_w, int out_h);
void resize_destroy(struct resize *r); // NULL is fine

// Bytes of the scratch that resize_run needs.
size_t resize_scratch(const struct resize *r);

// src uint8 (in_h, in_w, 3) to dst uint8 (out_h, out_w, 3), which do not overlap.
void resize_run(const struct resize *r, const uint8_t *src, uint8_t *dst, void *scratch);

#endif
