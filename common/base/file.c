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

static enum status write_all(int fd, const char *path, const void *bytes, size_t n)
{
    const char *p = bytes;

    while (n > 0) {
        ssize_t done = write(fd, p, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return FAIL_SYS(ST_IO, errno, "cannot write '%s'", path);
        p += done;
        n -= (size_t)done;
    }
    // some file systems report a full disk only here
    if (fsync(fd) != 0 && errno != EINVAL && errno != EROFS)
        return FAIL_SYS(ST_IO, errno, "cannot write '%s'", path);
    return ST_OK;
}

enum status file_write_atomic(const char *path, const void *bytes, size_t n)
{
    char tmp[PATH_MAX];
    enum status st;
    int fd;

    if ((size_t)snprintf(tmp, sizeof tmp, "%s.tmp", path) >= sizeof tmp)
        return FAIL(ST_INVAL, "file name '%.60s...' is too long", path);
    fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return FAIL_SYS(ST_IO, errno, "cannot write '%s'", tmp);
    st = write_all(fd, tmp, bytes, n);
    if (close(fd) != 0 && st == ST_OK)
        st = FAIL_SYS(ST_IO, errno, "cannot write '%s'", tmp);
    if (st == ST_OK && rename(tmp, path) != 0)
        st = FAIL_SYS(ST_IO, errno, "cannot rename '%s' to '%s'", tmp, path);
    if (st != ST_OK)
        unlink(tmp);
    return st;
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
