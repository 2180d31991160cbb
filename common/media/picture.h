// picture.h - still pictures: PNG (lossless) and JPEG files from rows of RGB bytes, and JPEG in
// memory, for policies that were trained on compressed pictures.
//
// Pictures are (height, width, 3) bytes, packed, row 0 at the top.
//
// Threads: any.
#ifndef COMMON_MEDIA_PICTURE_H
#define COMMON_MEDIA_PICTURE_H

#include "common/base/status.h"

#include <stdint.h>

#define PICTURE_SIDE_MAX 16384 // pixels

// Write `rgb` to `path`; its ending says how: .png, or .jpg/.jpeg with `quality` 1..100. The file
// appears when it is complete. ST_INVAL: ending, size or quality; ST_IO: the system's reason.
NODISCARD enum status picture_write(const char *path, const uint8_t *rgb, int width, int height,
                                    int quality);

// JPEG bytes of `rgb`, colours at half resolution (4:2:0); free *out with mem_free.
NODISCARD enum status picture_to_jpeg(uint8_t **out, size_t *n, const uint8_t *rgb, int width,
                                      int height, int quality);

// Decode a JPEG of exactly width x height into `rgb`. ST_INVAL: damaged, or of another size.
NODISCARD enum status picture_from_jpeg(uint8_t *rgb, int width, int height, const uint8_t *jpeg,
                                        size_t n);

#endif
