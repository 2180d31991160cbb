// h5file.h - a small door to HDF5: named arrays and attributes. The home of the HDF5 library.
//
// A small file is built in memory and written at once, beside its name and renamed; it is read into
// memory at once as well. So HDF5 itself never meets a full disk or a file lock, and a reader sees
// the old or the new file, never half of one. Equal contents give equal bytes. After the end of the
// HDF5 part stands a checksum of it, which other readers of HDF5 ignore and writers drop; where it
// is present it is checked.
//
// A large file is written piece by piece (h5file_stream) and read where it lies
// (h5file_open_large). It has no checksum; a reader still never sees half of one under its name.
//
// Errors name the file and the dataset or attribute, and what was expected; HDF5 prints nothing.
// Threads: any; calls into HDF5 take turns. A struct h5file belongs to one thread.
#ifndef NN_H5FILE_H
#define NN_H5FILE_H

#include "common/base/status.h"

#include <stdint.h>

#define H5FILE_NAME_MAX 64

enum h5_type { H5_F32, H5_F64, H5_I64, H5_U8, H5_I32 };

struct h5file;

// A new, empty file in memory.
NODISCARD enum status h5file_create(struct h5file **out);
// The file at `path`, for reading. ST_MISSING if there is none, ST_INVAL if it is not HDF5
// or damaged.
NODISCARD enum status h5file_open(struct h5file **out, const char *path);
// Closing a file of h5file_stream before h5file_finish removes it. NULL is fine.
void h5file_close(struct h5file *f);

// Write everything to `path`.
NODISCARD enum status h5file_save(struct h5file *f, const char *path);

// A new, empty file on disk, at `path`.tmp until h5file_finish gives it its name.
NODISCARD enum status h5file_stream(struct h5file **out, const char *path);
// Nothing but h5file_close may follow, whether it went well or not.
NODISCARD enum status h5file_finish(struct h5file *f);
// The file at `path`, for reading, without loading it.
NODISCARD enum status h5file_open_large(struct h5file **out, const char *path);

// Names of arrays are paths, "data/demo_0/actions"; putting one makes the groups on the way.

// An array of (rows, cols), of (rows) if cols is 0.
NODISCARD enum status h5file_put(struct h5file *f, const char *name, enum h5_type type,
                                 int64_t rows, int64_t cols, const void *data);
// Pictures: an array of (n, height, width, channels), of (n, height, width) if channels is 0,
// compressed picture by picture.
NODISCARD enum status h5file_put_frames(struct h5file *f, const char *name, enum h5_type type,
                                        int64_t n, int64_t height, int64_t width, int64_t channels,
                                        const void *data);
// ST_INVAL unless it is there with these sizes and, for floats, finite numbers only.
NODISCARD enum status h5file_get(struct h5file *f, const char *name, enum h5_type type,
                                 int64_t rows, int64_t cols, void *data);
// The same of float32 or float64, as float32.
NODISCARD enum status h5file_get_floats(struct h5file *f, const char *name, int64_t rows,
                                        int64_t cols, float *data);
// Sizes of uint8 pictures (n, height, width, channels). ST_INVAL if it is something else.
NODISCARD enum status h5file_frames_shape(struct h5file *f, const char *name, int64_t sizes[4]);
// Pictures `first` to first + n - 1 of an array with these sizes.
NODISCARD enum status h5file_get_frames(struct h5file *f, const char *name, const int64_t sizes[4],
                                        int64_t first, int64_t n, uint8_t *data);
// Its sizes; *cols is 0 for an array of one dimension. ST_INVAL if it is not there or has more.
NODISCARD enum status h5file_shape(struct h5file *f, const char *name, int64_t *rows,
                                   int64_t *cols);
// An array of n texts of fixed length: `width` bytes each, padded with zeros. n may be 0.
NODISCARD enum status h5file_put_labels(struct h5file *f, const char *name, const char *labels,
                                        int64_t n, size_t width);

// Attributes from now on are those of this group; "/" = of the file, as in the beginning. In a file
// that is written the group is made if it is not there.
NODISCARD enum status h5file_at(struct h5file *f, const char *group);
bool h5file_has_attr(struct h5file *f, const char *name);
bool h5file_has(struct h5file *f, const char *name); // an array or a group
// Call fn(arg, name) for everything in a group, in the order of the names' bytes, until it fails.
// It must not call into the file.
NODISCARD enum status h5file_each(struct h5file *f, const char *group,
                                  enum status (*fn)(void *arg, const char *name), void *arg);

NODISCARD enum status h5file_put_int(struct h5file *f, const char *name, int64_t value);
NODISCARD enum status h5file_put_real(struct h5file *f, const char *name, double value);
NODISCARD enum status h5file_put_text(struct h5file *f, const char *name, const char *value);
NODISCARD enum status h5file_put_flag(struct h5file *f, const char *name, bool value); // uint8
NODISCARD enum status h5file_put_reals(struct h5file *f, const char *name, int64_t n,
                                       const double *values);
// As h5file_put_text, in the form that has no limit of length (that one ends at 64 KiB).
NODISCARD enum status h5file_put_long_text(struct h5file *f, const char *name, const char *value);
// ST_INVAL if it is outside low..high.
NODISCARD enum status h5file_get_int(struct h5file *f, const char *name, int64_t low, int64_t high,
                                     int64_t *out);
NODISCARD enum status h5file_get_real(struct h5file *f, const char *name, double low, double high,
                                      double *out);
// ST_INVAL unless it has n numbers.
NODISCARD enum status h5file_get_reals(struct h5file *f, const char *name, int64_t n, double *out);
// ST_INVAL if it needs more than `size` bytes with its terminator.
NODISCARD enum status h5file_get_text(struct h5file *f, const char *name, char *out, size_t size);

#endif
