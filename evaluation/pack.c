#include "evaluation/pack.h"

#include "common/base/config.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX   16
#define OBJECTS_MAX (1u << 20)
#define NPY_HEAD    10 // magic, version, length of the header

// ------------------------------------------------------------------ writing

void pack_init(struct pack *k)
{
    k->failed = false;
    msgpack_sbuffer_init(&k->buf);
    msgpack_packer_init(&k->p, &k->buf, msgpack_sbuffer_write);
}

void pack_fini(struct pack *k)
{
    msgpack_sbuffer_destroy(&k->buf);
}

void pack_clear(struct pack *k)
{
    k->failed = false;
    msgpack_sbuffer_clear(&k->buf);
}

enum status pack_done(const struct pack *k)
{
    return k->failed ? FAIL(ST_NOMEM, "no memory for a request to the policy server") : ST_OK;
}

void pack_map(struct pack *k, size_t n)
{
    k->failed |= msgpack_pack_map(&k->p, n) != 0;
}

void pack_array(struct pack *k, size_t n)
{
    k->failed |= msgpack_pack_array(&k->p, n) != 0;
}

void pack_nil(struct pack *k)
{
    k->failed |= msgpack_pack_nil(&k->p) != 0;
}

void pack_bool(struct pack *k, bool value)
{
    k->failed |= (value ? msgpack_pack_true(&k->p) : msgpack_pack_false(&k->p)) != 0;
}

void pack_int(struct pack *k, int64_t value)
{
    k->failed |= msgpack_pack_int64(&k->p, value) != 0;
}

void pack_real(struct pack *k, double value)
{
    k->failed |= msgpack_pack_double(&k->p, value) != 0;
}

void pack_str(struct pack *k, const char *text)
{
    size_t n = strlen(text);

    k->failed |= msgpack_pack_str(&k->p, n) != 0 || msgpack_pack_str_body(&k->p, text, n) != 0;
}

static void pack_bin(struct pack *k, const void *bytes, size_t n)
{
    k->failed |= msgpack_pack_bin(&k->p, n) != 0 || msgpack_pack_bin_body(&k->p, bytes, n) != 0;
}

static void pack_key(struct pack *k, enum tensor_style style, const char *key)
{
    if (style == TENSOR_OPENPI || style == TENSOR_ND)
        pack_bin(k, key, strlen(key));
    else
        pack_str(k, key);
}

static void pack_shape(struct pack *k, const struct tensor *t)
{
    int i;

    pack_array(k, (size_t)t->n_dim);
    for (i = 0; i < t->n_dim; i++)
        pack_int(k, t->shape[i]);
}

// The header that numpy.save writes: padded so that the data begin at a multiple of 64.
static void pack_npy(struct pack *k, const struct tensor *t)
{
    char head[256] = "\x93NUMPY\x01";
    int n = NPY_HEAD, i, total;

    n += snprintf(head + n, 128, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                  tensor_type_name(t->type));
    for (i = 0; i < t->n_dim; i++)
        n += snprintf(head + n, 16,
                      i + 1 < t->n_dim ? "%u, "
                      : t->n_dim == 1  ? "%u,"
                                       : "%u",
                      t->shape[i]);
    n += snprintf(head + n, 8, "), }");
    total = (n + 1 + 63) / 64 * 64;
    memset(head + n, ' ', (size_t)(total - n));
    head[total - 1] = '\n';
    head[8] = (char)((total - NPY_HEAD) & 0xff);
    head[9] = (char)((total - NPY_HEAD) >> 8);
    k->failed |= msgpack_pack_bin(&k->p, (size_t)total + tensor_bytes(t)) != 0 ||
                 msgpack_pack_bin_body(&k->p, head, (size_t)total) != 0 ||
                 msgpack_pack_bin_body(&k->p, t->data, tensor_bytes(t)) != 0;
}

void pack_tensor(struct pack *k, enum tensor_style style, const struct tensor *t)
{
    switch (style) {
    case TENSOR_NPY:
        pack_map(k, 2);
        pack_str(k, "__ndarray_class__");
        pack_bool(k, true);
        pack_str(k, "as_npy");
        pack_npy(k, t);
        return;
    case TENSOR_ND:
        pack_map(k, 5);
        pack_key(k, style, "nd");
        pack_bool(k, true);
        pack_key(k, style, "type");
        pack_str(k, tensor_type_name(t->type));
        pack_key(k, style, "kind");
        pack_bin(k, "", 0);
        pack_key(k, style, "shape");
        pack_shape(k, t);
        pack_key(k, style, "data");
        pack_bin(k, t->data, tensor_bytes(t));
        return;
    default:
        pack_map(k, 4);
        pack_key(k, style, "__ndarray__");
        pack_bool(k, true);
        pack_key(k, style, "data");
        pack_bin(k, t->data, tensor_bytes(t));
        pack_key(k, style, "dtype");
        pack_str(k, tensor_type_name(t->type));
        pack_key(k, style, "shape");
        pack_shape(k, t);
    }
}

// Only for constants from the command line and their few levels.
static void pack_cjson(struct pack *k, const cJSON *j)
{
    const cJSON *c;

    if (cJSON_IsObject(j) || cJSON_IsArray(j)) {
        if (cJSON_IsObject(j))
            pack_map(k, (size_t)cJSON_GetArraySize(j));
        else
            pack_array(k, (size_t)cJSON_GetArraySize(j));
        cJSON_ArrayForEach(c, j)
        {
            if (cJSON_IsObject(j))
                pack_str(k, c->string);
            pack_cjson(k, c);
        }
    } else if (cJSON_IsString(j)) {
        pack_str(k, j->valuestring);
    } else if (cJSON_IsBool(j)) {
        pack_bool(k, cJSON_IsTrue(j));
    } else if (cJSON_IsNumber(j) && j->valuedouble == floor(j->valuedouble) &&
               fabs(j->valuedouble) < 9e15) {
        pack_int(k, (int64_t)j->valuedouble);
    } else if (cJSON_IsNumber(j)) {
        pack_real(k, j->valuedouble);
    } else {
        pack_nil(k);
    }
}

enum status pack_json_members(struct pack *k, const char *json, size_t *n)
{
    cJSON *j = config_parse(json), *c;

    if (!cJSON_IsObject(j)) {
        cJSON_Delete(j);
        return FAIL(ST_INVAL, "'%.80s' is no JSON object", json);
    }
    *n = (size_t)cJSON_GetArraySize(j);
    for (c = k ? j->child : NULL; c; c = c->next) {
        pack_str(k, c->string);
        pack_cjson(k, c);
    }
    cJSON_Delete(j);
    return ST_OK;
}

// ------------------------------------------------------------------ reading

struct walk {
    const uint8_t *p, *end;
    uint32_t objects;
};

static uint64_t big_endian(const uint8_t *p, int n)
{
    uint64_t v = 0;

    while (n-- > 0)
        v = v << 8 | *p++;
    return v;
}

// Of the head byte `b`: bytes of a length or count behind it, fixed bytes, and children an element.
struct head {
    uint8_t len, fixed, children;
};

static struct head head_of(uint8_t b)
{
    static const struct head wide[32] = {
        [0x00] = {0, 0, 0}, {0, 0, 0},                                   // nil, never used
        {0, 0, 0},          {0, 0, 0},                                   // false, true
        {1, 0, 0},          {2, 0, 0}, {4, 0, 0},                        // bin
        {1, 1, 0},          {2, 1, 0}, {4, 1, 0},                        // ext: length, type
        {0, 4, 0},          {0, 8, 0},                                   // float
        {0, 1, 0},          {0, 2, 0}, {0, 4, 0}, {0, 8, 0},             // unsigned
        {0, 1, 0},          {0, 2, 0}, {0, 4, 0}, {0, 8, 0},             // signed
        {0, 2, 0},          {0, 3, 0}, {0, 5, 0}, {0, 9, 0}, {0, 17, 0}, // fixext
        {1, 0, 0},          {2, 0, 0}, {4, 0, 0},                        // str
        {2, 0, 1},          {4, 0, 1},                                   // array
        {2, 0, 2},          {4, 0, 2},                                   // map
    };

    return b >= 0xc0 && b < 0xe0 ? wide[b - 0xc0] : (struct head){0, 0, 0};
}

static enum status walk(struct walk *w, int depth)
{
    struct head h;
    uint64_t n = 0, children = 0;
    uint8_t b;

    if (w->p == w->end)
        return FAIL(ST_PROTO, "the message ends too early");
    if (++w->objects > OBJECTS_MAX)
        return FAIL(ST_PROTO, "the message has more than %u values", OBJECTS_MAX);
    b = *w->p++;
    h = head_of(b);
    if (b == 0xc1)
        return FAIL(ST_PROTO, "byte 0xc1 is no msgpack");
    if ((size_t)(w->end - w->p) < (size_t)h.len + h.fixed)
        return FAIL(ST_PROTO, "the message ends too early");
    if (h.len) {
        n = big_endian(w->p, h.len);
        w->p += h.len;
    }
    if (b >= 0x80 && b < 0xa0) {
        children = (uint64_t)(b & 15) * (b < 0x90 ? 2 : 1);
    } else if (b >= 0xa0 && b < 0xc0) {
        n = b & 31;
    } else if (h.children) {
        children = n * h.children;
        n = 0;
    }
    n += h.fixed;
    if (n > (size_t)(w->end - w->p) || children > (size_t)(w->end - w->p))
        return FAIL(ST_PROTO, "the message ends too early");
    w->p += n;
    if (children && depth == DEPTH_MAX)
        return FAIL(ST_PROTO, "the message is nested more than %d deep", DEPTH_MAX);
    for (; children > 0; children--)
        TRY(walk(w, depth + 1));
    return ST_OK;
}

enum status pack_open(msgpack_unpacked *u, const uint8_t *bytes, size_t n)
{
    struct walk w = {bytes, bytes + n, 0};

    msgpack_unpacked_init(u);
    TRY(walk(&w, 0));
    if (w.p != w.end)
        return FAIL(ST_PROTO, "%zu bytes behind the message", (size_t)(w.end - w.p));
    if (msgpack_unpack_next(u, (const char *)bytes, n, NULL) != MSGPACK_UNPACK_SUCCESS)
        return FAIL(ST_PROTO, "the message is no msgpack");
    return ST_OK;
}

static bool bytes_of(const msgpack_object *o, const char **p, size_t *n)
{
    if (o && o->type == MSGPACK_OBJECT_STR) {
        *p = o->via.str.ptr;
        *n = o->via.str.size;
        return true;
    }
    if (o && o->type == MSGPACK_OBJECT_BIN) {
        *p = o->via.bin.ptr;
        *n = o->via.bin.size;
        return true;
    }
    return false;
}

bool pack_is(const msgpack_object *o, const char *text)
{
    const char *p;
    size_t n;

    return bytes_of(o, &p, &n) && n == strlen(text) && memcmp(p, text, n) == 0;
}

const msgpack_object *pack_find(const msgpack_object *map, const char *key)
{
    uint32_t i;

    for (i = 0; map && map->type == MSGPACK_OBJECT_MAP && i < map->via.map.size; i++)
        if (pack_is(&map->via.map.ptr[i].key, key))
            return &map->via.map.ptr[i].val;
    return NULL;
}

const char *pack_text(const msgpack_object *o, char *buf, size_t size)
{
    const char *p;
    size_t n = 0, i;

    if (!bytes_of(o, &p, &n))
        n = 0;
    n = n < size - 1 ? n : size - 1;
    for (i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];

        buf[i] = (char)(c == '\n' || (c >= 0x20 && c < 0x7f) ? c : '?');
    }
    buf[n] = '\0';
    return buf;
}

static enum status read_shape(struct tensor *t, const msgpack_object *o)
{
    uint32_t i;

    if (o->type != MSGPACK_OBJECT_ARRAY || o->via.array.size > TENSOR_DIMS)
        return FAIL(ST_PROTO, "an array's shape is no list of at most %d numbers", TENSOR_DIMS);
    t->n_dim = (int)o->via.array.size;
    for (i = 0; i < o->via.array.size; i++) {
        const msgpack_object *d = &o->via.array.ptr[i];

        if (d->type != MSGPACK_OBJECT_POSITIVE_INTEGER || d->via.u64 > INT32_MAX)
            return FAIL(ST_PROTO, "number %u of an array's shape is no size", i);
        t->shape[i] = (uint32_t)d->via.u64;
    }
    return ST_OK;
}

// Does the shape need as many bytes as there are?
static enum status check_bytes(const struct tensor *t, size_t have)
{
    uint64_t n = tensor_bytes(&(struct tensor){.type = t->type});
    int i;

    for (i = 0; i < t->n_dim; i++) {
        n *= t->shape[i]; // below 2^62: have is below 2^31 wherever this goes on
        if (n > INT32_MAX && have <= INT32_MAX)
            break;
    }
    for (i = 0; i < t->n_dim; i++) // a zero further on makes it empty
        if (t->shape[i] == 0)
            n = 0;
    if (n != have)
        return FAIL(ST_PROTO, "an array has %zu bytes, its shape needs another number", have);
    return ST_OK;
}

static enum status read_parts(struct tensor *t, const msgpack_object *data,
                              const msgpack_object *type, const msgpack_object *shape)
{
    const char *p, *name;
    size_t n, n_name;

    if (!bytes_of(data, &p, &n) || n > INT32_MAX)
        return FAIL(ST_PROTO, "an array has no data");
    if (!bytes_of(type, &name, &n_name))
        return FAIL(ST_PROTO, "an array has no type");
    TRY(tensor_type_find(&t->type, name, n_name));
    if (shape)
        TRY(read_shape(t, shape));
    TRY(check_bytes(t, n));
    t->data = p;
    return ST_OK;
}

static enum status npy_field(const char *head, const char *key, const char **value)
{
    const char *p = strstr(head, key);

    if (!p)
        return FAIL(ST_PROTO, "an .npy array's header has no %s", key);
    *value = p + strlen(key);
    return ST_OK;
}

static enum status read_npy(struct tensor *t, const msgpack_object *o)
{
    const char *p, *value;
    size_t n, at, size;
    char head[512], shape[128], *q, *end;

    if (!bytes_of(o, &p, &n) || n < NPY_HEAD + 2 || n > INT32_MAX || memcmp(p, "\x93NUMPY", 6) != 0)
        return FAIL(ST_PROTO, "an .npy array does not begin like one");
    at = p[6] == 1 ? NPY_HEAD : NPY_HEAD + 2;
    size = (size_t)(uint8_t)p[8] | (size_t)(uint8_t)p[9] << 8;
    if (p[6] < 1 || p[6] > 3 || (p[6] > 1 && (p[10] || p[11])) || at + size > n ||
        size >= sizeof head)
        return FAIL(ST_PROTO, "an .npy array's header is damaged");
    memcpy(head, p + at, size);
    head[size] = '\0';
    TRY(npy_field(head, "'fortran_order': ", &value));
    if (strncmp(value, "False", 5) != 0)
        return FAIL(ST_PROTO, "an .npy array in Fortran's order, expected C's");
    TRY(npy_field(head, "'descr': '", &value));
    TRY(tensor_type_find(&t->type, value, strcspn(value, "'")));
    TRY(npy_field(head, "'shape': (", &value));
    snprintf(shape, sizeof shape, "%.*s", (int)strcspn(value, ")"), value);
    t->n_dim = 0;
    for (q = shape; *(q += strspn(q, " ,"));) {
        unsigned long d = strtoul(q, &end, 10);

        if (end == q || d > INT32_MAX || t->n_dim == TENSOR_DIMS)
            return FAIL(ST_PROTO, "an .npy array of shape (%s)", shape);
        t->shape[t->n_dim++] = (uint32_t)d;
        q = end;
    }
    t->data = p + at + size;
    return check_bytes(t, n - at - size);
}

static bool is_true(const msgpack_object *o)
{
    return o && o->type == MSGPACK_OBJECT_BOOLEAN && o->via.boolean;
}

enum status tensor_read(struct tensor *out, const msgpack_object *o)
{
    const msgpack_object *kind;
    struct tensor t = {.n_dim = 0};

    if (!o || o->type != MSGPACK_OBJECT_MAP)
        return FAIL(ST_PROTO, "a value is no array");
    if (is_true(pack_find(o, "__ndarray__")) && pack_find(o, "shape")) {
        TRY(read_parts(&t, pack_find(o, "data"), pack_find(o, "dtype"), pack_find(o, "shape")));
    } else if (is_true(pack_find(o, "nd")) && pack_find(o, "shape")) {
        kind = pack_find(o, "kind");
        if (pack_is(kind, "O") || pack_is(kind, "V"))
            return FAIL(ST_PROTO, "an array of Python objects or records, expected numbers");
        TRY(read_parts(&t, pack_find(o, "data"), pack_find(o, "type"), pack_find(o, "shape")));
    } else if (pack_find(o, "nd") && !is_true(pack_find(o, "nd"))) { // a NumPy scalar
        TRY(read_parts(&t, pack_find(o, "data"), pack_find(o, "type"), NULL));
    } else if (pack_find(o, "as_npy")) {
        TRY(read_npy(&t, pack_find(o, "as_npy")));
    } else {
        return FAIL(ST_PROTO, "a map that is no array in a known style");
    }
    *out = t;
    return ST_OK;
}

static bool number(const msgpack_object *o, float *v)
{
    if (o->type == MSGPACK_OBJECT_POSITIVE_INTEGER)
        *v = (float)o->via.u64;
    else if (o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
        *v = (float)o->via.i64;
    else if (o->type == MSGPACK_OBJECT_FLOAT32 || o->type == MSGPACK_OBJECT_FLOAT64)
        *v = (float)o->via.f64;
    else
        return false;
    return true;
}

// A list of the shape from `dim` on; the first of each level sets the shape.
static enum status read_list(struct tensor_floats *f, const msgpack_object *o, int dim)
{
    uint32_t i;

    if (o->type != MSGPACK_OBJECT_ARRAY) {
        if (dim != f->n_dim)
            return FAIL(ST_PROTO, "lists of numbers that differ in depth");
        if (f->n == f->cap)
            return FAIL(ST_PROTO, "more than %zu numbers", f->cap);
        if (!number(o, &f->v[f->n++]))
            return FAIL(ST_PROTO, "a value is neither a number nor an array of numbers");
        return ST_OK;
    }
    if (dim == f->n_dim)
        return FAIL(ST_PROTO, "lists of numbers that differ in depth");
    if (o->via.array.size != f->shape[dim])
        return FAIL(ST_PROTO, "lists of %u and of %u numbers side by side", f->shape[dim],
                    o->via.array.size);
    for (i = 0; i < o->via.array.size; i++)
        TRY(read_list(f, &o->via.array.ptr[i], dim + 1));
    return ST_OK;
}

enum status tensor_floats_read(struct tensor_floats *out, const msgpack_object *o)
{
    const msgpack_object *p = o;
    struct tensor t;

    if (!o)
        return FAIL(ST_PROTO, "a value is missing");
    if (o->type == MSGPACK_OBJECT_MAP && is_true(pack_find(o, "__npgeneric__")))
        return tensor_floats_read(out, pack_find(o, "data")); // a number, not a map again
    if (o->type == MSGPACK_OBJECT_MAP) {
        TRY(tensor_read(&t, o));
        return tensor_floats_from(out, &t);
    }
    out->n = 0;
    for (out->n_dim = 0; p->type == MSGPACK_OBJECT_ARRAY; p = &p->via.array.ptr[0]) {
        if (out->n_dim == TENSOR_DIMS)
            return FAIL(ST_PROTO, "lists of numbers more than %d deep", TENSOR_DIMS);
        out->shape[out->n_dim++] = p->via.array.size;
        if (p->via.array.size == 0)
            break;
    }
    return read_list(out, o, 0);
}

// ------------------------------------------------------------------ as JSON

static void json_text_of(struct text *out, const msgpack_object *o)
{
    char buf[1024], *p;

    pack_text(o, buf, sizeof buf);
    text_add(out, "\"");
    for (p = buf; *p; p++) {
        if (*p == '\n')
            text_add(out, "\\n");
        else
            text_add(out, *p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
    }
    text_add(out, "\"");
}

static void json_tensor(struct text *out, const struct tensor *t)
{
    int i;

    text_add(out, "\"%s [", tensor_type_name(t->type));
    for (i = 0; i < t->n_dim; i++)
        text_add(out, i ? ", %u" : "%u", t->shape[i]);
    text_add(out, "]\"");
}

static void json_parts(struct text *out, const msgpack_object *o)
{
    bool map = o->type == MSGPACK_OBJECT_MAP;
    uint32_t n = map ? o->via.map.size : o->via.array.size, i;

    text_add(out, map ? "{" : "[");
    for (i = 0; i < n; i++) {
        if (i)
            text_add(out, ", ");
        if (map) {
            json_text_of(out, &o->via.map.ptr[i].key);
            text_add(out, ": ");
        }
        pack_to_json(out, map ? &o->via.map.ptr[i].val : &o->via.array.ptr[i]);
    }
    text_add(out, map ? "}" : "]");
}

void pack_to_json(struct text *out, const msgpack_object *o)
{
    struct tensor t;

    switch (o->type) {
    case MSGPACK_OBJECT_BOOLEAN:
        text_add(out, o->via.boolean ? "true" : "false");
        return;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        text_add(out, "%llu", (unsigned long long)o->via.u64);
        return;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        text_add(out, "%lld", (long long)o->via.i64);
        return;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        if (isfinite(o->via.f64))
            text_add(out, "%.17g", o->via.f64);
        else
            text_add(out, "null");
        return;
    case MSGPACK_OBJECT_STR:
    case MSGPACK_OBJECT_BIN:
        json_text_of(out, o);
        return;
    case MSGPACK_OBJECT_MAP:
        if ((pack_find(o, "__ndarray__") || pack_find(o, "nd") || pack_find(o, "as_npy")) &&
            tensor_read(&t, o) == ST_OK) {
            json_tensor(out, &t);
            return;
        }
        json_parts(out, o);
        return;
    case MSGPACK_OBJECT_ARRAY:
        json_parts(out, o);
        return;
    default:
        text_add(out, "null");
        return;
    }
}
