// The event file is TensorBoard's: records of
//   u64 length, u32 masked CRC-32C of these 8 bytes, payload, u32 masked CRC-32C of the payload,
// little endian, where the payload is an Event message of protocol buffers. Fields used:
//   Event   1 double wall_time, 2 int64 step, 3 string file_version (first record), 5 Summary
//   Summary 1 Value (repeated)      Value  1 string tag, 2 float simple_value
//
// Both files grow by file_append, so that they never hold half a line or half a record.
#define _GNU_SOURCE // memrchr
#include "common/base/metrics.h"

#include "common/base/crc.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD_BYTES   12 // length and its CRC
#define VARINT_BYTES 10
#define FIRST_BYTES  256 // more than the first record takes

struct out_file {
    int fd;
    char path[PATH_MAX];
};

struct metrics {
    struct out_file lines, events;
    uint8_t *buf; // one record
    size_t cap;
};

static void out_close(struct out_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

static enum status out_open(struct out_file *f, int flags)
{
    f->fd = open(f->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666);
    if (f->fd < 0)
        return FAIL_SYS(ST_IO, errno, "cannot open '%s'", f->path);
    return ST_OK;
}

// A crash may have left half a line at the end of the file that is continued: drop it.
static enum status drop_half_line(struct out_file *f)
{
    struct stat st;
    char block[512];
    off_t end;

    if (fstat(f->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return ST_OK;
    for (end = st.st_size; end > 0;) {
        size_t n = end < (off_t)sizeof block ? (size_t)end : sizeof block;
        const char *newline;

        if (pread(f->fd, block, n, end - (off_t)n) != (ssize_t)n)
            return FAIL_SYS(ST_IO, errno, "cannot read '%s'", f->path);
        newline = memrchr(block, '\n', n);
        if (newline) {
            end += newline + 1 - (block + n);
            break;
        }
        end -= (off_t)n;
    }
    if (end < st.st_size && ftruncate(f->fd, end) != 0)
        return FAIL_SYS(ST_IO, errno, "cannot shorten '%s'", f->path);
    return ST_OK;
}

static uint8_t *put_le(uint8_t *p, uint64_t value, int n_byte)
{
    int i;

    for (i = 0; i < n_byte; i++)
        *p++ = (uint8_t)(value >> (8 * i));
    return p;
}

static uint8_t *put_varint(uint8_t *p, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *p++ = (uint8_t)(value | 0x80);
    *p++ = (uint8_t)value;
    return p;
}

static uint8_t *put_bytes(uint8_t *p, const void *bytes, size_t n)
{
    memcpy(p, bytes, n);
    return p + n;
}

static size_t varint_bytes(uint64_t value)
{
    uint8_t scratch[VARINT_BYTES];

    return (size_t)(put_varint(scratch, value) - scratch);
}

static uint32_t masked_crc(const void *bytes, size_t n)
{
    uint32_t crc = crc32c(0, bytes, n);

    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

// The payload stands in buf + HEAD_BYTES and ends at `end`: add what frames it, write it.
static enum status write_record(struct metrics *m, uint8_t *end)
{
    uint8_t *payload = m->buf + HEAD_BYTES;
    size_t n = (size_t)(end - payload);

    put_le(m->buf, n, 8);
    put_le(m->buf + 8, masked_crc(m->buf, 8), 4);
    end = put_le(end, masked_crc(payload, n), 4);
    return file_append(m->events.fd, m->events.path, m->buf, (size_t)(end - m->buf));
}

static uint8_t *put_wall_time(uint8_t *p)
{
    double now = clock_wall_s();
    uint64_t bits;

    memcpy(&bits, &now, sizeof bits);
    *p++ = 0x09; // Event.wall_time, 64 bits
    return put_le(p, bits, 8);
}

static size_t value_bytes(const struct metric *v)
{
    size_t n_tag = strlen(v->tag);

    return 1 + varint_bytes(n_tag) + n_tag + 1 + 4;
}

static uint8_t *put_value(uint8_t *p, const struct metric *v)
{
    float value = (float)v->value;
    size_t n_tag = strlen(v->tag);
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    *p++ = 0x0a; // Summary.value, a message
    p = put_varint(p, value_bytes(v));
    *p++ = 0x0a; // Value.tag, a string
    p = put_varint(p, n_tag);
    p = put_bytes(p, v->tag, n_tag);
    *p++ = 0x15; // Value.simple_value, 32 bits
    return put_le(p, bits, 4);
}

static enum status reserve(struct metrics *m, size_t n)
{
    uint8_t *buf;

    if (n <= m->cap)
        return ST_OK;
    buf = mem_resize(m->buf, n, 1);
    if (!buf)
        return ST_NOMEM;
    m->buf = buf;
    m->cap = n;
    return ST_OK;
}

static enum status write_event(struct metrics *m, int64_t step, const struct metric *values, int n)
{
    size_t summary = 0;
    uint8_t *p;
    int i;

    for (i = 0; i < n; i++) {
        if (!isnan(values[i].value))
            summary += 1 + varint_bytes(value_bytes(&values[i])) + value_bytes(&values[i]);
    }
    if (summary == 0)
        return ST_OK;
    TRY(reserve(m, HEAD_BYTES + 9 + 1 + VARINT_BYTES + 1 + VARINT_BYTES + summary + 4));
    p = put_wall_time(m->buf + HEAD_BYTES);
    *p++ = 0x10; // Event.step
    p = put_varint(p, (uint64_t)step);
    *p++ = 0x2a; // Event.summary, a message
    p = put_varint(p, summary);
    for (i = 0; i < n; i++) {
        if (!isnan(values[i].value))
            p = put_value(p, &values[i]);
    }
    return write_record(m, p);
}

static enum status write_line(struct metrics *m, int64_t step, const struct metric *values, int n)
{
    struct json j;
    enum status st;
    int i;

    json_init(&j);
    json_open(&j, NULL, '{');
    json_int(&j, "step", step);
    json_real(&j, "wall_time", round(clock_wall_s() * 1e3) / 1e3);
    for (i = 0; i < n; i++) {
        if (!isnan(values[i].value))
            json_real(&j, values[i].tag, values[i].value);
    }
    json_close(&j, '}');
    if (!json_text(&j)) {
        st = ST_NOMEM;
    } else {
        j.buf[j.len] = '\n'; // in place of the terminator
        st = file_append(m->lines.fd, m->lines.path, j.buf, j.len + 1);
    }
    json_fini(&j);
    return st;
}

static enum status open_events(struct metrics *m, const char *dir)
{
    static const char version[] = "brain.Event:2";
    static atomic_int n_opened;
    char host[256] = "localhost";
    uint8_t *p;

    if (gethostname(host, sizeof host - 1) != 0)
        host[0] = '\0';
    if ((size_t)snprintf(m->events.path, sizeof m->events.path,
                         "%s/events.out.tfevents.%010lld.%s.%d.%d", dir, (long long)clock_wall_s(),
                         host, (int)getpid(),
                         atomic_fetch_add(&n_opened, 1)) >= sizeof m->events.path)
        return FAIL(ST_INVAL, "folder name '%.60s...' is too long", dir);
    TRY(out_open(&m->events, O_EXCL));
    TRY(reserve(m, FIRST_BYTES));
    p = put_wall_time(m->buf + HEAD_BYTES);
    *p++ = 0x1a; // Event.file_version, a string
    p = put_varint(p, sizeof version - 1);
    p = put_bytes(p, version, sizeof version - 1);
    return write_record(m, p);
}

enum status metrics_open(struct metrics **out, const char *dir)
{
    struct metrics *m = mem_alloc(1, sizeof *m);
    enum status st = ST_OK;

    if (!m)
        return ST_NOMEM;
    m->lines.fd = m->events.fd = -1;
    if ((size_t)snprintf(m->lines.path, sizeof m->lines.path, "%s/metrics.jsonl", dir) >=
        sizeof m->lines.path)
        st = FAIL(ST_INVAL, "folder name '%.60s...' is too long", dir);
    if (st == ST_OK)
        st = out_open(&m->lines, 0);
    if (st == ST_OK)
        st = drop_half_line(&m->lines);
    if (st == ST_OK)
        st = open_events(m, dir);
    if (st != ST_OK) {
        metrics_close(m);
        return st;
    }
    *out = m;
    return ST_OK;
}

enum status metrics_write(struct metrics *m, int64_t step, const struct metric *values, int n)
{
    TRY(write_line(m, step, values, n));
    return write_event(m, step, values, n);
}

void metrics_close(struct metrics *m)
{
    if (!m)
        return;
    out_close(&m->lines);
    out_close(&m->events);
    mem_free(m->buf);
    mem_free(m);
}
