// video.h - a film of RGB pictures: H.264 in fragmented MP4, which every browser plays. A fragment
// reaches the file when it is full, so a film whose writer was killed plays up to its last full
// fragment.
//
// The libraries of FFmpeg are opened at run time, by the first film: a program that makes none
// starts without them, and faster.
//
// Threads: a film belongs to one thread at a time; different films to any.
#ifndef COMMON_MEDIA_VIDEO_H
#define COMMON_MEDIA_VIDEO_H

#include "common/base/status.h"

#include <stdint.h>

#define VIDEO_SIDE_MIN 16 // pixels
#define VIDEO_SIDE_MAX 4096

struct video_format {
    int width, height;   // pixels; an odd side gets one more row or column, a copy of the last
    int fps;             // pictures a second, 1..240
    int fragment_frames; // pictures a fragment, 0 = half a second: what a kill can cost at most
};

struct video;

// Start film `path`; a file of that name is replaced. ST_MISSING: no FFmpeg libraries, or none with
// an H.264 encoder, and what to install; ST_INVAL: format; ST_IO: the file.
NODISCARD enum status video_open(struct video **out, const char *path,
                                 const struct video_format *format);

// Append a picture (height, width, 3), row 0 at the top, rows `stride` bytes apart (0 = packed).
NODISCARD enum status video_append(struct video *video, const uint8_t *rgb, size_t stride);

// Write what is left and free the film, also on failure. NULL is fine.
NODISCARD enum status video_close(struct video *video);

#endif
