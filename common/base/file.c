#include "common/base/file.h"

#include "common/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX (1 << 30)

static bool is_dir(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static enum status make_one(const char *path)
{
    int sys;

    if (mkdir(path, 0777) == 0 || is_dir(path))
        return ST_OK;
    sys = errno;
    if (sys == EEXIST)
        return FAIL(ST_IO, "cannot make folder '%s': a file has this name", path);
    return FAIL_SYS(ST_IO, sys, "cannot make folder '%s'", path);
}

enum status file_make_dir(const char *path)
{
    char part[PATH_MAX];
    size_t n = strlen(path);
    char *p;

    if (n == 0 || n >= sizeof part)
        return FAIL(ST_INVAL, "folder name '%.60s' has %zu bytes, expected 1..%zu", path, n,
                    sizeof part - 1);
    memcpy(part, path, n + 1);
    for (p = part + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        TRY(make_one(part));
        *p = '/';
    }
    return make_one(part);
}

enum status file_begin(struct file_new *f, const char *path)
{
    if ((size_t)snprintf(f->path, sizeof f->path, "%s.tmp", path) >= sizeof f->path)
        return FAIL(ST_INVAL, "file name '%.60s...' is too long", path);
    f->fd = open(f->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return f->fd >= 0 ? ST_OK : FAIL_SYS(ST_IO, errno, "cannot write '%s'", f->path);
}

enum status file_end(struct file_new *f, const char *path, enum status st)
{
    // some file systems report a full disk only here
    if (st == ST_OK && fsync(f->fd) != 0 && errno != EINVAL && errno != EROFS)
        st = FAIL_SYS(ST_IO, errno, "cannot write '%s'", f->path);
    if (close(f->fd) != 0 && st == ST_OK)
        st = FAIL_SYS(ST_IO, errno, "cannot write '%s'", f->path);
    if (st == ST_OK && rename(f->path, path) != 0)
        st = FAIL_SYS(ST_IO, errno, "cannot rename '%s' to '%s'", f->path, path);
    if (st != ST_OK)
        unlink(f->path);
    return st;
}

enum status file_write_atomic(const char *path, const void *bytes, size_t n)
{
    struct file_new f;

    TRY(file_begin(&f, path));
    return file_end(&f, path, file_append(f.fd, f.path, bytes, n));
}

enum status file_append(int fd, const char *path, const void *bytes, size_t n)
{
    const char *p = bytes;
    size_t left = n;

    while (left > 0) {
        ssize_t done = write(fd, p, left);
        struct stat st;
        int sys = errno;

        if (done < 0 && sys == EINTR)
            continue;
        if (done < 0) {
            if (left < n && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                ftruncate(fd, st.st_size - (off_t)(n - left)) != 0)
                return FAIL_SYS(ST_IO, sys, "cannot write '%s', which ends in a part now", path);
            return FAIL_SYS(ST_IO, sys, "cannot write '%s'", path);
        }
        p += done;
        left -= (size_t)done;
    }
    return ST_OK;
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static enum status read_all(int fd, const char *path, char **bytes, size_t *n)
{
    struct stat st;
    size_t used = 0;
    ssize_t got;
    char *buf;

    if (fstat(fd, &st) != 0)
        return FAIL_SYS(ST_IO, errno, "cannot read '%s'", path);
    if (!S_ISREG(st.st_mode) || st.st_size > FILE_BYTES_MAX)
        return FAIL(ST_IO, "cannot read '%s': expected a file of at most %d bytes", path,
                    FILE_BYTES_MAX);
    buf = mem_alloc((size_t)st.st_size + 1, 1);
    if (!buf)
        return ST_NOMEM;
    while (used < (size_t)st.st_size) {
        got = read(fd, buf + used, (size_t)st.st_size - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            mem_free(buf);
            return FAIL_SYS(ST_IO, errno, "cannot read '%s'", path);
        }
        if (got == 0)
            break; // it was cut while it was read
        used += (size_t)got;
    }
    *bytes = buf;
    *n = used;
    return ST_OK;
}

enum status file_read(const char *path, char **bytes, size_t *n)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    enum status st;

    if (fd < 0)
        return FAIL_SYS(errno == ENOENT ? ST_MISSING : ST_IO, errno, "cannot read '%s'", path);
    st = read_all(fd, path, bytes, n);
    close(fd);
    return st;
}
