#include "common/wire/msg.h"

#include "common/base/mem.h"

#include <pthread.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are copied as they are");

// Buffers are powers of two, so that a message from the list fits its size without a search and a
// large buffer is never spent on a small message.
#define CLASS_MIN      8  // 256 bytes
#define CLASS_MAX      28 // MSG_BYTES_MAX
#define KEEP_BYTES_MAX (64u << 20)
#define KEEP_MAX       1024

_Static_assert(MSG_BYTES_MAX == 1u << CLASS_MAX, "the last class holds the longest message");

static pthread_mutex_t mtx = PTHREAD_MUTEX_INITIALIZER;
static struct msg *free_list[CLASS_MAX + 1]; // guarded by mtx
static size_t kept_bytes;                    // guarded by mtx
static int kept;                             // guarded by mtx

static int class_of(size_t cap)
{
    int cls = CLASS_MIN;

    while (((size_t)1 << cls) < cap)
        cls++;
    return cls;
}

static enum status check_size(size_t n)
{
    if (n > MSG_BYTES_MAX)
        return FAIL(ST_NOMEM, "a message of %zu bytes is longer than %u", n, MSG_BYTES_MAX);
    return ST_OK;
}

static struct msg *take(int cls)
{
    struct msg *m;

    pthread_mutex_lock(&mtx);
    m = free_list[cls];
    if (m) {
        free_list[cls] = m->next_;
        kept--;
        kept_bytes -= m->cap;
    }
    pthread_mutex_unlock(&mtx);
    return m;
}

enum status msg_new(struct msg **out, uint16_t type, size_t cap)
{
    int cls;
    struct msg *m;

    TRY(check_size(cap));
    cls = class_of(cap);
    m = take(cls);
    if (!m) {
        m = mem_alloc(1, sizeof *m);
        if (!m)
            return ST_NOMEM;
        m->cap = (size_t)1 << cls;
        m->data = mem_alloc(1, m->cap);
        if (!m->data) {
            mem_free(m);
            return ST_NOMEM;
        }
    }
    m->type = type;
    m->len = 0;
    m->next_ = NULL;
    *out = m;
    return ST_OK;
}

static void release(struct msg *m)
{
    mem_free(m->data);
    mem_free(m);
}

void msg_free(struct msg *m)
{
    bool keep;
    int cls;

    if (!m)
        return;
    cls = class_of(m->cap);
    pthread_mutex_lock(&mtx);
    keep = kept < KEEP_MAX && kept_bytes + m->cap <= KEEP_BYTES_MAX;
    if (keep) {
        kept++;
        kept_bytes += m->cap;
        m->next_ = free_list[cls];
        free_list[cls] = m;
    }
    pthread_mutex_unlock(&mtx);
    if (!keep)
        release(m);
}

void msg_drain(void)
{
    int cls;

    for (cls = CLASS_MIN; cls <= CLASS_MAX; cls++) {
        struct msg *m;

        while ((m = take(cls)) != NULL)
            release(m);
    }
}

// Move to a longer buffer, which comes from the list as well.
static enum status grow(struct msg *m, size_t len)
{
    struct msg *to;
    uint8_t *data = m->data;
    size_t cap = m->cap;

    TRY(msg_new(&to, m->type, len));
    memcpy(to->data, data, m->len);
    m->data = to->data;
    m->cap = to->cap;
    to->data = data;
    to->cap = cap;
    msg_free(to);
    return ST_OK;
}

void *msg_extend(struct msg *m, size_t n)
{
    uint8_t *p;

    if (check_size(n) != ST_OK || check_size(m->len + n) != ST_OK)
        return NULL;
    if (m->len + n > m->cap && grow(m, m->len + n) != ST_OK)
        return NULL;
    p = m->data + m->len;
    m->len += n;
    return p;
}

void *msg_append(struct msg *m, size_t n)
{
    uint8_t *p = msg_extend(m, n);

    if (p)
        memset(p, 0, n);
    return p;
}

enum status msg_bytes(struct msg *m, const void *p, size_t n)
{
    uint8_t *to = msg_extend(m, n);

    if (!to)
        return ST_NOMEM;
    if (n > 0)
        memcpy(to, p, n);
    return ST_OK;
}

enum status msg_u32(struct msg *m, uint32_t v)
{
    return msg_bytes(m, &v, sizeof v);
}

enum status msg_u64(struct msg *m, uint64_t v)
{
    return msg_bytes(m, &v, sizeof v);
}

enum status msg_f64(struct msg *m, double v)
{
    return msg_bytes(m, &v, sizeof v);
}

enum status msg_str(struct msg *m, const char *text)
{
    size_t n = strlen(text);

    TRY(check_size(n));
    TRY(msg_u32(m, (uint32_t)n));
    return msg_bytes(m, text, n);
}

struct reader reader_make(const struct msg *m)
{
    return (struct reader){.p = m->data, .end = m->data + m->len};
}

const void *read_bytes(struct reader *r, uint64_t n, size_t size)
{
    const uint8_t *p = r->p;
    size_t left = (size_t)(r->end - p);

    if (r->bad || (size > 0 && n > left / size)) {
        r->bad = true;
        return NULL;
    }
    r->p += n * size;
    return p;
}

static void read_into(struct reader *r, void *out, size_t n)
{
    const void *p = read_bytes(r, 1, n);

    if (p)
        memcpy(out, p, n);
}

uint32_t read_u32(struct reader *r)
{
    uint32_t v = 0;

    read_into(r, &v, sizeof v);
    return v;
}

uint64_t read_u64(struct reader *r)
{
    uint64_t v = 0;

    read_into(r, &v, sizeof v);
    return v;
}

double read_f64(struct reader *r)
{
    double v = 0;

    read_into(r, &v, sizeof v);
    return v;
}

void read_str(struct reader *r, char *buf, size_t size)
{
    uint32_t n = read_u32(r);
    const char *p;

    buf[0] = '\0';
    if (n >= size)
        r->bad = true;
    p = read_bytes(r, n, 1);
    if (!p)
        return;
    if (memchr(p, '\0', n)) {
        r->bad = true;
        return;
    }
    memcpy(buf, p, n);
    buf[n] = '\0';
}

enum status reader_end(const struct reader *r, bool all, const char *what)
{
    if (r->bad)
        return FAIL(ST_PROTO, "%s is too short or malformed", what);
    if (all && r->p != r->end)
        return FAIL(ST_PROTO, "%s has %zu bytes too many", what, (size_t)(r->end - r->p));
    return ST_OK;
}
