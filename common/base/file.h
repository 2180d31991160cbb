// file.h - whole files and folders: make, write beside and rename, so that nothing is half-written.
#ifndef COMMON_BASE_FILE_H
#define COMMON_BASE_FILE_H

#include "common/base/status.h"

#include <limits.h>
#include <stdint.h>

#define FILE_NAME_MAX PATH_MAX

// Make a folder and its parents; fine if it is there.
NODISCARD enum status file_make_dir(const char *path);

// Write `text` to path.tmp and rename it to path. ST_IO names the file and the reason.
NODISCARD enum status file_write_atomic(const char *path, const void *bytes, size_t n);

// A file that is written piece by piece with file_append(f.fd, f.path, ...).
struct file_new {
    int fd;
    char path[FILE_NAME_MAX]; // path.tmp
};

// Begin it as path.tmp; whatever follows, file_end ends it.
NODISCARD enum status file_begin(struct file_new *f, const char *path);
// `st`: how the writing went. ST_OK: to the disk and under its name. Else the file is removed, and
// `st` comes back.
NODISCARD enum status file_end(struct file_new *f, const char *path, enum status st);

// Append `n` bytes to an open file; `path` is for the text of the error (ST_IO). A write that fails
// half way is taken back, so that a file of lines or records never ends in half a one.
NODISCARD enum status file_append(int fd, const char *path, const void *bytes, size_t n);

// A whole file of at most 1 GiB, with a NUL behind it that does not count. `*bytes` is the caller's
// (mem_free). ST_MISSING if there is none, ST_IO with the reason otherwise.
NODISCARD enum status file_read(const char *path, char **bytes, size_t *n);

bool file_exists(const char *path);

#endif
