#include "nn/h5file.h"

#include "common/base/crc.h"
#include "common/base/file.h"
#include "common/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hdf5.h>

#define GROW_BYTES (64 * 1024)
#define FILE_MAX   (4LL << 30)

// Behind the HDF5 part: a mark and the CRC-32C of everything before.
struct trailer {
    char mark[12];
    uint32_t crc;
};

#define TRAILER_MARK "SIMSTREAM-1"

struct h5file {
    hid_t id;
    char path[256]; // for messages
};

static pthread_mutex_t mtx = PTHREAD_MUTEX_INITIALIZER;

// A name that is no file's and no other open image's: the memory driver refuses both.
static const char *memory_name(char out[64])
{
    static uint64_t n; // guarded by mtx

    snprintf(out, 64, "/dev/null/%llu", (unsigned long long)n++);
    return out;
}

// HDF5 keeps its error printer per thread, so every entry turns it off.
static void enter(void)
{
    pthread_mutex_lock(&mtx);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    H5Eclear2(H5E_DEFAULT);
}

static enum status leave(enum status st)
{
    pthread_mutex_unlock(&mtx);
    return st;
}

static herr_t first_reason(unsigned n, const H5E_error2_t *e, void *out)
{
    if (n == 0)
        *(const char **)out = e->desc;
    return 0;
}

// HDF5's innermost complaint; valid until the next call of HDF5.
static const char *reason(void)
{
    const char *text = NULL;

    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first_reason, &text);
    return text ? text : "unknown reason";
}

static hid_t type_id(enum h5_type type)
{
    return type == H5_F32   ? H5T_NATIVE_FLOAT
           : type == H5_F64 ? H5T_NATIVE_DOUBLE
                            : H5T_NATIVE_INT64;
}

static size_t type_bytes(enum h5_type type)
{
    return type == H5_F32 ? 4 : 8;
}

// Access properties: in memory. The oldest format, because H5Fget_file_image changes a byte of
// the newer ones without their checksum, so that they cannot be opened again.
static hid_t memory_access(void)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);

    if (fapl >= 0 && (H5Pset_fapl_core(fapl, GROW_BYTES, false) < 0 ||
                      H5Pset_libver_bounds(fapl, H5F_LIBVER_EARLIEST, H5F_LIBVER_V110) < 0)) {
        H5Pclose(fapl);
        return -1;
    }
    return fapl;
}

static enum status make(struct h5file **out, const char *path, hid_t id)
{
    struct h5file *f = mem_alloc(1, sizeof *f);

    if (!f) {
        H5Fclose(id);
        return ST_NOMEM;
    }
    f->id = id;
    snprintf(f->path, sizeof f->path, "%s", path);
    *out = f;
    return ST_OK;
}

enum status h5file_create(struct h5file **out)
{
    char name[64];
    hid_t fapl, id;

    enter();
    fapl = memory_access();
    id = H5Fcreate(memory_name(name), H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    H5Pclose(fapl);
    if (id < 0)
        return leave(FAIL(ST_NOMEM, "cannot make an HDF5 file in memory: %s", reason()));
    return leave(make(out, "new file", id));
}

static enum status read_fd(int fd, const char *path, uint8_t *bytes, size_t n)
{
    size_t done = 0;

    while (done < n) {
        ssize_t k = read(fd, bytes + done, n - done);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return FAIL_SYS(ST_IO, errno, "cannot read '%s': %s", path, strerror(errno));
        if (k == 0)
            return FAIL(ST_IO, "cannot read '%s': it became shorter", path);
        done += (size_t)k;
    }
    return ST_OK;
}

static enum status read_all(const char *path, uint8_t **bytes, size_t *n)
{
    struct stat info;
    enum status st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return FAIL_SYS(errno == ENOENT ? ST_MISSING : ST_IO, errno, "cannot open '%s': %s", path,
                        strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > FILE_MAX) {
        close(fd);
        return FAIL(ST_INVAL, "'%s' is not a file of at most %lld bytes", path, FILE_MAX);
    }
    *n = (size_t)info.st_size;
    *bytes = mem_alloc(*n, 1);
    st = *bytes ? read_fd(fd, path, *bytes, *n) : ST_NOMEM;
    close(fd);
    if (st != ST_OK)
        mem_free(*bytes);
    return st;
}

// Open an image of a file; HDF5 copies the bytes.
static hid_t open_image(uint8_t *bytes, size_t n)
{
    hid_t fapl = memory_access(), id = -1;
    char name[64];

    if (fapl < 0)
        return -1;
    if (H5Pset_file_image(fapl, bytes, n) >= 0)
        id = H5Fopen(memory_name(name), H5F_ACC_RDONLY, fapl);
    H5Pclose(fapl);
    return id;
}

// Check and take off the trailer, if there is one.
static enum status check_trailer(const char *path, const uint8_t *bytes, size_t *n)
{
    struct trailer t;

    if (*n < sizeof t)
        return ST_OK;
    memcpy(&t, bytes + *n - sizeof t, sizeof t);
    if (memcmp(t.mark, TRAILER_MARK, sizeof t.mark) != 0)
        return ST_OK;
    *n -= sizeof t;
    if (crc32c(0, bytes, *n) != t.crc)
        return FAIL(ST_INVAL, "'%s' is damaged: its checksum is wrong", path);
    return ST_OK;
}

static enum status open_bytes(struct h5file **out, const char *path, uint8_t *bytes, size_t n)
{
    hid_t id;

    TRY(check_trailer(path, bytes, &n));
    enter();
    id = n > 0 ? open_image(bytes, n) : -1;
    if (id < 0)
        return leave(FAIL(ST_INVAL, "'%s' is not a readable HDF5 file: %s", path,
                          n > 0 ? reason() : "it is empty"));
    return leave(make(out, path, id));
}

enum status h5file_open(struct h5file **out, const char *path)
{
    enum status st;
    uint8_t *bytes;
    size_t n;

    TRY(read_all(path, &bytes, &n));
    st = open_bytes(out, path, bytes, n);
    mem_free(bytes);
    return st;
}

void h5file_close(struct h5file *f)
{
    if (!f)
        return;
    enter();
    H5Fclose(f->id);
    leave(ST_OK);
    mem_free(f);
}

// The bytes of the file as they go to disk; *bytes is the caller's.
static enum status image(struct h5file *f, uint8_t **bytes, size_t *n)
{
    ssize_t size = H5Fflush(f->id, H5F_SCOPE_GLOBAL) < 0 ? -1 : H5Fget_file_image(f->id, NULL, 0);
    struct trailer t = {.mark = TRAILER_MARK};

    if (size < 0)
        return FAIL(ST_IO, "cannot build an HDF5 file in memory: %s", reason());
    *bytes = mem_alloc((size_t)size + sizeof t, 1);
    if (!*bytes)
        return ST_NOMEM;
    if (H5Fget_file_image(f->id, *bytes, (size_t)size) != size) {
        mem_free(*bytes);
        return FAIL(ST_IO, "cannot build an HDF5 file in memory: %s", reason());
    }
    t.crc = crc32c(0, *bytes, (size_t)size);
    memcpy(*bytes + size, &t, sizeof t);
    *n = (size_t)size + sizeof t;
    return ST_OK;
}

enum status h5file_save(struct h5file *f, const char *path)
{
    enum status st;
    uint8_t *bytes;
    size_t n;

    enter();
    TRY(leave(image(f, &bytes, &n)));
    st = file_write_atomic(path, bytes, n);
    mem_free(bytes);
    return st;
}

static hid_t space_of(int64_t rows, int64_t cols)
{
    hsize_t dims[2] = {(hsize_t)rows, (hsize_t)cols};

    return H5Screate_simple(cols > 0 ? 2 : 1, dims, NULL);
}

enum status h5file_put(struct h5file *f, const char *name, enum h5_type type, int64_t rows,
                       int64_t cols, const void *data)
{
    hid_t dcpl, space, set;
    bool ok;

    enter();
    dcpl = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_obj_track_times(dcpl, false); // a time would make equal files differ
    space = space_of(rows, cols);
    set = H5Dcreate2(f->id, name, type_id(type), space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    ok = set >= 0 && H5Dwrite(set, type_id(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
    if (set >= 0 && H5Dclose(set) < 0)
        ok = false;
    H5Sclose(space);
    H5Pclose(dcpl);
    if (!ok)
        return leave(FAIL(ST_IO, "%s: cannot write dataset '%s': %s", f->path, name, reason()));
    return leave(ST_OK);
}

static enum status check_shape(const struct h5file *f, const char *name, hid_t space, int64_t rows,
                               int64_t cols)
{
    char want[64], have[64];
    hsize_t dims[2] = {0, 0};
    int rank = H5Sget_simple_extent_ndims(space);

    if (rank == 1 || rank == 2)
        H5Sget_simple_extent_dims(space, dims, NULL);
    if (rank == (cols > 0 ? 2 : 1) && dims[0] == (hsize_t)rows && dims[1] == (hsize_t)cols)
        return ST_OK;
    snprintf(want, sizeof want, cols > 0 ? "(%lld, %lld)" : "(%lld)", (long long)rows,
             (long long)cols);
    if (rank == 1 || rank == 2)
        snprintf(have, sizeof have, rank == 2 ? "(%llu, %llu)" : "(%llu)",
                 (unsigned long long)dims[0], (unsigned long long)dims[1]);
    else
        snprintf(have, sizeof have, "of rank %d", rank);
    return FAIL(ST_INVAL, "'%s': dataset '%s' is %s, expected %s", f->path, name, have, want);
}

static enum status check_finite(const struct h5file *f, const char *name, enum h5_type type,
                                size_t n, const void *data)
{
    for (size_t i = 0; i < n && type != H5_I64; i++)
        if (!isfinite(type == H5_F32 ? (double)((const float *)data)[i]
                                     : ((const double *)data)[i]))
            return FAIL(ST_INVAL, "'%s': dataset '%s' holds a number that is not finite", f->path,
                        name);
    return ST_OK;
}

static enum status get_checked(struct h5file *f, const char *name, hid_t set, hid_t space,
                               enum h5_type type, int64_t rows, int64_t cols, void *data)
{
    size_t n = (size_t)(rows * (cols > 0 ? cols : 1));
    hid_t stored = H5Dget_type(set);
    H5T_class_t class = H5Tget_class(stored);
    bool fits = H5Tget_size(stored) == type_bytes(type);

    H5Tclose(stored);
    if (class != (type == H5_I64 ? H5T_INTEGER : H5T_FLOAT) || !fits)
        return FAIL(ST_INVAL, "'%s': dataset '%s' is of another type, expected %s", f->path, name,
                    type == H5_F32   ? "float32"
                    : type == H5_F64 ? "float64"
                                     : "int64");
    TRY(check_shape(f, name, space, rows, cols));
    if (H5Dread(set, type_id(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        return FAIL(ST_INVAL, "'%s': cannot read dataset '%s': %s", f->path, name, reason());
    return check_finite(f, name, type, n, data);
}

enum status h5file_get(struct h5file *f, const char *name, enum h5_type type, int64_t rows,
                       int64_t cols, void *data)
{
    enum status st;
    hid_t set, space;

    enter();
    set = H5Dopen2(f->id, name, H5P_DEFAULT);
    if (set < 0)
        return leave(FAIL(ST_INVAL, "'%s': no dataset '%s': %s", f->path, name, reason()));
    space = H5Dget_space(set);
    st = get_checked(f, name, set, space, type, rows, cols, data);
    H5Sclose(space);
    H5Dclose(set);
    return leave(st);
}

static enum status put_attr(struct h5file *f, const char *name, hid_t type, const void *value)
{
    hid_t space, attr;
    bool ok;

    enter();
    space = H5Screate(H5S_SCALAR);
    attr = H5Acreate2(f->id, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    ok = attr >= 0 && H5Awrite(attr, type, value) >= 0;
    if (attr >= 0 && H5Aclose(attr) < 0)
        ok = false;
    H5Sclose(space);
    if (!ok)
        return leave(FAIL(ST_IO, "%s: cannot write attribute '%s': %s", f->path, name, reason()));
    return leave(ST_OK);
}

enum status h5file_put_int(struct h5file *f, const char *name, int64_t value)
{
    return put_attr(f, name, H5T_NATIVE_INT64, &value);
}

enum status h5file_put_real(struct h5file *f, const char *name, double value)
{
    return put_attr(f, name, H5T_NATIVE_DOUBLE, &value);
}

static hid_t text_type(size_t bytes)
{
    hid_t type = H5Tcopy(H5T_C_S1);

    H5Tset_size(type, bytes);
    H5Tset_cset(type, H5T_CSET_UTF8);
    return type;
}

enum status h5file_put_text(struct h5file *f, const char *name, const char *value)
{
    enum status st;
    hid_t type;

    enter();
    type = text_type(strlen(value) + 1);
    leave(ST_OK);
    st = put_attr(f, name, type, value);
    enter();
    H5Tclose(type);
    return leave(st);
}

// Read a scalar attribute of one class that fits `bytes`; text may be shorter.
static enum status get_attr(struct h5file *f, const char *name, H5T_class_t class, hid_t as,
                            size_t bytes, void *out)
{
    hid_t attr = H5Aopen(f->id, name, H5P_DEFAULT), stored, space;
    bool ok;

    if (attr < 0)
        return FAIL(ST_INVAL, "'%s': no attribute '%s': %s", f->path, name, reason());
    stored = H5Aget_type(attr);
    space = H5Aget_space(attr);
    ok = H5Tget_class(stored) == class && H5Sget_simple_extent_npoints(space) == 1 &&
         (class != H5T_STRING ||
          (H5Tis_variable_str(stored) == 0 && H5Tget_size(stored) <= bytes)) &&
         H5Aread(attr, class == H5T_STRING ? stored : as, out) >= 0;
    H5Sclose(space);
    H5Tclose(stored);
    H5Aclose(attr);
    if (!ok)
        return FAIL(ST_INVAL, "'%s': attribute '%s' is of another type, expected %s", f->path, name,
                    class == H5T_STRING    ? "a text (not too long)"
                    : class == H5T_INTEGER ? "a whole number"
                                           : "a number");
    return ST_OK;
}

enum status h5file_get_int(struct h5file *f, const char *name, int64_t low, int64_t high,
                           int64_t *out)
{
    int64_t value = 0;

    enter();
    TRY(leave(get_attr(f, name, H5T_INTEGER, H5T_NATIVE_INT64, sizeof value, &value)));
    if (value < low || value > high)
        return FAIL(ST_INVAL, "'%s': attribute '%s' is %lld, expected %lld to %lld", f->path, name,
                    (long long)value, (long long)low, (long long)high);
    *out = value;
    return ST_OK;
}

enum status h5file_get_real(struct h5file *f, const char *name, double low, double high,
                            double *out)
{
    double value = 0;

    enter();
    TRY(leave(get_attr(f, name, H5T_FLOAT, H5T_NATIVE_DOUBLE, sizeof value, &value)));
    if (!(value >= low && value <= high))
        return FAIL(ST_INVAL, "'%s': attribute '%s' is %g, expected %g to %g", f->path, name, value,
                    low, high);
    *out = value;
    return ST_OK;
}

enum status h5file_get_text(struct h5file *f, const char *name, char *out, size_t size)
{
    enum status st;

    memset(out, 0, size);
    enter();
    st = leave(get_attr(f, name, H5T_STRING, -1, size, out));
    // texts are stored with their terminator; one that is not ends at its last byte
    out[size - 1] = '\0';
    return st;
}
