#include "nn/safetensors.h"

#include "common/base/config.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#define META      "__metadata__"
#define LENGTH    8           // bytes of the header's length
#define EXACT_MAX (1LL << 53) // a double holds whole numbers up to here
#define CHUNK     16384       // numbers converted at a time
#define ALIGNMENT 8           // of the first number in the file

static const struct kind {
    const char *name;
    int bytes;
    enum safetensors_type type;
} kinds[] = {
    {"F32", 4, SAFETENSORS_F32},       {"BF16", 2, SAFETENSORS_BF16},
    {"F16", 2, SAFETENSORS_F16},       {"F64", 8, SAFETENSORS_F64},
    {"I64", 8, SAFETENSORS_OTHER},     {"U64", 8, SAFETENSORS_OTHER},
    {"I32", 4, SAFETENSORS_OTHER},     {"U32", 4, SAFETENSORS_OTHER},
    {"I16", 2, SAFETENSORS_OTHER},     {"U16", 2, SAFETENSORS_OTHER},
    {"I8", 1, SAFETENSORS_OTHER},      {"U8", 1, SAFETENSORS_OTHER},
    {"BOOL", 1, SAFETENSORS_OTHER},    {"F8_E5M2", 1, SAFETENSORS_OTHER},
    {"F8_E4M3", 1, SAFETENSORS_OTHER},
};

struct safetensors {
    char *what; // for messages
    int fd;     // -1: the bytes are in memory
    const uint8_t *memory;
    uint64_t size;         // of the file
    uint64_t data;         // where the numbers begin
    cJSON *header;         // names point into it
    struct safetensor *at; // (n) by name
    int n;
};

// ------------------------------------------------------------------ numbers of 16 bits

float safetensors_from_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

uint16_t safetensors_to_bf16(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    if (isnan(x))
        return (uint16_t)(bits >> 16 | 0x40); // stays one
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float safetensors_from_f16(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 1023;
    float x = exponent == 31 ? (fraction ? NAN : INFINITY)
              : exponent > 0 ? ldexpf((float)(1024 + fraction), exponent - 25)
                             : ldexpf((float)fraction, -24);

    return half >> 15 ? -x : x;
}

uint16_t safetensors_to_f16(float x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    float a = fabsf(x);
    int exponent;

    if (isnan(x))
        return sign | 0x7e00;
    if (a >= 65520) // halfway from the largest to the next power of two
        return sign | 0x7c00;
    if (a < 0x1p-14f) // denormal: in units of 2^-24, of which 1024 are the least normal number
        return (uint16_t)(sign + (unsigned)lrintf(a * 0x1p24f));
    (void)frexpf(a, &exponent); // a = 0.5..1 * 2^exponent
    // 1024 to 2048 units of the last place; 2048 carries into the exponent
    return (uint16_t)(sign + ((unsigned)(exponent + 14) << 10) +
                      (unsigned)lrintf(ldexpf(a, 11 - exponent)) - 1024);
}

// ------------------------------------------------------------------ the header

static enum status bad(const struct safetensors *s, const char *name, const char *why)
{
    return FAIL(ST_INVAL, "'%s': array '%.80s': %s", s->what, name, why);
}

// A whole number of at least 0.
static bool whole(const cJSON *j, int64_t *out)
{
    double x = cJSON_IsNumber(j) ? j->valuedouble : -1;

    if (!(x >= 0 && x <= (double)EXACT_MAX) || x != floor(x))
        return false;
    *out = (int64_t)x;
    return true;
}

static enum status read_shape(const struct safetensors *s, const cJSON *shape, struct safetensor *t)
{
    const cJSON *j;

    if (!cJSON_IsArray(shape))
        return bad(s, t->name, "no 'shape', expected a list of sizes");
    t->n = 1;
    cJSON_ArrayForEach(j, shape)
    {
        int64_t k;

        if (t->rank == SAFETENSORS_RANK_MAX || !whole(j, &k))
            return bad(s, t->name, "its 'shape' is not a list of up to 8 sizes");
        t->dims[t->rank++] = k;
        if (k > 0 && t->n > EXACT_MAX / k)
            return bad(s, t->name, "its 'shape' is too large");
        t->n *= k;
    }
    return ST_OK;
}

static enum status read_entry(const struct safetensors *s, const cJSON *j, struct safetensor *t)
{
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(j, "dtype");
    const cJSON *span = cJSON_GetObjectItemCaseSensitive(j, "data_offsets");
    const struct kind *kind = NULL;
    int64_t from, to;

    t->name = j->string;
    if (!cJSON_IsObject(j))
        return bad(s, t->name, "expected an object with dtype, shape and data_offsets");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && cJSON_IsString(dtype); i++)
        if (strcmp(kinds[i].name, dtype->valuestring) == 0)
            kind = &kinds[i];
    if (!kind)
        return bad(s, t->name, "its 'dtype' is missing or unknown");
    t->type = kind->type;
    t->type_name = kind->name;
    TRY(read_shape(s, cJSON_GetObjectItemCaseSensitive(j, "shape"), t));
    if (cJSON_GetArraySize(span) != 2 || !cJSON_IsArray(span) || !whole(span->child, &from) ||
        !whole(span->child->next, &to) || to < from)
        return bad(s, t->name, "its 'data_offsets' are not two offsets in order");
    t->from = (uint64_t)from;
    t->bytes = (uint64_t)(to - from);
    if (t->n > EXACT_MAX / kind->bytes || t->bytes != (uint64_t)t->n * (uint64_t)kind->bytes)
        return bad(s, t->name, "its 'shape' and 'data_offsets' do not agree");
    if ((uint64_t)to > s->size - s->data)
        return bad(s, t->name, "it ends behind the end of the file");
    return ST_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct safetensor *)a)->name, ((const struct safetensor *)b)->name);
}

// Arrays of no bytes first, where they cannot be mistaken for a gap.
static int by_place(const void *a, const void *b)
{
    const struct safetensor *x = a, *y = b;

    return x->from != y->from     ? (x->from < y->from ? -1 : 1)
           : x->bytes != y->bytes ? (x->bytes < y->bytes ? -1 : 1)
                                  : 0;
}

static enum status check_places(const struct safetensors *s)
{
    uint64_t end = 0;

    for (int i = 0; i < s->n; i++) {
        if (s->at[i].from != end)
            return bad(s, s->at[i].name,
                       s->at[i].from < end ? "it overlaps another array" : "a gap lies before it");
        end += s->at[i].bytes;
    }
    if (end != s->size - s->data)
        return FAIL(ST_INVAL, "'%s': %llu bytes of arrays, the file has %llu", s->what,
                    (unsigned long long)end, (unsigned long long)(s->size - s->data));
    return ST_OK;
}

static enum status check_meta(const struct safetensors *s, const cJSON *meta)
{
    const cJSON *j;

    if (!cJSON_IsObject(meta))
        return bad(s, META, "expected an object of texts");
    cJSON_ArrayForEach(j, meta)
    {
        if (!cJSON_IsString(j))
            return bad(s, META, "expected an object of texts");
    }
    return ST_OK;
}

static enum status read_header(struct safetensors *s)
{
    const cJSON *j;

    s->at = mem_alloc((size_t)cJSON_GetArraySize(s->header), sizeof s->at[0]);
    if (!s->at)
        return ST_NOMEM;
    cJSON_ArrayForEach(j, s->header)
    {
        if (strcmp(j->string, META) == 0)
            TRY(check_meta(s, j));
        else
            TRY(read_entry(s, j, &s->at[s->n++]));
    }
    if (s->n == 0)
        return check_places(s);
    qsort(s->at, (size_t)s->n, sizeof s->at[0], by_place);
    TRY(check_places(s));
    qsort(s->at, (size_t)s->n, sizeof s->at[0], by_name);
    for (int i = 1; i < s->n; i++)
        if (strcmp(s->at[i - 1].name, s->at[i].name) == 0)
            return bad(s, s->at[i].name, "it stands twice");
    return ST_OK;
}

// ------------------------------------------------------------------ bytes

static enum status read_at(const struct safetensors *s, uint64_t from, void *out, size_t n)
{
    size_t done = 0;

    if (s->fd < 0) {
        memcpy(out, s->memory + from, n);
        return ST_OK;
    }
    while (done < n) {
        ssize_t k = pread(s->fd, (char *)out + done, n - done, (off_t)(from + done));

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return FAIL_SYS(ST_IO, errno, "cannot read '%s'", s->what);
        if (k == 0)
            return FAIL(ST_IO, "cannot read '%s': it became shorter", s->what);
        done += (size_t)k;
    }
    return ST_OK;
}

static enum status read_head(struct safetensors *s)
{
    uint8_t length[LENGTH];
    uint64_t n = 0;
    char *text;
    enum status st;

    if (s->size < LENGTH)
        return FAIL(ST_INVAL, "'%s': %llu bytes, which is no safetensors file", s->what,
                    (unsigned long long)s->size);
    TRY(read_at(s, 0, length, LENGTH));
    for (int i = 0; i < LENGTH; i++)
        n |= (uint64_t)length[i] << 8 * i;
    if (n > SAFETENSORS_HEADER_MAX || n > s->size - LENGTH)
        return FAIL(ST_INVAL, "'%s': a header of %llu bytes, expected at most %llu", s->what,
                    (unsigned long long)n,
                    (unsigned long long)(s->size - LENGTH < SAFETENSORS_HEADER_MAX
                                             ? s->size - LENGTH
                                             : SAFETENSORS_HEADER_MAX));
    s->data = LENGTH + n;
    text = mem_alloc((size_t)n + 1, 1);
    if (!text)
        return ST_NOMEM;
    st = read_at(s, LENGTH, text, (size_t)n);
    if (st == ST_OK && text[0] == '{' && strlen(text) == n)
        s->header = config_parse(text);
    mem_free(text);
    TRY(st);
    if (!s->header)
        return FAIL(ST_INVAL, "'%s': its header is not a JSON object", s->what);
    return read_header(s);
}

static enum status make(struct safetensors **out, const char *what)
{
    struct safetensors *s = mem_alloc(1, sizeof *s);

    if (!s)
        return ST_NOMEM;
    s->fd = -1;
    s->what = mem_strdup(what);
    if (!s->what) {
        mem_free(s);
        return ST_NOMEM;
    }
    *out = s;
    return ST_OK;
}

static enum status open_file(struct safetensors *s)
{
    struct stat info;

    s->fd = open(s->what, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0)
        return FAIL_SYS(errno == ENOENT ? ST_MISSING : ST_IO, errno, "cannot open '%s'", s->what);
    if (fstat(s->fd, &info) != 0 || !S_ISREG(info.st_mode))
        return FAIL(ST_INVAL, "'%s' is not a file", s->what);
    s->size = (uint64_t)info.st_size;
    return read_head(s);
}

// *out = s if it went well so far, else s is freed.
static enum status conclude(struct safetensors **out, struct safetensors *s, enum status st)
{
    if (st == ST_OK)
        *out = s;
    else
        safetensors_close(s);
    return st;
}

enum status safetensors_open(struct safetensors **out, const char *path)
{
    struct safetensors *s;

    TRY(make(&s, path));
    return conclude(out, s, open_file(s));
}

enum status safetensors_of(struct safetensors **out, const uint8_t *bytes, size_t n,
                           const char *what)
{
    struct safetensors *s;

    TRY(make(&s, what));
    s->memory = bytes;
    s->size = n;
    return conclude(out, s, read_head(s));
}

void safetensors_close(struct safetensors *s)
{
    if (!s)
        return;
    if (s->fd >= 0)
        close(s->fd);
    cJSON_Delete(s->header);
    mem_free(s->at);
    mem_free(s->what);
    mem_free(s);
}

int safetensors_count(const struct safetensors *s)
{
    return s->n;
}

const struct safetensor *safetensors_at(const struct safetensors *s, int i)
{
    return &s->at[i];
}

const struct safetensor *safetensors_find(const struct safetensors *s, const char *name)
{
    struct safetensor key = {.name = name};

    return s->n > 0 ? bsearch(&key, s->at, (size_t)s->n, sizeof s->at[0], by_name) : NULL;
}

const char *safetensors_meta(const struct safetensors *s, const char *key)
{
    const cJSON *meta = cJSON_GetObjectItemCaseSensitive(s->header, META);

    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, key));
}

enum status safetensors_bytes(const struct safetensors *s, const struct safetensor *t, void *out)
{
    return read_at(s, s->data + t->from, out, (size_t)t->bytes);
}

static float number_of(enum safetensors_type type, const uint8_t *p)
{
    uint16_t half;
    double wide;
    float x;

    switch (type) {
    case SAFETENSORS_F32:
        memcpy(&x, p, sizeof x);
        return x;
    case SAFETENSORS_F64:
        memcpy(&wide, p, sizeof wide);
        return (float)wide;
    default:
        memcpy(&half, p, sizeof half);
        return type == SAFETENSORS_F16 ? safetensors_from_f16(half) : safetensors_from_bf16(half);
    }
}

enum status safetensors_read(const struct safetensors *s, const struct safetensor *t, float *out)
{
    uint8_t buf[CHUNK];
    size_t size = t->n > 0 ? (size_t)(t->bytes / (uint64_t)t->n) : 1, n;

    if (t->type == SAFETENSORS_OTHER)
        return FAIL(ST_INVAL, "'%s': array '%.80s' is %s, expected F32, BF16, F16 or F64", s->what,
                    t->name, t->type_name);
    for (uint64_t done = 0; done < t->bytes; done += n) {
        n = t->bytes - done < CHUNK ? (size_t)(t->bytes - done) : CHUNK;
        TRY(read_at(s, s->data + t->from + done, buf, n));
        for (size_t i = 0; i < n; i += size, out++) {
            *out = number_of(t->type, buf + i);
            if (!isfinite(*out))
                return bad(s, t->name, "it holds a number that is not a finite float32");
        }
    }
    return ST_OK;
}

// "(2, 3)" into buf.
static const char *print_dims(char *buf, size_t size, int rank, const int64_t *dims)
{
    size_t n = (size_t)snprintf(buf, size, "(");

    for (int i = 0; i < rank && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%lld", i ? ", " : "", (long long)dims[i]);
    if (n < size)
        snprintf(buf + n, size - n, ")");
    return buf;
}

enum status safetensors_get(const struct safetensors *s, const char *name, int rank,
                            const int64_t *dims, float *out)
{
    const struct safetensor *t = safetensors_find(s, name);
    char have[160], want[160];

    if (!t)
        return FAIL(ST_INVAL, "'%s': no array '%.80s'", s->what, name);
    if (t->rank != rank || (rank > 0 && memcmp(t->dims, dims, (size_t)rank * sizeof dims[0]) != 0))
        return FAIL(ST_INVAL, "'%s': array '%.80s' is %s, expected %s", s->what, name,
                    print_dims(have, sizeof have, t->rank, t->dims),
                    print_dims(want, sizeof want, rank, dims));
    return safetensors_read(s, t, out);
}

// ------------------------------------------------------------------ writing

static const struct kind *kind_of(enum safetensors_type type)
{
    size_t i;

    for (i = 0; kinds[i].type != type; i++)
        ;
    return &kinds[i];
}

static int64_t numbers(const struct safetensors_part *p)
{
    int64_t n = 1;

    for (int i = 0; i < p->rank; i++)
        n *= p->dims[i];
    return n;
}

static void put_header(struct json *j, const struct safetensors_part *parts, int n_part,
                       const struct safetensors_note *notes, int n_note)
{
    int64_t at = 0;

    json_open(j, NULL, '{');
    if (n_note > 0) {
        json_open(j, META, '{');
        for (int i = 0; i < n_note; i++)
            json_str(j, notes[i].key, notes[i].text);
        json_close(j, '}');
    }
    for (int k = 0; k < n_part; k++) {
        const struct safetensors_part *p = &parts[k];
        const struct kind *kind = kind_of(p->type);

        json_open(j, p->name, '{');
        json_str(j, "dtype", kind->name);
        json_open(j, "shape", '[');
        for (int i = 0; i < p->rank; i++)
            json_int(j, NULL, p->dims[i]);
        json_close(j, ']');
        json_open(j, "data_offsets", '[');
        json_int(j, NULL, at);
        at += numbers(p) * kind->bytes;
        json_int(j, NULL, at);
        json_close(j, ']');
        json_close(j, '}');
    }
    json_close(j, '}');
}

static enum status write_header(int fd, const char *path, const char *text)
{
    static const char blanks[ALIGNMENT + 1] = "        ";
    size_t n = strlen(text), pad = (ALIGNMENT - (LENGTH + n) % ALIGNMENT) % ALIGNMENT;
    uint8_t length[LENGTH];

    if (n + pad > SAFETENSORS_HEADER_MAX)
        return FAIL(ST_INVAL, "'%s': a header of %zu bytes, at most %d", path, n,
                    SAFETENSORS_HEADER_MAX);
    for (int i = 0; i < LENGTH; i++)
        length[i] = (uint8_t)((uint64_t)(n + pad) >> 8 * i);
    TRY(file_append(fd, path, length, LENGTH));
    TRY(file_append(fd, path, text, n));
    return file_append(fd, path, blanks, pad);
}

static enum status write_part(int fd, const char *path, const struct safetensors_part *p)
{
    int64_t n = numbers(p), done, k, i;
    uint16_t half[CHUNK];

    if (p->type == SAFETENSORS_F32)
        return file_append(fd, path, p->data, (size_t)n * sizeof p->data[0]);
    for (done = 0; done < n; done += k) {
        k = n - done < CHUNK ? n - done : CHUNK;
        for (i = 0; i < k; i++)
            half[i] = p->type == SAFETENSORS_F16 ? safetensors_to_f16(p->data[done + i])
                                                 : safetensors_to_bf16(p->data[done + i]);
        TRY(file_append(fd, path, half, (size_t)k * sizeof half[0]));
    }
    return ST_OK;
}

static enum status write_all(int fd, const char *path, const struct safetensors_part *parts,
                             int n_part, const char *header)
{
    TRY(write_header(fd, path, header));
    for (int i = 0; i < n_part; i++)
        TRY(write_part(fd, path, &parts[i]));
    return ST_OK;
}

enum status safetensors_save(const char *path, const struct safetensors_part *parts, int n_part,
                             const struct safetensors_note *notes, int n_note)
{
    struct file_new f;
    enum status st;
    struct json j;

    for (int i = 0; i < n_part; i++)
        if (parts[i].type > SAFETENSORS_F16 || parts[i].rank > SAFETENSORS_RANK_MAX)
            return FAIL(ST_INVAL, "'%s': array '%.80s' is not of F32, BF16 or F16 and rank 0 to %d",
                        path, parts[i].name, SAFETENSORS_RANK_MAX);
    json_init(&j);
    put_header(&j, parts, n_part, notes, n_note);
    st = json_text(&j) ? file_begin(&f, path) : ST_NOMEM;
    if (st == ST_OK)
        st = file_end(&f, path, write_all(f.fd, f.path, parts, n_part, json_text(&j)));
    json_fini(&j);
    return st;
}
