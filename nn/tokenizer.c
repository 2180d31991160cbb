// Every token's bytes lie in one arena. Two tables of open addressing: bytes -> token while a file
// is read, and (left, right) -> merge afterwards, both of token numbers with -1 for empty.
#include "nn/tokenizer.h"

#include "common/base/crc.h"
#include "common/base/file.h"
#include "common/base/mem.h"

#include <stdio.h>
#include <string.h>

#define HEAD      "simstream-bpe 1 "
#define TOKEN_MAX 256 // bytes of a token

struct token {
    size_t at; // in the arena
    int n;
    int32_t left, right; // of a merge; -1 of a byte
};

struct tokenizer {
    char *text; // the vocabulary
    size_t n_text;
    bool words;
    struct token *tokens; // (n)
    int n, cap;
    char *arena;
    size_t n_arena, arena_cap;
    int32_t *by_bytes, *by_pair; // (n_slot)
    uint32_t n_slot;             // a power of two, more than twice the tokens
};

static const char *bytes_of(const struct tokenizer *t, int32_t id)
{
    return t->arena + t->tokens[id].at;
}

static uint32_t hash_bytes(const char *p, size_t n)
{
    return crc32c(0, p, n);
}

static uint32_t hash_pair(int32_t left, int32_t right)
{
    int32_t pair[2] = {left, right};

    return crc32c(0, pair, sizeof pair);
}

static int32_t find_bytes(const struct tokenizer *t, const char *p, size_t n, uint32_t *slot)
{
    uint32_t i = hash_bytes(p, n) & (t->n_slot - 1);

    for (; t->by_bytes[i] >= 0; i = (i + 1) & (t->n_slot - 1)) {
        int32_t id = t->by_bytes[i];

        if ((size_t)t->tokens[id].n == n && memcmp(bytes_of(t, id), p, n) == 0)
            return id;
    }
    *slot = i;
    return -1;
}

static int32_t find_pair(const struct tokenizer *t, int32_t left, int32_t right, uint32_t *slot)
{
    uint32_t i = hash_pair(left, right) & (t->n_slot - 1);

    for (; t->by_pair[i] >= 0; i = (i + 1) & (t->n_slot - 1)) {
        int32_t id = t->by_pair[i];

        if (t->tokens[id].left == left && t->tokens[id].right == right)
            return id;
    }
    *slot = i;
    return -1;
}

// Tables for `n` tokens in all.
static enum status make_tables(struct tokenizer *t, size_t n)
{
    t->n_slot = 1024;
    while (t->n_slot < 2 * n + 1)
        t->n_slot *= 2;
    t->cap = (int)n;
    t->tokens = mem_alloc(n, sizeof t->tokens[0]);
    t->by_bytes = mem_alloc(t->n_slot, sizeof t->by_bytes[0]);
    t->by_pair = mem_alloc(t->n_slot, sizeof t->by_pair[0]);
    if (!t->tokens || !t->by_bytes || !t->by_pair)
        return ST_NOMEM;
    memset(t->by_bytes, 0xff, t->n_slot * sizeof t->by_bytes[0]);
    memset(t->by_pair, 0xff, t->n_slot * sizeof t->by_pair[0]);
    return ST_OK;
}

static enum status reserve(struct tokenizer *t, size_t more)
{
    size_t cap = t->arena_cap ? t->arena_cap : 4096;
    char *p;

    while (cap < t->n_arena + more)
        cap *= 2;
    if (cap == t->arena_cap)
        return ST_OK;
    p = mem_resize(t->arena, cap, 1);
    if (!p)
        return ST_NOMEM;
    t->arena = p;
    t->arena_cap = cap;
    return ST_OK;
}

static enum status add_bytes(struct tokenizer *t)
{
    TRY(reserve(t, TOKENIZER_BYTES));
    for (int i = 0; i < TOKENIZER_BYTES; i++) {
        uint32_t slot = 0;

        t->arena[i] = (char)i;
        t->tokens[i] = (struct token){.at = (size_t)i, .n = 1, .left = -1, .right = -1};
        (void)find_bytes(t, t->arena + i, 1, &slot);
        t->by_bytes[slot] = i;
    }
    t->n = t->n_arena = TOKENIZER_BYTES;
    return ST_OK;
}

// ------------------------------------------------------------------ the file

struct line {
    const char *what;
    int number;
    const char *p, *end;
};

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

// The next token of a line up to a blank or the end: its bytes into `out`.
static enum status read_token(struct line *l, char out[TOKEN_MAX], size_t *n)
{
    for (*n = 0; l->p < l->end && *l->p != ' '; (*n)++) {
        char c = *l->p++;

        if (*n == TOKEN_MAX)
            return FAIL(ST_INVAL, "%s:%d: a token of more than %d bytes", l->what, l->number,
                        TOKEN_MAX);
        if (c == '\\') {
            int high = l->end - l->p >= 2 ? hex_digit(l->p[0]) : -1;
            int low = high >= 0 ? hex_digit(l->p[1]) : -1;

            if (low < 0)
                return FAIL(ST_INVAL,
                            "%s:%d: a backslash without two hexadecimal digits (\\20 is a blank)",
                            l->what, l->number);
            c = (char)(16 * high + low);
            l->p += 2;
        } else if (c < 33 || c > 126) {
            return FAIL(ST_INVAL, "%s:%d: byte %u, expected it as \\%02x", l->what, l->number,
                        (unsigned)(uint8_t)c, (unsigned)(uint8_t)c);
        }
        out[*n] = c;
    }
    if (*n == 0)
        return FAIL(ST_INVAL, "%s:%d: expected two tokens with one blank between", l->what,
                    l->number);
    return ST_OK;
}

static enum status add_merge(struct tokenizer *t, struct line *l)
{
    char bytes[2 * TOKEN_MAX];
    uint32_t by_bytes = 0, by_pair = 0;
    int32_t part[2];
    size_t total = 0, n;

    for (int i = 0; i < 2; i++) {
        uint32_t slot;

        TRY(read_token(l, bytes + total, &n));
        part[i] = find_bytes(t, bytes + total, n, &slot);
        if (part[i] < 0)
            return FAIL(ST_INVAL, "%s:%d: the %s token is not known so far", l->what, l->number,
                        i == 0 ? "left" : "right");
        total += n;
        if (i == 0 && l->p < l->end)
            l->p++; // the blank
    }
    if (l->p < l->end)
        return FAIL(ST_INVAL, "%s:%d: more than two tokens", l->what, l->number);
    if (total > TOKEN_MAX)
        return FAIL(ST_INVAL, "%s:%d: a token of %zu bytes, at most %d", l->what, l->number, total,
                    TOKEN_MAX);
    if (find_pair(t, part[0], part[1], &by_pair) >= 0 ||
        find_bytes(t, bytes, total, &by_bytes) >= 0)
        return FAIL(ST_INVAL, "%s:%d: this token is there already", l->what, l->number);
    TRY(reserve(t, total));
    memcpy(t->arena + t->n_arena, bytes, total);
    t->tokens[t->n] =
        (struct token){.at = t->n_arena, .n = (int)total, .left = part[0], .right = part[1]};
    t->by_bytes[by_bytes] = t->by_pair[by_pair] = t->n;
    t->n_arena += total;
    t->n++;
    return ST_OK;
}

static enum status read_head(struct tokenizer *t, const struct line *l)
{
    size_t n = (size_t)(l->end - l->p), head = sizeof HEAD - 1;

    t->words = n == head + 5 && memcmp(l->p, HEAD "words", n) == 0;
    if (!t->words && !(n == head + 5 && memcmp(l->p, HEAD "plain", n) == 0))
        return FAIL(ST_INVAL, "%s:%d: expected '" HEAD "words' or '" HEAD "plain'", l->what,
                    l->number);
    return ST_OK;
}

static enum status read_lines(struct tokenizer *t, const char *what)
{
    struct line l = {.what = what};
    const char *next = t->text, *last = t->text + t->n_text;

    while (next < last) {
        const char *end = memchr(next, '\n', (size_t)(last - next));

        l.p = next;
        l.end = end ? end : last;
        next = l.end + 1;
        if (l.end > l.p && l.end[-1] == '\r')
            l.end--;
        l.number++;
        if (l.number == 1) {
            TRY(read_head(t, &l));
        } else if (l.p < l.end && *l.p != '#') {
            if (t->n == t->cap)
                return FAIL(ST_INVAL, "%s:%d: more than %d merges", what, l.number,
                            TOKENIZER_MERGES);
            TRY(add_merge(t, &l));
        }
    }
    return ST_OK;
}

static size_t count_lines(const char *text, size_t n)
{
    size_t lines = 1;

    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    return lines < TOKENIZER_MERGES ? lines : TOKENIZER_MERGES;
}

static enum status build(struct tokenizer *t, const char *text, size_t n, const char *what)
{
    TRY(make_tables(t, TOKENIZER_BYTES + count_lines(text, n)));
    TRY(add_bytes(t));
    if (n == 0)
        return ST_OK;
    t->text = mem_alloc(n + 1, 1);
    if (!t->text)
        return ST_NOMEM;
    memcpy(t->text, text, n);
    t->n_text = n;
    return read_lines(t, what);
}

enum status tokenizer_parse(struct tokenizer **out, const char *text, size_t n, const char *what)
{
    struct tokenizer *t = mem_alloc(1, sizeof *t);
    enum status st;

    if (!t)
        return ST_NOMEM;
    st = build(t, text, n, what);
    if (st != ST_OK) {
        tokenizer_destroy(t);
        return st;
    }
    *out = t;
    return ST_OK;
}

enum status tokenizer_load(struct tokenizer **out, const char *path)
{
    enum status st;
    char *text;
    size_t n;

    if (!path[0])
        return tokenizer_parse(out, NULL, 0, "bytes");
    TRY(file_read(path, &text, &n));
    st = n > 0 ? tokenizer_parse(out, text, n, path)
               : FAIL(ST_INVAL, "%s:1: expected '" HEAD "words' or '" HEAD "plain'", path);
    mem_free(text);
    return st;
}

void tokenizer_destroy(struct tokenizer *t)
{
    if (!t)
        return;
    mem_free(t->text);
    mem_free(t->tokens);
    mem_free(t->arena);
    mem_free(t->by_bytes);
    mem_free(t->by_pair);
    mem_free(t);
}

int tokenizer_size(const struct tokenizer *t)
{
    return t->n;
}

const char *tokenizer_text(const struct tokenizer *t, size_t *n)
{
    *n = t->n_text;
    return t->text;
}

const char *tokenizer_token(const struct tokenizer *t, int32_t id, size_t *n)
{
    if (id < 0 || id >= t->n)
        return NULL;
    *n = (size_t)t->tokens[id].n;
    return bytes_of(t, id);
}

// ------------------------------------------------------------------ encoding

// Join what can be joined of ids[0..n-1], in place; the new length. Instructions are short, so the
// search for the first merge goes over all pairs each time.
static int join(const struct tokenizer *t, int32_t *ids, int n)
{
    for (;;) {
        int32_t best = -1;
        int at = 0, i;

        for (i = 0; i + 1 < n; i++) {
            uint32_t slot;
            int32_t id = find_pair(t, ids[i], ids[i + 1], &slot);

            if (id >= 0 && (best < 0 || id < best)) {
                best = id;
                at = i;
            }
        }
        if (best < 0)
            return n;
        ids[at] = best;
        memmove(ids + at + 1, ids + at + 2, (size_t)(n - at - 2) * sizeof ids[0]);
        n--;
    }
}

enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, int32_t *ids,
                             int cap, int *n_id)
{
    enum status st = ST_OK;
    size_t from = 0, to;
    int32_t *piece = mem_alloc(n, sizeof piece[0]);
    int total = 0;

    if (!piece)
        return ST_NOMEM;
    for (; from < n && st == ST_OK; from = to) {
        int k = 0;

        for (to = from; to < n; to++) {
            if (t->words && to > from && text[to] == ' ' && text[to - 1] != ' ')
                break;
            piece[k++] = (uint8_t)text[to];
        }
        k = join(t, piece, k);
        if (k > cap - total) {
            st = FAIL(ST_INVAL, "a text of %zu bytes is more than %d tokens", n, cap);
            break;
        }
        memcpy(ids + total, piece, (size_t)k * sizeof ids[0]);
        total += k;
    }
    mem_free(piece);
    if (st == ST_OK)
        *n_id = total;
    return st;
}
