// fuzz_wire.c [COUNT [FOLDER]] - every decoder of the wire against valid messages with fixed-seed
// damage, and against the inputs of tests/corpus/wire.
//
// With FOLDER the valid messages are written there, as seeds for libFuzzer.
//
// An input is one byte that chooses the decoder, then the message. What a decoder accepts is read
// to its last number, so that a sanitizer sees a pointer or count that is wrong.
#include "tests/wire_samples.h"

#include "common/base/rng.h"
#include "common/base/thread.h"
#include "common/wire/link.h"

#include <dirent.h>
#include <stdio.h>

#define INPUT_MAX 4096

enum decoder {
    DECODE_HEADER,
    DECODE_SEALED_HEADER, // the checksums are put right first
    DECODE_HELLO,
    DECODE_WELCOME,
    DECODE_RESET,
    DECODE_STEP,
    DECODE_BATCH,
    DECODE_BATCH_SAME_STEP,
    DECODE_ERROR,
    DECODE_JOIN,
    DECODE_WEIGHTS,
    DECODE_CHUNK,
    DECODE_STATE,
    DECODE_LOST,
    DECODE_PING,
    DECODE_BYE,
    DECODE_CHALLENGE,
    DECODE_PROOF,
    DECODE_SAVE,
    DECODE_LOAD,
    DECODE_SET,
    DECODE_GET,
    DECODE_EXECUTED,
    DECODE_BACK,
    DECODE_EPISODE,
    DECODERS
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink;

static void touch(const void *p, size_t n)
{
    const uint8_t *bytes = p;
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += bytes[i];
    sink += sum;
}

// A bug of a decoder that no sanitizer sees.
static void must(bool fine, const char *what)
{
    if (!fine) {
        fprintf(stderr, "fuzz_wire: %s\n", what);
        abort();
    }
}

static bool header(struct msg *m, bool seal)
{
    struct link_header h;

    if (m->len < LINK_HEADER_BYTES)
        return false;
    if (seal) {
        struct msg body = {.data = m->data + LINK_HEADER_BYTES, .len = m->len - LINK_HEADER_BYTES};
        uint8_t right[LINK_HEADER_BYTES];

        memcpy(&body.type, m->data + 6, sizeof body.type);
        link_header_encode(right, &body);
        memcpy(m->data + 12, right + 12, 8);
    }
    if (link_header_decode(m->data, INPUT_MAX, &h) != ST_OK)
        return false;
    must(h.len <= INPUT_MAX, "a length above the limit was accepted");
    if (h.len > m->len - LINK_HEADER_BYTES)
        return false; // more would have to come
    return link_body_check(&h, m->data + LINK_HEADER_BYTES) == ST_OK;
}

static bool hello(const struct msg *m)
{
    struct hello h;

    if (hello_read(m, &h) != ST_OK)
        return false;
    must(h.k_max >= 1 && h.k_max <= SPEC_CHUNK_MAX && h.t_max_ns >= -1, "hello");
    return true;
}

static bool welcome(const struct msg *m)
{
    static struct welcome w;
    struct row_layout l;
    struct msg *again;

    if (welcome_read(m, &w) != ST_OK)
        return false;
    touch(w.env, w.n_env * sizeof w.env[0]);
    row_layout_make(&l, &w.spec, (int)w.k_max, (enum autoreset)w.autoreset);
    must(l.stride >= sizeof(struct row_head) && l.stride % 8 == 0, "layout");
    must(welcome_write(&again, &w) == ST_OK, "an accepted welcome cannot be written");
    msg_free(again);
    return true;
}

static bool reset(const struct msg *m)
{
    const struct reset_row *rows;
    uint64_t seq;
    int n;

    if (reset_read(m, &seq, &rows, &n) != ST_OK)
        return false;
    must(n >= 1, "reset");
    touch(rows, (size_t)n * sizeof *rows);
    return true;
}

static bool step(const struct msg *m)
{
    const uint8_t *rows;
    uint64_t seq;
    int n;

    if (step_read(m, SAMPLE_K, SAMPLE_ACT, &seq, &rows, &n) != ST_OK)
        return false;
    must(n >= 1, "step");
    touch(rows, (size_t)n * step_stride(SAMPLE_K, SAMPLE_ACT));
    return true;
}

static bool batch(const struct msg *m, enum autoreset autoreset)
{
    struct row_layout l = sample_layout(autoreset);
    const struct batch_head *head;
    const uint8_t *rows;

    if (batch_read(m, &l, &head, &rows) != ST_OK)
        return false;
    for (uint32_t i = 0; i < head->n; i++) {
        const uint8_t *row = rows + (size_t)i * head->stride;
        const double *reward = (const void *)(row + l.reward), *obs = (const void *)(row + l.obs);

        touch(row, l.stride);
        for (uint32_t k = 0; k < ((const struct row_head *)row)->n_sub; k++)
            must(isfinite(reward[k]), "reward");
        for (int k = 0; k < SAMPLE_OBS; k++)
            must(isfinite(obs[k]), "observation");
    }
    return true;
}

static bool error(const struct msg *m)
{
    struct proto_error e;

    if (proto_error_read(m, &e) != ST_OK)
        return false;
    must(e.code != ST_OK && strlen(e.text) < sizeof e.text, "error");
    return true;
}

static bool join(const struct msg *m)
{
    struct join j;

    if (join_read(m, &j) != ST_OK)
        return false;
    must(strlen(j.task) < sizeof j.task && strlen(j.picture) < sizeof j.picture, "join");
    must(!j.picture[0] == !join_picture_bytes(&j), "the picture of a join");
    return true;
}

static bool weights(const struct msg *m)
{
    struct weights_head h;
    const void *blob;

    if (weights_read(m, &h, &blob) != ST_OK)
        return false;
    touch(blob, h.blob_bytes);
    return true;
}

static void must_be_finite(const float *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        must(isfinite(p[i]), "a number of a chunk or state");
}

static bool chunk(const struct msg *m)
{
    const struct join j = sample_join();
    struct chunk c;
    uint32_t truncated = 0;

    if (chunk_read(m, &j, SAMPLE_LEAD, &c) != ST_OK)
        return false;
    touch(c.pictures, (size_t)chunk_n_picture(&c.head) * c.head.picture_bytes);
    must_be_finite(c.obs, (size_t)c.head.n_step * SAMPLE_OBS);
    must_be_finite(c.last_obs, SAMPLE_OBS);
    must_be_finite(c.final_obs, (size_t)c.head.n_truncated * SAMPLE_OBS);
    must_be_finite(c.action, (size_t)c.head.n_step * SAMPLE_ACT);
    must_be_finite(c.logp, c.head.n_step);
    must_be_finite(c.reward, c.head.n_step);
    must_be_finite(c.episode_return, c.head.n_episode);
    must_be_finite(c.episode_length, c.head.n_episode);
    for (uint32_t i = 0; i < c.head.n_step; i++) {
        truncated += (c.flags[i] & CHUNK_TRUNCATED) != 0;
        touch(&c.version[i], sizeof c.version[i]);
    }
    must(truncated == c.head.n_truncated, "truncated steps");
    return true;
}

static bool episode(const struct msg *m)
{
    const struct join j = sample_join();
    struct episode e;
    uint64_t n_sub = 0;

    if (episode_read(m, &j, &e) != ST_OK)
        return false;
    must_be_finite(e.obs, (size_t)e.head.n_decision * SAMPLE_OBS);
    must_be_finite(e.action, (size_t)e.head.n_decision * SAMPLE_K * SAMPLE_ACT);
    must_be_finite(e.logp, (size_t)e.head.n_decision * SAMPLE_K);
    must_be_finite(e.reward, (size_t)e.head.n_decision * SAMPLE_K);
    touch(e.pictures, (size_t)e.head.n_decision * SAMPLE_PICTURE);
    for (uint32_t i = 0; i < e.head.n_decision; i++) {
        must(e.version[i] >= e.head.version_min && e.version[i] <= e.head.version_max, "version");
        must(e.executed[i] >= 1 && e.executed[i] <= SAMPLE_K, "executed");
        n_sub += e.executed[i];
    }
    must(n_sub == e.head.n_sub, "n_sub");
    return true;
}

static bool state(const struct msg *m)
{
    uint32_t env_first, n_env;
    struct episode_state s;
    struct reader r;

    if (state_read(m, SAMPLE_ACT, &r, &env_first, &n_env) != ST_OK)
        return false;
    for (uint32_t i = 0; i < n_env; i++) {
        if (state_next(&r, SAMPLE_ACT, &s) != ST_OK)
            return false;
        must_be_finite(s.action, (size_t)s.elapsed * SAMPLE_ACT);
    }
    return reader_end(&r, true, "STATE") == ST_OK;
}

static bool lost_or_back(const struct msg *m)
{
    const uint32_t *env;
    uint64_t chunks = 0;
    uint32_t n;

    if ((m->type == MSG_LOST ? lost_read(m, &env, &n) : back_read(m, &chunks, &env, &n)) != ST_OK)
        return false;
    must(n >= 1 && n <= SPEC_ENV_MAX && chunks <= UINT32_MAX, "lost");
    for (uint32_t i = 1; i < n; i++)
        must(env[i] > env[i - 1], "the order of lost envs");
    return true;
}

static bool states(const struct msg *m)
{
    struct state_rows q;

    if (state_read_rows(m, &q) != ST_OK)
        return false;
    must(q.n >= 1 && q.n <= SPEC_ENV_MAX && q.stride >= sizeof(uint32_t), "states");
    must(strlen(q.field) < sizeof q.field && strlen(q.element) < sizeof q.element, "names");
    touch(q.rows, (size_t)q.n * q.stride);
    return true;
}

static bool executed(const struct msg *m)
{
    uint64_t seq;

    return executed_read(m, &seq) == ST_OK;
}

static bool control(const struct msg *m)
{
    uint8_t nonce[NONCE_BYTES];
    struct proof p;
    struct bye b;
    uint64_t n;

    switch (m->type) {
    case MSG_PING:
        return ping_read(m, MSG_PING, &n) == ST_OK;
    case MSG_CHALLENGE:
        return challenge_read(m, nonce) == ST_OK;
    case MSG_PROOF:
        return proof_read(m, &p) == ST_OK;
    default:
        if (bye_read(m, &b) != ST_OK)
            return false;
        must(strlen(b.why) < sizeof b.why, "bye");
        for (const char *c = b.why; *c; c++)
            must((unsigned char)*c >= 0x20 && *c != 0x7f, "a control character in a text");
        return true;
    }
}

static bool decode(enum decoder decoder, struct msg *m)
{
    static const uint16_t types[DECODERS] = {
        0,           0,         MSG_HELLO, MSG_WELCOME, MSG_RESET,     MSG_STEP,
        MSG_BATCH,   MSG_BATCH, MSG_ERROR, MSG_JOIN,    MSG_WEIGHTS,   MSG_CHUNK,
        MSG_STATE,   MSG_LOST,  MSG_PING,  MSG_BYE,     MSG_CHALLENGE, MSG_PROOF,
        MSG_SAVE,    MSG_LOAD,  MSG_SET,   MSG_GET,     MSG_EXECUTED,  MSG_BACK,
        MSG_EPISODE,
    };

    m->type = types[decoder];
    switch (decoder) {
    case DECODE_HEADER:
    case DECODE_SEALED_HEADER:
        return header(m, decoder == DECODE_SEALED_HEADER);
    case DECODE_HELLO:
        return hello(m);
    case DECODE_WELCOME:
        return welcome(m);
    case DECODE_RESET:
        return reset(m);
    case DECODE_STEP:
        return step(m);
    case DECODE_BATCH:
        return batch(m, AUTORESET_NEXT_STEP);
    case DECODE_BATCH_SAME_STEP:
        return batch(m, AUTORESET_SAME_STEP);
    case DECODE_ERROR:
        return error(m);
    case DECODE_JOIN:
        return join(m);
    case DECODE_WEIGHTS:
        return weights(m);
    case DECODE_CHUNK:
        return chunk(m);
    case DECODE_EPISODE:
        return episode(m);
    case DECODE_STATE:
        return state(m);
    case DECODE_LOST:
    case DECODE_BACK:
        return lost_or_back(m);
    case DECODE_PING:
    case DECODE_BYE:
    case DECODE_CHALLENGE:
    case DECODE_PROOF:
        return control(m);
    case DECODE_SAVE:
    case DECODE_LOAD:
    case DECODE_SET:
    case DECODE_GET:
        return states(m);
    case DECODE_EXECUTED:
        return executed(m);
    case DECODERS:
        break;
    }
    return false;
}

// Decode a copy that ends where the input ends.
static bool try_input(enum decoder decoder, const uint8_t *data, size_t size)
{
    struct msg whole = {.data = (uint8_t *)data}, m = exact_copy(&whole, size);
    bool accepted = decode(decoder, &m);

    free(m.data);
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size >= 1 && size <= INPUT_MAX)
        (void)try_input((enum decoder)(data[0] % DECODERS), data + 1, size - 1);
    return 0;
}

#ifndef SIMSTREAM_LIBFUZZER

// A message with its stream header, as it stands on the wire.
static struct msg *framed(void)
{
    struct msg *m = sample_reset(), *out;
    uint8_t head[LINK_HEADER_BYTES];

    must(msg_new(&out, 0, 0) == ST_OK, "no memory");
    link_header_encode(head, m);
    must(msg_bytes(out, head, sizeof head) == ST_OK, "no memory");
    must(msg_bytes(out, m->data, m->len) == ST_OK, "no memory");
    msg_free(m);
    return out;
}

static struct msg *seed_of(enum decoder decoder)
{
    struct hello h = sample_hello();
    struct join j = sample_join();
    struct chunk c = sample_chunk();
    struct episode e = sample_episode();
    struct welcome *w;
    struct msg *m = NULL;
    enum status st = ST_OK;

    switch (decoder) {
    case DECODE_HEADER:
    case DECODE_SEALED_HEADER:
        return framed();
    case DECODE_HELLO:
        st = hello_write(&m, &h);
        break;
    case DECODE_WELCOME:
        w = sample_welcome();
        st = welcome_write(&m, w);
        mem_free(w);
        break;
    case DECODE_RESET:
        return sample_reset();
    case DECODE_STEP:
        return sample_step();
    case DECODE_BATCH:
        return sample_batch(AUTORESET_NEXT_STEP, 4);
    case DECODE_BATCH_SAME_STEP:
        return sample_batch(AUTORESET_SAME_STEP, 4);
    case DECODE_ERROR:
        return sample_error();
    case DECODE_JOIN:
        st = join_write(&m, &j);
        break;
    case DECODE_WEIGHTS:
        return sample_weights();
    case DECODE_CHUNK:
        st = chunk_write(&m, &c);
        break;
    case DECODE_EPISODE:
        st = episode_write(&m, &e);
        break;
    case DECODE_STATE:
        return sample_state();
    case DECODE_LOST:
        return sample_lost();
    case DECODE_BACK:
        return sample_back();
    case DECODE_PING:
    case DECODE_BYE:
    case DECODE_CHALLENGE:
    case DECODE_PROOF:
        return sample_control((enum msg_type)(decoder == DECODE_PING        ? MSG_PING
                                              : decoder == DECODE_BYE       ? MSG_BYE
                                              : decoder == DECODE_CHALLENGE ? MSG_CHALLENGE
                                                                            : MSG_PROOF));
    case DECODE_SAVE:
    case DECODE_LOAD:
    case DECODE_SET:
    case DECODE_GET:
        return sample_states((enum msg_type)(decoder == DECODE_SAVE   ? MSG_SAVE
                                             : decoder == DECODE_LOAD ? MSG_LOAD
                                             : decoder == DECODE_SET  ? MSG_SET
                                                                      : MSG_GET));
    case DECODE_EXECUTED:
        st = executed_write(&m, 77);
        break;
    case DECODERS:
        break;
    }
    must(st == ST_OK && m, "no seed");
    return m;
}

static const uint32_t odd[] = {0,          1,          2,          0x7f,       0x80,
                               0xff,       0x100,      0xffff,     0x10000,    0x10001,
                               0x7fffffff, 0x80000000, 0xffffffff, 0x7f800000, 0x7fc00000,
                               0x7ff00000, 0xfff80000, 64};

// Damage `size` bytes at `data` (room for INPUT_MAX) in one of several ways; the new size.
static size_t mutate(struct rng *r, uint8_t *data, size_t size)
{
    size_t at = size ? rng_below(r, (uint32_t)size) : 0, n;
    uint32_t v = odd[rng_below(r, sizeof odd / sizeof odd[0])];

    if (size == 0)
        return 0;
    switch (rng_below(r, 8)) {
    case 0: // one bit
        data[at] ^= (uint8_t)(1u << rng_below(r, 8));
        return size;
    case 1: // one byte
        data[at] = (uint8_t)rng_u32(r);
        return size;
    case 2: // a number that is often special
    case 3:
        at &= ~(size_t)3;
        n = size - at < 4 ? size - at : 4;
        memcpy(data + at, &v, n);
        return size;
    case 4: // cut
        return at;
    case 5: // longer
        n = 1 + rng_below(r, 64);
        n = size + n <= INPUT_MAX ? n : INPUT_MAX - size;
        memset(data + size, (int)(v & 0xff), n);
        return size + n;
    case 6: // one number a little more or less
        at &= ~(size_t)3;
        if (size - at >= 4) {
            memcpy(&v, data + at, 4);
            v += rng_below(r, 5) - 2;
            memcpy(data + at, &v, 4);
        }
        return size;
    default: // a piece copied elsewhere
        n = rng_below(r, (uint32_t)(size - at) + 1);
        memmove(data + rng_below(r, (uint32_t)(size - n) + 1), data + at, n);
        return size;
    }
}

static void hammer(enum decoder decoder, long count, long accepted[DECODERS])
{
    struct rng r = rng_make(20, RNG_TEST, (uint64_t)decoder, 0, 0);
    struct msg *seed = seed_of(decoder);
    static uint8_t input[INPUT_MAX];

    must(seed->len <= INPUT_MAX / 2, "the seed is too long");
    must(try_input(decoder, seed->data, seed->len), "a valid message was refused");
    for (long i = 0; i < count; i++) {
        size_t size = seed->len;

        memcpy(input, seed->data, size);
        for (uint32_t k = rng_below(&r, 4) + 1; k > 0; k--)
            size = mutate(&r, input, size);
        accepted[decoder] += try_input(decoder, input, size);
    }
    msg_free(seed);
}

// Every file of the corpus; how many.
static int replay(const char *path)
{
    static uint8_t input[INPUT_MAX];
    DIR *dir = opendir(path);
    struct dirent *entry;
    char name[1024];
    int n = 0;

    must(dir, "the corpus is not there");
    while ((entry = readdir(dir))) {
        FILE *f;
        size_t size;

        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        f = fopen(name, "rb");
        must(f, name);
        size = fread(input, 1, sizeof input, f);
        fclose(f);
        (void)LLVMFuzzerTestOneInput(input, size);
        n++;
    }
    closedir(dir);
    return n;
}

// Any content of the right size is a valid one.
static bool is_opaque(int decoder)
{
    return decoder == DECODE_PING || decoder == DECODE_CHALLENGE || decoder == DECODE_PROOF ||
           decoder == DECODE_EXECUTED;
}

static void write_seeds(const char *folder)
{
    for (int d = 0; d < DECODERS; d++) {
        struct msg *m = seed_of((enum decoder)d);
        char name[1024];
        FILE *f;

        snprintf(name, sizeof name, "%s/seed-%02d", folder, d);
        f = fopen(name, "wb");
        must(f, name);
        fputc(d, f);
        must(fwrite(m->data, 1, m->len, f) == m->len, name);
        must(fclose(f) == 0, name);
        msg_free(m);
    }
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? strtol(argv[1], NULL, 10) : 1000000, accepted[DECODERS] = {0};
    int64_t start = clock_now_ns(), live = mem_live();

    if (argc > 2)
        write_seeds(argv[2]);
    printf("%d inputs of the corpus\n", replay(TESTS_DIR "/corpus/wire"));

    for (int d = 0; d < DECODERS; d++) {
        hammer((enum decoder)d, count / DECODERS, accepted);
        printf("decoder %2d: %ld of %ld accepted\n", d, accepted[d], count / DECODERS);
        // neither everything nor, but for the header with its checksum, nothing
        must(is_opaque(d) || accepted[d] < count / DECODERS / 2, "damage is not noticed");
        must(accepted[d] > 0 || count < 10000 || d == DECODE_HEADER, "nothing reaches the end");
    }
    msg_drain();
    must(mem_live() == live, "a decoder leaks");
    printf("%ld inputs in %.1f s\n", count, 1e-9 * (double)(clock_now_ns() - start));
    return 0;
}

#endif
