#include "scenes/libero/init_states.h"

#include "common/base/file.h"
#include "common/base/mem.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#define CELLS_MAX (1 << 26)

struct bytes {
    const uint8_t *p;
    size_t n;
};

// Little-endian number of `n` bytes at offset `at`; the caller has checked the bounds.
static uint32_t number(struct bytes b, size_t at, int n)
{
    uint32_t x = 0;

    while (n-- > 0)
        x = x << 8 | b.p[at + (size_t)n];
    return x;
}

// ------------------------------------------------------------------ the archive

#define LOCAL_BYTES   30
#define CENTRAL_BYTES 46
#define END_BYTES     22

// Offset of the first entry of the archive's directory, from the record at its end.
static enum status find_directory(struct bytes zip, const char *what, size_t *at, int *n)
{
    size_t end;

    for (end = zip.n < END_BYTES ? 0 : zip.n - END_BYTES; end > 0; end--)
        if (number(zip, end, 4) == 0x06054b50)
            break;
    if (end == 0)
        return FAIL(ST_INVAL, "%s: expected a ZIP archive with a member data.pkl", what);
    *n = (int)number(zip, end + 10, 2);
    *at = number(zip, end + 16, 4);
    return ST_OK;
}

// A member as it is stored, or inflated into memory of its own.
struct member {
    struct bytes bytes;
    uint8_t *owned;
};

static enum status inflate_member(struct bytes packed, size_t size, const char *what,
                                  struct member *out)
{
    z_stream z = {.next_in = (Bytef *)packed.p, .avail_in = (uInt)packed.n};
    int code;

    if (size > CELLS_MAX * sizeof(double))
        return FAIL(ST_INVAL, "%s: a member of %zu bytes is no list of states", what, size);
    out->owned = mem_alloc(size, 1);
    if (!out->owned)
        return ST_NOMEM;
    z.next_out = out->owned;
    z.avail_out = (uInt)size;
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
        return FAIL(ST_NOMEM, "%s: no memory to unpack it", what);
    code = inflate(&z, Z_FINISH);
    inflateEnd(&z);
    if (code != Z_STREAM_END || z.total_out != size)
        return FAIL(ST_INVAL, "%s: the compressed member is damaged", what);
    out->bytes = (struct bytes){out->owned, size};
    return ST_OK;
}

// The member whose directory entry is at `at`.
static enum status unpack(struct bytes zip, const char *what, size_t at, struct member *out)
{
    size_t method = number(zip, at + 10, 2), packed = number(zip, at + 20, 4);
    size_t size = number(zip, at + 24, 4), local = number(zip, at + 42, 4), body;

    if (local > zip.n || zip.n - local < LOCAL_BYTES || number(zip, local, 4) != 0x04034b50)
        return FAIL(ST_INVAL, "%s: the archive's directory points outside of it", what);
    body = local + LOCAL_BYTES + number(zip, local + 26, 2) + number(zip, local + 28, 2);
    if (body > zip.n || packed > zip.n - body)
        return FAIL(ST_INVAL, "%s: a member is cut off", what);
    if (method == 8)
        return inflate_member((struct bytes){zip.p + body, packed}, size, what, out);
    if (method != 0 || packed != size)
        return FAIL(ST_INVAL, "%s: a member is compressed by method %zu, expected 0 or 8", what,
                    method);
    out->bytes = (struct bytes){zip.p + body, size};
    return ST_OK;
}

static bool ends_with(struct bytes name, const char *suffix)
{
    size_t n = strlen(suffix);

    return name.n >= n && memcmp(name.p + name.n - n, suffix, n) == 0;
}

// The pickle of a torch file or the array of a NumPy archive.
static enum status find_member(struct bytes zip, const char *what, struct member *out,
                               bool *is_array)
{
    struct bytes name;
    size_t at;
    int n;

    TRY(find_directory(zip, what, &at, &n));
    for (; n > 0; n--) {
        if (at > zip.n || zip.n - at < CENTRAL_BYTES || number(zip, at, 4) != 0x02014b50)
            break;
        name = (struct bytes){zip.p + at + CENTRAL_BYTES, number(zip, at + 28, 2)};
        if (name.n > zip.n - at - CENTRAL_BYTES)
            break;
        *is_array = ends_with(name, ".npy");
        if (*is_array || ends_with(name, "data.pkl"))
            return unpack(zip, what, at, out);
        at += CENTRAL_BYTES + name.n + number(zip, at + 30, 2) + number(zip, at + 32, 2);
    }
    return FAIL(ST_INVAL, "%s: the archive has no member data.pkl and no .npy", what);
}

// ------------------------------------------------------------------ the pickle

// What the walk found out. `ints` counts the numbers pushed since the last other opcode.
struct found {
    int ints;
    uint32_t last[2];
    bool reduced, has_shape, built, little, f8, fortran;
    uint32_t shape[2];
    struct bytes raw; // the longest text
};

static void take_shape(struct found *f, int n)
{
    if (!f->reduced || f->has_shape || f->ints < n)
        return;
    f->shape[0] = n == 2 ? f->last[0] : 1;
    f->shape[1] = f->last[1];
    f->has_shape = true;
}

static void take_text(struct found *f, struct bytes text)
{
    if (text.n == 2 && memcmp(text.p, "f8", 2) == 0)
        f->f8 = true;
    if (text.n == 1 && text.p[0] == '<')
        f->little = true;
    if (text.n > f->raw.n)
        f->raw = text;
}

// Length of the opcode at `at` with its argument; 0 if it is unknown or cut off.
static size_t opcode_size(struct bytes b, size_t at)
{
    size_t left = b.n - at, n = 1;
    const uint8_t *line;

    switch (b.p[at]) {
    case 0x80: // PROTO
    case 'q':  // BINPUT
    case 'h':  // BINGET
    case 'K':  // BININT1
        n = 2;
        break;
    case 'M': // BININT2
        n = 3;
        break;
    case 'J': // BININT
    case 'r': // LONG_BINPUT
    case 'j': // LONG_BINGET
        n = 5;
        break;
    case 'U': // SHORT_BINSTRING
        n = left < 2 ? 2 : 2 + (size_t)b.p[at + 1];
        break;
    case 'X': // BINUNICODE
        n = left < 5 ? 5 : 5 + (size_t)number(b, at + 1, 4);
        break;
    case 'c': // GLOBAL: two lines
        line = memchr(b.p + at, '\n', left);
        line = line ? memchr(line + 1, '\n', left - (size_t)(line + 1 - (b.p + at))) : NULL;
        return line ? (size_t)(line + 1 - (b.p + at)) : 0;
    case '(': // MARK
    case ')': // EMPTY_TUPLE
    case 't': // TUPLE
    case 'R': // REDUCE
    case 'b': // BUILD
    case 'N': // NONE
    case '.': // STOP
    case 0x85:
    case 0x86:
    case 0x87: // TUPLE1 to TUPLE3
    case 0x88: // NEWTRUE
    case 0x89: // NEWFALSE
        break;
    default:
        return 0;
    }
    return n <= left ? n : 0;
}

static void take(struct found *f, struct bytes b, size_t at, size_t n)
{
    uint8_t op = b.p[at];

    if (op == 'K' || op == 'M' || op == 'J') {
        f->last[0] = f->last[1];
        f->last[1] = number(b, at + 1, (int)n - 1);
        f->ints++;
        return;
    }
    if (op == 0x85 || op == 0x86)
        take_shape(f, op - 0x84);
    if (op == 'X')
        take_text(f, (struct bytes){b.p + at + 5, n - 5});
    if (op == 'U')
        take_text(f, (struct bytes){b.p + at + 2, n - 2});
    f->reduced = f->reduced || op == 'R';
    f->built = f->built || op == 'b'; // of the dtype; what follows is fortran_order
    f->fortran = f->fortran || (f->built && op == 0x88);
    f->ints = 0;
}

static enum status walk(struct bytes pickle, const char *what, struct found *f)
{
    size_t at = 0, n;

    for (; at < pickle.n; at += n) {
        n = opcode_size(pickle, at);
        if (n == 0)
            return FAIL(ST_INVAL,
                        "%s: data.pkl: opcode 0x%02x at byte %zu is cut off or none of "
                        "a NumPy array's",
                        what, pickle.p[at], at);
        take(f, pickle, at, n);
        if (pickle.p[at] == '.')
            return ST_OK;
    }
    return FAIL(ST_INVAL, "%s: data.pkl ends without its stop mark", what);
}

// latin-1 characters in UTF-8 to bytes: exactly `n` of them.
static bool latin1(struct bytes text, uint8_t *out, size_t n)
{
    size_t i, k = 0;

    for (i = 0; i < text.n; i++) {
        uint8_t c = text.p[i];

        if (k == n)
            return false;
        if (c >= 0x80) {
            if ((c != 0xc2 && c != 0xc3) || i + 1 == text.n || (text.p[i + 1] & 0xc0) != 0x80)
                return false;
            c = (uint8_t)(c << 6 | (text.p[++i] & 0x3f));
        }
        out[k++] = c;
    }
    return k == n;
}

static enum status make_rows(struct init_states *out, const uint32_t shape[2], const char *what)
{
    if (shape[0] == 0 || shape[1] == 0 || shape[0] > CELLS_MAX / shape[1])
        return FAIL(ST_INVAL, "%s: an array of %u x %u is no list of states", what, shape[0],
                    shape[1]);
    out->rows = mem_alloc((size_t)shape[0] * shape[1], sizeof(double));
    out->n_row = (int)shape[0];
    out->n_col = (int)shape[1];
    return out->rows ? ST_OK : ST_NOMEM;
}

static enum status parse_pickle(struct init_states *out, struct bytes pickle, const char *what)
{
    struct found f = {0};
    size_t bytes;

    TRY(walk(pickle, what, &f));
    if (!f.has_shape || !f.f8 || !f.little || f.fortran)
        return FAIL(ST_INVAL, "%s: expected a C-ordered array of little-endian doubles", what);
    TRY(make_rows(out, f.shape, what));
    bytes = (size_t)f.shape[0] * f.shape[1] * sizeof(double);
    if (!latin1(f.raw, (uint8_t *)out->rows, bytes))
        return FAIL(ST_INVAL, "%s: expected %zu bytes of numbers for an array of %u x %u", what,
                    bytes, f.shape[0], f.shape[1]);
    return ST_OK;
}

// ------------------------------------------------------------------ NumPy's format

#define NPY_HEAD 10 // magic, version, length of the header

static bool read_shape(const char *header, uint32_t shape[2])
{
    const char *p = strstr(header, "'shape': (");
    unsigned rows, cols;

    if (!p)
        return false;
    p += strlen("'shape': (");
    if (sscanf(p, "%9u, %9u)", &rows, &cols) == 2) {
        shape[0] = rows;
        shape[1] = cols;
        return true;
    }
    shape[0] = 1;
    return sscanf(p, "%9u,)", &shape[1]) == 1;
}

static enum status parse_npy(struct init_states *out, struct bytes npy, const char *what)
{
    char header[256] = "";
    uint32_t shape[2];
    size_t n, bytes;

    if (npy.n < NPY_HEAD || memcmp(npy.p, "\x93NUMPY\x01", 7) != 0)
        return FAIL(ST_INVAL, "%s: expected NumPy's array format 1", what);
    n = number(npy, 8, 2);
    if (n > npy.n - NPY_HEAD || n >= sizeof header)
        return FAIL(ST_INVAL, "%s: the array's header has %zu bytes", what, n);
    memcpy(header, npy.p + NPY_HEAD, n);
    if (!strstr(header, "'descr': '<f8'") || !strstr(header, "'fortran_order': False") ||
        !read_shape(header, shape))
        return FAIL(ST_INVAL, "%s: expected a C-ordered array of little-endian doubles", what);
    TRY(make_rows(out, shape, what));
    bytes = (size_t)shape[0] * shape[1] * sizeof(double);
    if (npy.n - NPY_HEAD - n != bytes)
        return FAIL(ST_INVAL, "%s: expected %zu bytes of numbers for an array of %u x %u", what,
                    bytes, shape[0], shape[1]);
    memcpy(out->rows, npy.p + NPY_HEAD + n, bytes);
    return ST_OK;
}

enum status init_states_parse(struct init_states *out, const void *bytes, size_t size,
                              const char *what)
{
    struct member member = {0};
    bool is_array = false;
    enum status st;

    memset(out, 0, sizeof *out);
    st = find_member((struct bytes){bytes, size}, what, &member, &is_array);
    if (st == ST_OK)
        st = is_array ? parse_npy(out, member.bytes, what) : parse_pickle(out, member.bytes, what);
    mem_free(member.owned);
    if (st != ST_OK)
        init_states_fini(out);
    return st;
}

enum status init_states_load(struct init_states *out, const char *path)
{
    char *bytes;
    size_t n;
    enum status st;

    memset(out, 0, sizeof *out);
    TRY(file_read(path, &bytes, &n));
    st = init_states_parse(out, bytes, n, path);
    mem_free(bytes);
    return st;
}

void init_states_fini(struct init_states *s)
{
    mem_free(s->rows);
    memset(s, 0, sizeof *s);
}

// ------------------------------------------------------------------ writing

struct buffer {
    uint8_t *p; // NULL: only count
    size_t n;
};

static void put(struct buffer *b, const void *bytes, size_t n)
{
    if (b->p && n)
        memcpy(b->p + b->n, bytes, n);
    b->n += n;
}

static void put_number(struct buffer *b, uint32_t x, int n)
{
    uint8_t bytes[4] = {(uint8_t)x, (uint8_t)(x >> 8), (uint8_t)(x >> 16), (uint8_t)(x >> 24)};

    put(b, bytes, (size_t)n);
}

// The numbers as opcode X: bytes above 127 take two.
static void put_raw(struct buffer *b, const struct init_states *s)
{
    const uint8_t *raw = (const uint8_t *)s->rows;
    size_t i, n = (size_t)s->n_row * (size_t)s->n_col * sizeof(double), high = 0;

    for (i = 0; i < n; i++)
        high += raw[i] >> 7;
    put(b, "X", 1);
    put_number(b, (uint32_t)(n + high), 4);
    for (i = 0; i < n; i++) {
        uint8_t two[2] = {(uint8_t)(0xc0 | raw[i] >> 6), (uint8_t)(0x80 | (raw[i] & 0x3f))};

        if (raw[i] < 0x80)
            put(b, &raw[i], 1);
        else
            put(b, two, 2);
    }
}

#define TEXT(b, literal) put(b, literal, sizeof literal - 1)

static void put_pickle(struct buffer *b, const struct init_states *s)
{
    TEXT(b, "\x80\x02"
            "cnumpy.core.multiarray\n_reconstruct\n"
            "cnumpy\nndarray\n"
            "K\0\x85"
            "c_codecs\nencode\nq\x03"
            "X\x01\0\0\0"
            "bX\x06\0\0\0"
            "latin1q\x05\x86R\x87R"
            "(K\x01M");
    put_number(b, (uint32_t)s->n_row, 2);
    TEXT(b, "M");
    put_number(b, (uint32_t)s->n_col, 2);
    TEXT(b, "\x86"
            "cnumpy\ndtype\n"
            "X\x02\0\0\0"
            "f8\x89\x88\x87R"
            "(K\x03X\x01\0\0\0"
            "<NNN"
            "J\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89h\x03");
    put_raw(b, s);
    TEXT(b, "h\x05\x86Rtb.");
}

// CRC-32 as ZIP has it (polynomial 0xedb88320).
static uint32_t crc32_zip(const uint8_t *p, size_t n)
{
    uint32_t crc = 0xffffffffu;
    int k;

    while (n-- > 0) {
        crc ^= *p++;
        for (k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void put_header(struct buffer *b, uint32_t signature, const char *name, struct bytes body,
                       uint32_t offset)
{
    bool central = signature == 0x02014b50;

    put_number(b, signature, 4);
    if (central)
        put_number(b, 20, 2);      // made by
    put_number(b, 20, 2);          // needs
    put_number(b, 0, 4);           // flags, method
    put_number(b, 0x00210000u, 4); // 1980-01-01
    put_number(b, crc32_zip(body.p, body.n), 4);
    put_number(b, (uint32_t)body.n, 4);
    put_number(b, (uint32_t)body.n, 4);
    put_number(b, (uint32_t)strlen(name), 2);
    put_number(b, 0, 2); // extra
    if (central) {
        put_number(b, 0, 4); // comment, disk
        put_number(b, 0, 2);
        put_number(b, 0, 4);
        put_number(b, offset, 4);
    }
    put(b, name, strlen(name));
}

static void put_zip(struct buffer *b, struct bytes pickle)
{
    static const char *const names[] = {"archive/data.pkl", "archive/version"};
    struct bytes bodies[] = {pickle, {(const uint8_t *)"3\n", 2}};
    uint32_t offset[2], directory;
    int i;

    for (i = 0; i < 2; i++) {
        offset[i] = (uint32_t)b->n;
        put_header(b, 0x04034b50, names[i], bodies[i], 0);
        put(b, bodies[i].p, bodies[i].n);
    }
    directory = (uint32_t)b->n;
    for (i = 0; i < 2; i++)
        put_header(b, 0x02014b50, names[i], bodies[i], offset[i]);
    put_number(b, 0x06054b50, 4);
    put_number(b, 0, 4);
    put_number(b, 2, 2);
    put_number(b, 2, 2);
    put_number(b, (uint32_t)b->n - 12 - directory, 4);
    put_number(b, directory, 4);
    put_number(b, 0, 2);
}

enum status init_states_save(const struct init_states *s, const char *path)
{
    struct buffer pickle = {0}, zip = {0};
    enum status st = ST_NOMEM;

    if (s->n_row < 1 || s->n_row > 65535 || s->n_col < 1 || s->n_col > 65535)
        return FAIL(ST_INVAL, "%d x %d init states, expected 1 to 65535 rows and columns", s->n_row,
                    s->n_col);
    put_pickle(&pickle, s);
    pickle.p = mem_alloc(pickle.n, 1);
    zip.p = mem_alloc(pickle.n + 512, 1);
    if (pickle.p && zip.p) {
        pickle.n = 0;
        put_pickle(&pickle, s);
        put_zip(&zip, (struct bytes){pickle.p, pickle.n});
        st = file_write_atomic(path, zip.p, zip.n);
    }
    mem_free(pickle.p);
    mem_free(zip.p);
    return st;
}
