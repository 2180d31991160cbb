// h5file.h - a small door to HDF5: named arrays and attributes, one file at a time in memory. The
// home of the HDF5 library.
//
// A file is built in memory and written at once, beside its name and renamed; it is read into
// memory at once as well. So HDF5 itself never meets a full disk or a file lock, and a reader sees
// the old or the new file, never half of one. Equal contents give equal bytes. After the end of the
// HDF5 part stands a checksum of it, which other readers of HDF5 ignore and writers drop; where it
// is present it is checked.
//
// Errors name the file and the dataset or attribute, and what was expected; HDF5 prints nothing.
// Threads: any; calls into HDF5 take turns. A struct h5file belongs to one thread.
#ifndef NN_H5FILE_H
#define NN_H5FILE_H

#include "common/base/status.h"

#include <stdint.h>

#define H5FILE_NAME_MAX 64

enum h5_type { H5_F32, H5_F64, H5_I64 };

struct h5file;

// A new, empty file in memory.
NODISCARD enum status h5file_create(struct h5file **out);
// The file at `path`, for reading. ST_MISSING if there is none, ST_INVAL if it is not HDF5
// or damaged.
NODISCARD enum status h5file_open(struct h5file **out, const char *path);
void h5file_close(struct h5file *f); // NULL is fine

// Write everything to `path`.
NODISCARD enum status h5file_save(struct h5file *f, const char *path);

// An array of (rows, cols), of (rows) if cols is 0.
NODISCARD enum status h5file_put(struct h5file *f, const char *name, enum h5_type type,
                                 int64_t rows, int64_t cols, const void *data);
// ST_INVAL unless it is there with these sizes and, for floats, finite numbers only.
NODISCARD enum status h5file_get(struct h5file *f, const char *name, enum h5_type type,
                                 int64_t rows, int64_t cols, void *data);

// Attributes of the file.
NODISCARD enum status h5file_put_int(struct h5file *f, const char *name, int64_t value);
NODISCARD enum status h5file_put_real(struct h5file *f, const char *name, double value);
NODISCARD enum status h5file_put_text(struct h5file *f, const char *name, const char *value);
// ST_INVAL if it is outside low..high.
NODISCARD enum status h5file_get_int(struct h5file *f, const char *name, int64_t low, int64_t high,
                                     int64_t *out);
NODISCARD enum status h5file_get_real(struct h5file *f, const char *name, double low, double high,
                                      double *out);
// ST_INVAL if it needs more than `size` bytes with its terminator.
NODISCARD enum status h5file_get_text(struct h5file *f, const char *name, char *out, size_t size);

#endif
