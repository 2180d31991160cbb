#include "nn/h5file.h"

#include "common/base/crc.h"
#include "common/base/file.h"
#include "common/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hdf5.h>

#define GROW_BYTES (64 * 1024)
#define FILE_MAX   (4LL << 30)
#define PACK_LEVEL 2 // of 9; pictures hardly become smaller with more

// Behind the HDF5 part: a mark and the CRC-32C of everything before.
struct trailer {
    char mark[12];
    uint32_t crc;
};

#define TRAILER_MARK "SIMSTREAM-1"

struct h5file {
    hid_t id;
    hid_t at;         // the group whose attributes are meant; id itself at first
    char path[256];   // for messages
    char group[128];  // the same
    char *final_path; // of a file that is written to disk: its name at the end; else NULL
    char *temp_path;  // and until then
    bool writing;
};

static pthread_mutex_t mtx = PTHREAD_MUTEX_INITIALIZER;

// A name that is no file's and no other open image's: the memory driver refuses both.
static const char *memory_name(char out[64])
{
    static uint64_t n; // guarded by mtx

    snprintf(out, 64, "/dev/null/%llu", (unsigned long long)n++);
    return out;
}

// HDF5 keeps its error printer per thread, so every entry turns it off. After a write that failed
// (a full disk) a file cannot be closed, and HDF5's own cleaning up at the end of the process would
// run into it: all files are closed here, so it has nothing else to do.
static void enter(void)
{
    static bool entered; // guarded by mtx

    pthread_mutex_lock(&mtx);
    if (!entered)
        H5dont_atexit();
    entered = true;
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
    const char *text = NULL, *sys;

    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first_reason, &text);
    sys = text ? strstr(text, "errno = ") : NULL; // of a text of several lines
    if (sys)
        return strerror(atoi(sys + strlen("errno = ")));
    return text ? text : "unknown reason";
}

static hid_t type_id(enum h5_type type)
{
    return type == H5_F32   ? H5T_NATIVE_FLOAT
           : type == H5_F64 ? H5T_NATIVE_DOUBLE
           : type == H5_I64 ? H5T_NATIVE_INT64
           : type == H5_I32 ? H5T_NATIVE_INT32
                            : H5T_NATIVE_UINT8;
}

static size_t type_bytes(enum h5_type type)
{
    return type == H5_F32 || type == H5_I32 ? 4 : type == H5_U8 ? 1 : 8;
}

static const char *type_name(enum h5_type type)
{
    static const char *const names[] = {"float32", "float64", "int64", "uint8", "int32"};

    return names[type];
}

// Access properties: in memory, or on disk without locks, which some network file systems lack. The
// oldest format, because H5Fget_file_image changes a byte of the newer ones without their checksum,
// so that they cannot be opened again.
static hid_t access_list(bool memory)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);

    if (fapl >= 0 && ((memory ? H5Pset_fapl_core(fapl, GROW_BYTES, false)
                              : H5Pset_file_locking(fapl, false, true)) < 0 ||
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
    f->id = f->at = id;
    snprintf(f->path, sizeof f->path, "%s", path);
    *out = f;
    return ST_OK;
}

enum status h5file_create(struct h5file **out)
{
    char name[64];
    hid_t fapl, id;

    enter();
    fapl = access_list(true);
    id = H5Fcreate(memory_name(name), H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    H5Pclose(fapl);
    if (id < 0)
        return leave(FAIL(ST_NOMEM, "cannot make an HDF5 file in memory: %s", reason()));
    TRY(leave(make(out, "new file", id)));
    (*out)->writing = true;
    return ST_OK;
}

static enum status read_fd(int fd, const char *path, uint8_t *bytes, size_t n)
{
    size_t done = 0;

    while (done < n) {
        ssize_t k = read(fd, bytes + done, n - done);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return FAIL_SYS(ST_IO, errno, "cannot read '%s'", path);
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
        return FAIL_SYS(errno == ENOENT ? ST_MISSING : ST_IO, errno, "cannot open '%s'", path);
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
    hid_t fapl = access_list(true), id = -1;
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

static void leave_group(struct h5file *f)
{
    if (f->at != f->id)
        H5Gclose(f->at);
    f->at = f->id;
    f->group[0] = '\0';
}

void h5file_close(struct h5file *f)
{
    if (!f)
        return;
    enter();
    if (f->id >= 0) {
        leave_group(f);
        H5Fclose(f->id);
    }
    leave(ST_OK);
    if (f->temp_path)
        unlink(f->temp_path);
    mem_free(f->temp_path);
    mem_free(f->final_path);
    mem_free(f);
}

// ------------------------------------------------------------------ on disk

static enum status make_names(struct h5file *f, const char *path)
{
    size_t n = strlen(path) + sizeof ".tmp";

    f->final_path = mem_strdup(path);
    f->temp_path = mem_alloc(n, 1);
    if (!f->final_path || !f->temp_path)
        return ST_NOMEM;
    snprintf(f->temp_path, n, "%s.tmp", path);
    return ST_OK;
}

enum status h5file_stream(struct h5file **out, const char *path)
{
    struct h5file *f = mem_alloc(1, sizeof *f);
    enum status st;
    hid_t fapl;

    if (!f)
        return ST_NOMEM;
    f->id = f->at = -1;
    f->writing = true;
    snprintf(f->path, sizeof f->path, "%s", path);
    st = make_names(f, path);
    if (st == ST_OK) {
        enter();
        fapl = access_list(false);
        f->id = f->at = H5Fcreate(f->temp_path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
        H5Pclose(fapl);
        if (f->id < 0)
            st = FAIL(ST_IO, "cannot make '%s': %s", f->temp_path, reason());
        leave(st);
    }
    if (st != ST_OK) {
        h5file_close(f);
        return st;
    }
    *out = f;
    return ST_OK;
}

static enum status sync_file(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    bool ok = fd >= 0 && fsync(fd) == 0;
    int error = errno;

    if (fd >= 0)
        close(fd);
    return ok ? ST_OK : FAIL_SYS(ST_IO, error, "cannot write '%s'", path);
}

enum status h5file_finish(struct h5file *f)
{
    enum status st = ST_OK;

    enter();
    leave_group(f);
    if (H5Fflush(f->id, H5F_SCOPE_GLOBAL) < 0)
        st = FAIL(ST_IO, "cannot write '%s': %s", f->temp_path, reason());
    if (H5Fclose(f->id) < 0 && st == ST_OK)
        st = FAIL(ST_IO, "cannot write '%s': %s", f->temp_path, reason());
    f->id = f->at = -1;
    TRY(leave(st));
    TRY(sync_file(f->temp_path));
    if (rename(f->temp_path, f->final_path) != 0)
        return FAIL_SYS(ST_IO, errno, "cannot rename '%s' to '%s'", f->temp_path, f->final_path);
    mem_free(f->temp_path);
    f->temp_path = NULL;
    return ST_OK;
}

enum status h5file_open_large(struct h5file **out, const char *path)
{
    hid_t fapl, id;

    if (!file_exists(path))
        return FAIL(ST_MISSING, "there is no file '%s'", path);
    enter();
    fapl = access_list(false);
    id = H5Fopen(path, H5F_ACC_RDONLY, fapl);
    H5Pclose(fapl);
    if (id < 0)
        return leave(FAIL(ST_INVAL, "'%s' is not a readable HDF5 file: %s", path, reason()));
    return leave(make(out, path, id));
}

// ------------------------------------------------------------------ the image

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

// ------------------------------------------------------------------ arrays

// Link properties: groups on the way are made.
static hid_t link_props(void)
{
    hid_t lcpl = H5Pcreate(H5P_LINK_CREATE);

    H5Pset_create_intermediate_group(lcpl, 1);
    return lcpl;
}

// `packed`: in compressed pieces of one row each.
static enum status write_set(struct h5file *f, const char *name, hid_t type, int rank,
                             const hsize_t *dims, const void *data, bool packed)
{
    hsize_t piece[4] = {1};
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), lcpl = link_props(), space, set;
    enum status st = ST_OK;

    H5Pset_obj_track_times(dcpl, false); // a time would make equal files differ
    if (packed) {
        memcpy(piece + 1, dims + 1, (size_t)(rank - 1) * sizeof piece[0]);
        H5Pset_chunk(dcpl, rank, piece);
        H5Pset_deflate(dcpl, PACK_LEVEL);
    }
    space = H5Screate_simple(rank, dims, NULL);
    set = H5Dcreate2(f->id, name, type, space, lcpl, dcpl, H5P_DEFAULT);
    if (set < 0 || (dims[0] > 0 && H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0))
        st = FAIL(ST_IO, "%s: cannot write dataset '%s': %s", f->path, name, reason());
    if (set >= 0 && H5Dclose(set) < 0 && st == ST_OK)
        st = FAIL(ST_IO, "%s: cannot write dataset '%s': %s", f->path, name, reason());
    H5Sclose(space);
    H5Pclose(lcpl);
    H5Pclose(dcpl);
    return st;
}

enum status h5file_put(struct h5file *f, const char *name, enum h5_type type, int64_t rows,
                       int64_t cols, const void *data)
{
    hsize_t dims[2] = {(hsize_t)rows, (hsize_t)cols};

    enter();
    return leave(write_set(f, name, type_id(type), cols > 0 ? 2 : 1, dims, data, false));
}

enum status h5file_put_frames(struct h5file *f, const char *name, enum h5_type type, int64_t n,
                              int64_t height, int64_t width, int64_t channels, const void *data)
{
    hsize_t dims[4] = {(hsize_t)n, (hsize_t)height, (hsize_t)width, (hsize_t)channels};

    enter();
    if (H5Zfilter_avail(H5Z_FILTER_DEFLATE) <= 0)
        return leave(FAIL(ST_MISSING, "%s: this HDF5 library cannot compress '%s'", f->path, name));
    return leave(write_set(f, name, type_id(type), channels > 0 ? 4 : 3, dims, data, true));
}

enum status h5file_put_labels(struct h5file *f, const char *name, const char *labels, int64_t n,
                              size_t width)
{
    hsize_t dims[1] = {(hsize_t)n};
    enum status st;
    hid_t type;

    enter();
    type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, width);
    H5Tset_strpad(type, H5T_STR_NULLPAD);
    st = write_set(f, name, type, 1, dims, labels, false);
    H5Tclose(type);
    return leave(st);
}

// Open a dataset and its space; closed with close_set.
static enum status open_set(const struct h5file *f, const char *name, hid_t *set, hid_t *space)
{
    *set = H5Dopen2(f->id, name, H5P_DEFAULT);
    if (*set < 0)
        return FAIL(ST_INVAL, "'%s': no dataset '%s': %s", f->path, name, reason());
    *space = H5Dget_space(*set);
    return ST_OK;
}

static void close_set(hid_t set, hid_t space)
{
    H5Sclose(space);
    H5Dclose(set);
}

enum status h5file_shape(struct h5file *f, const char *name, int64_t *rows, int64_t *cols)
{
    hsize_t dims[2] = {0, 0};
    enum status st;
    hid_t set, space;
    int rank;

    enter();
    st = open_set(f, name, &set, &space);
    if (st != ST_OK)
        return leave(st);
    rank = H5Sget_simple_extent_ndims(space);
    if (rank == 1 || rank == 2)
        H5Sget_simple_extent_dims(space, dims, NULL);
    close_set(set, space);
    if ((rank != 1 && rank != 2) || dims[0] > INT32_MAX || dims[1] > INT32_MAX)
        return leave(
            FAIL(ST_INVAL, "'%s': dataset '%s' is no table of a usual size", f->path, name));
    *rows = (int64_t)dims[0];
    *cols = (int64_t)dims[1];
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
    for (size_t i = 0; i < n && (type == H5_F32 || type == H5_F64); i++)
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
    if (class != (type == H5_I64 || type == H5_U8 || type == H5_I32 ? H5T_INTEGER : H5T_FLOAT) ||
        !fits)
        return FAIL(ST_INVAL, "'%s': dataset '%s' is of another type, expected %s", f->path, name,
                    type_name(type));
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
    st = open_set(f, name, &set, &space);
    if (st != ST_OK)
        return leave(st);
    st = get_checked(f, name, set, space, type, rows, cols, data);
    close_set(set, space);
    return leave(st);
}

static enum status get_floats(struct h5file *f, const char *name, hid_t set, hid_t space,
                              int64_t rows, int64_t cols, float *data)
{
    size_t n = (size_t)(rows * (cols > 0 ? cols : 1));
    hid_t stored = H5Dget_type(set);
    bool is_float = H5Tget_class(stored) == H5T_FLOAT;

    H5Tclose(stored);
    if (!is_float)
        return FAIL(ST_INVAL, "'%s': dataset '%s' is of another type, expected float32 or float64",
                    f->path, name);
    TRY(check_shape(f, name, space, rows, cols));
    if (H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        return FAIL(ST_INVAL, "'%s': cannot read dataset '%s': %s", f->path, name, reason());
    return check_finite(f, name, H5_F32, n, data);
}

enum status h5file_get_floats(struct h5file *f, const char *name, int64_t rows, int64_t cols,
                              float *data)
{
    enum status st;
    hid_t set, space;

    enter();
    st = open_set(f, name, &set, &space);
    if (st != ST_OK)
        return leave(st);
    st = get_floats(f, name, set, space, rows, cols, data);
    close_set(set, space);
    return leave(st);
}

// ------------------------------------------------------------------ pictures

static enum status frames_shape(struct h5file *f, const char *name, hid_t set, hid_t space,
                                int64_t sizes[4])
{
    hsize_t dims[4] = {0};
    hid_t stored = H5Dget_type(set);
    bool fits = H5Tget_class(stored) == H5T_INTEGER && H5Tget_size(stored) == 1 &&
                H5Sget_simple_extent_ndims(space) == 4;

    H5Tclose(stored);
    if (fits)
        H5Sget_simple_extent_dims(space, dims, NULL);
    for (int i = 0; i < 4; i++)
        fits = fits && dims[i] >= 1 && dims[i] <= INT32_MAX;
    if (!fits)
        return FAIL(ST_INVAL,
                    "'%s': dataset '%s' is no array of uint8 pictures (n, height, width, channels)",
                    f->path, name);
    for (int i = 0; i < 4; i++)
        sizes[i] = (int64_t)dims[i];
    return ST_OK;
}

enum status h5file_frames_shape(struct h5file *f, const char *name, int64_t sizes[4])
{
    enum status st;
    hid_t set, space;

    enter();
    st = open_set(f, name, &set, &space);
    if (st != ST_OK)
        return leave(st);
    st = frames_shape(f, name, set, space, sizes);
    close_set(set, space);
    return leave(st);
}

static enum status get_frames(struct h5file *f, const char *name, hid_t set, hid_t space,
                              const int64_t sizes[4], int64_t first, int64_t n, uint8_t *data)
{
    hsize_t from[4] = {(hsize_t)first}, count[4] = {(hsize_t)n};
    int64_t have[4];
    enum status st = ST_OK;
    hid_t memory;

    TRY(frames_shape(f, name, set, space, have));
    if (memcmp(have, sizes, sizeof have) != 0 || first < 0 || n < 0 || n > sizes[0] - first)
        return FAIL(ST_INVAL, "'%s': dataset '%s' has no pictures %lld to %lld of these sizes",
                    f->path, name, (long long)first, (long long)(first + n - 1));
    for (int i = 1; i < 4; i++)
        count[i] = (hsize_t)sizes[i];
    memory = H5Screate_simple(4, count, NULL);
    if (H5Sselect_hyperslab(space, H5S_SELECT_SET, from, NULL, count, NULL) < 0 ||
        H5Dread(set, H5T_NATIVE_UINT8, memory, space, H5P_DEFAULT, data) < 0)
        st = FAIL(ST_INVAL, "'%s': cannot read dataset '%s': %s", f->path, name, reason());
    H5Sclose(memory);
    return st;
}

enum status h5file_get_frames(struct h5file *f, const char *name, const int64_t sizes[4],
                              int64_t first, int64_t n, uint8_t *data)
{
    enum status st;
    hid_t set, space;

    enter();
    st = open_set(f, name, &set, &space);
    if (st != ST_OK)
        return leave(st);
    st = get_frames(f, name, set, space, sizes, first, n, data);
    close_set(set, space);
    return leave(st);
}

// ------------------------------------------------------------------ groups

bool h5file_has(struct h5file *f, const char *name)
{
    char part[256];
    bool has = true;
    const char *end = name;

    enter();
    while (has && *end) { // every group on the way
        end += strcspn(end, "/");
        snprintf(part, sizeof part, "%.*s", (int)(end - name), name);
        has = H5Lexists(f->id, part, H5P_DEFAULT) > 0;
        end += *end == '/';
    }
    leave(ST_OK);
    return has;
}

struct each {
    enum status (*fn)(void *arg, const char *name);
    void *arg;
    enum status st;
};

static herr_t each_link(hid_t group, const char *name, const H5L_info_t *info, void *arg)
{
    struct each *e = arg;

    (void)group;
    (void)info;
    e->st = e->fn(e->arg, name);
    return e->st != ST_OK;
}

enum status h5file_each(struct h5file *f, const char *group,
                        enum status (*fn)(void *arg, const char *name), void *arg)
{
    struct each e = {.fn = fn, .arg = arg};
    hid_t at;

    enter();
    at = H5Gopen2(f->id, group, H5P_DEFAULT);
    if (at < 0)
        return leave(FAIL(ST_INVAL, "'%s': no group '%s': %s", f->path, group, reason()));
    if (H5Literate(at, H5_INDEX_NAME, H5_ITER_INC, NULL, each_link, &e) < 0 && e.st == ST_OK)
        e.st = FAIL(ST_INVAL, "'%s': cannot read group '%s': %s", f->path, group, reason());
    H5Gclose(at);
    return leave(e.st);
}

// ------------------------------------------------------------------ attributes

enum status h5file_at(struct h5file *f, const char *group)
{
    hid_t at, lcpl;

    enter();
    leave_group(f);
    if (strcmp(group, "/") == 0)
        return leave(ST_OK);
    at = H5Gopen2(f->id, group, H5P_DEFAULT);
    if (at < 0 && f->writing) {
        lcpl = link_props();
        at = H5Gcreate2(f->id, group, lcpl, H5P_DEFAULT, H5P_DEFAULT);
        H5Pclose(lcpl);
    }
    if (at < 0)
        return leave(FAIL(f->writing ? ST_IO : ST_INVAL, "'%s': no group '%s': %s", f->path, group,
                          reason()));
    f->at = at;
    snprintf(f->group, sizeof f->group, " of '%s'", group);
    return leave(ST_OK);
}

bool h5file_has_attr(struct h5file *f, const char *name)
{
    bool has;

    enter();
    has = H5Aexists(f->at, name) > 0;
    leave(ST_OK);
    return has;
}

static enum status write_attr(struct h5file *f, const char *name, hid_t type, hid_t space,
                              const void *value)
{
    hid_t attr = H5Acreate2(f->at, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    enum status st = ST_OK;

    if (attr < 0 || H5Awrite(attr, type, value) < 0)
        st =
            FAIL(ST_IO, "%s: cannot write attribute '%s'%s: %s", f->path, name, f->group, reason());
    if (attr >= 0 && H5Aclose(attr) < 0 && st == ST_OK)
        st =
            FAIL(ST_IO, "%s: cannot write attribute '%s'%s: %s", f->path, name, f->group, reason());
    return st;
}

static enum status put_attr(struct h5file *f, const char *name, hid_t type, const void *value)
{
    enum status st;
    hid_t space;

    enter();
    space = H5Screate(H5S_SCALAR);
    st = write_attr(f, name, type, space, value);
    H5Sclose(space);
    return leave(st);
}

enum status h5file_put_int(struct h5file *f, const char *name, int64_t value)
{
    return put_attr(f, name, H5T_NATIVE_INT64, &value);
}

enum status h5file_put_real(struct h5file *f, const char *name, double value)
{
    return put_attr(f, name, H5T_NATIVE_DOUBLE, &value);
}

enum status h5file_put_flag(struct h5file *f, const char *name, bool value)
{
    uint8_t byte = value;

    return put_attr(f, name, H5T_NATIVE_UINT8, &byte);
}

enum status h5file_put_reals(struct h5file *f, const char *name, int64_t n, const double *values)
{
    hsize_t dims[1] = {(hsize_t)n};
    enum status st;
    hid_t space;

    enter();
    space = H5Screate_simple(1, dims, NULL);
    st = write_attr(f, name, H5T_NATIVE_DOUBLE, space, values);
    H5Sclose(space);
    return leave(st);
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

enum status h5file_put_long_text(struct h5file *f, const char *name, const char *value)
{
    enum status st;
    hid_t type;

    enter();
    type = text_type(H5T_VARIABLE);
    leave(ST_OK);
    st = put_attr(f, name, type, &value);
    enter();
    H5Tclose(type);
    return leave(st);
}

// Read a scalar attribute of one class that fits `bytes`; text may be shorter.
static enum status get_attr(struct h5file *f, const char *name, H5T_class_t class, hid_t as,
                            size_t bytes, void *out)
{
    hid_t attr = H5Aopen(f->at, name, H5P_DEFAULT), stored, space;
    bool ok;

    if (attr < 0)
        return FAIL(ST_INVAL, "'%s': no attribute '%s'%s: %s", f->path, name, f->group, reason());
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
        return FAIL(ST_INVAL, "'%s': attribute '%s'%s is of another type, expected %s", f->path,
                    name, f->group,
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
        return FAIL(ST_INVAL, "'%s': attribute '%s'%s is %lld, expected %lld to %lld", f->path,
                    name, f->group, (long long)value, (long long)low, (long long)high);
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
        return FAIL(ST_INVAL, "'%s': attribute '%s'%s is %g, expected %g to %g", f->path, name,
                    f->group, value, low, high);
    *out = value;
    return ST_OK;
}

enum status h5file_get_reals(struct h5file *f, const char *name, int64_t n, double *out)
{
    hid_t attr, stored, space;
    enum status st = ST_OK;
    hssize_t has;

    enter();
    attr = H5Aopen(f->at, name, H5P_DEFAULT);
    if (attr < 0)
        return leave(
            FAIL(ST_INVAL, "'%s': no attribute '%s'%s: %s", f->path, name, f->group, reason()));
    stored = H5Aget_type(attr);
    space = H5Aget_space(attr);
    has = H5Sget_simple_extent_npoints(space);
    if (H5Tget_class(stored) != H5T_FLOAT || has != n || H5Aread(attr, H5T_NATIVE_DOUBLE, out) < 0)
        st = FAIL(ST_INVAL, "'%s': attribute '%s'%s has %lld items, expected %lld numbers", f->path,
                  name, f->group, (long long)has, (long long)n);
    H5Sclose(space);
    H5Tclose(stored);
    H5Aclose(attr);
    return leave(st);
}

// Is the attribute a text of the long form? Then read it.
static bool get_long_text(struct h5file *f, const char *name, char *out, size_t size,
                          enum status *st)
{
    hid_t attr = H5Aopen(f->at, name, H5P_DEFAULT), stored, space;
    char *text = NULL;
    bool is;

    if (attr < 0)
        return false;
    stored = H5Aget_type(attr);
    space = H5Aget_space(attr);
    is = H5Tis_variable_str(stored) > 0 && H5Sget_simple_extent_npoints(space) == 1;
    *st = ST_OK;
    if (is && (H5Aread(attr, stored, &text) < 0 || !text || strlen(text) >= size))
        *st = FAIL(ST_INVAL, "'%s': attribute '%s'%s cannot be read, or has %zu bytes or more",
                   f->path, name, f->group, size);
    else if (is)
        memcpy(out, text, strlen(text) + 1);
    if (text)
        H5free_memory(text);
    H5Sclose(space);
    H5Tclose(stored);
    H5Aclose(attr);
    return is;
}

enum status h5file_get_text(struct h5file *f, const char *name, char *out, size_t size)
{
    enum status st;

    memset(out, 0, size);
    enter();
    if (get_long_text(f, name, out, size, &st))
        return leave(st);
    st = leave(get_attr(f, name, H5T_STRING, -1, size, out));
    // texts are stored with their terminator; one that is not ends at its last byte
    out[size - 1] = '\0';
    return st;
}
