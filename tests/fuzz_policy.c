// fuzz_policy.c [COUNT] - what a policy server may say, with fixed-seed damage: msgpack with arrays
// in all styles, and JSON. What is accepted is read to its last number.
//
// An input is one byte that chooses the decoder, then the message.
#include "evaluation/chunk.h"
#include "evaluation/policy_act.h"
#include "evaluation/policy_openpi.h"

#include "tests/fuzz_testing.h"

#include <string.h>

#define SEEDS_MAX 512
#define N_ACT     7

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile double sink;

static void touch(const float *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sink += v[i];
}

static int try_msgpack(const uint8_t *data, size_t size)
{
    static float v[CHUNK_STEPS_MAX * CHUNK_ACT_MAX];
    struct tensor_floats f = {.v = v, .cap = sizeof v / sizeof v[0]};
    msgpack_unpacked u;
    int fine = pack_open(&u, data, size) == ST_OK;

    if (fine) {
        struct text t;
        struct tensor a, row;

        text_init(&t);
        pack_to_json(&t, &u.data);
        must(t.len > 0, "no JSON of an object");
        text_fini(&t);
        fine = tensor_floats_read(&f, &u.data) == ST_OK;
        if (fine) {
            must(f.n <= f.cap && f.n_dim <= TENSOR_DIMS, "more numbers than there is room for");
            touch(v, f.n);
        }
        if (tensor_read(&a, &u.data) == ST_OK && tensor_slice(&row, &a, 0) == ST_OK)
            must(tensor_bytes(&row) <= tensor_bytes(&a), "a row is more than the whole");
    }
    msgpack_unpacked_destroy(&u);
    return fine;
}

static void make_client(struct policy_client *c, struct policy_options *o, const char *actions)
{
    memset(o, 0, sizeof *o);
    snprintf(o->actions, sizeof o->actions, "%s", actions);
    policy_client_init(c, &act_ops, "http://127.0.0.1:1", o, NULL, NULL);
}

static int try_chunk(const uint8_t *data, size_t size, bool json)
{
    static float v[CHUNK_STEPS_MAX * CHUNK_ACT_MAX];
    struct policy_chunk out = {.n_act = N_ACT, .actions = v};
    struct policy_options o;
    struct policy_client c;
    msgpack_unpacked u;
    enum status st;

    make_client(&c, &o, "actions");
    if (json) {
        st = act_read(&c, (const char *)data, size, &out);
    } else {
        st = policy_read_map(&u, data, size);
        if (st == ST_OK)
            st = policy_take_actions(&c, &u.data, &out);
        msgpack_unpacked_destroy(&u);
    }
    if (st == ST_OK) {
        must(out.n >= 1 && out.n <= CHUNK_STEPS_MAX, "a chunk of no actions or of too many");
        touch(v, (size_t)(out.n * N_ACT));
    }
    policy_client_fini(&c);
    return st == ST_OK;
}

static int try_one(const uint8_t *data, size_t size)
{
    if (size < 1 || size > FUZZ_INPUT_MAX)
        return 0;
    switch (data[0] % 3) {
    case 0:
        return try_msgpack(data + 1, size - 1);
    case 1:
        return try_chunk(data + 1, size - 1, false);
    default:
        return try_chunk(data + 1, size - 1, true);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)try_one(data, size);
    return 0;
}

#ifndef SIMSTREAM_LIBFUZZER

static struct fuzz_seed seeds[SEEDS_MAX];
static int n_seed;

static void add(uint8_t decoder, const void *bytes, size_t n)
{
    struct fuzz_seed *s = &seeds[n_seed++];

    must(n_seed <= SEEDS_MAX && n < FUZZ_INPUT_MAX, "too many seeds");
    s->bytes[0] = decoder;
    memcpy(s->bytes + 1, bytes, n);
    s->n = n + 1;
}

// The arrays of the Python packages, and each as the actions of a reply.
static void add_arrays(void)
{
    static char line[1 << 16];
    FILE *f = fopen(TESTS_DIR "/golden/policy.txt", "r");

    must(f != NULL, "no tests/golden/policy.txt");
    while (fgets(line, sizeof line, f)) {
        uint8_t bytes[FUZZ_INPUT_MAX] = "\x81\xa7"
                                        "actions";
        size_t n = 9;
        char shape[32];
        unsigned b;
        int at;

        if (sscanf(line, "array %*s %*s %31s %n", shape, &at) != 1 || n_seed > SEEDS_MAX - 16)
            continue;
        for (const char *p = line + at; sscanf(p, "%2x", &b) == 1; p += 2)
            bytes[n++] = (uint8_t)b;
        add(0, bytes + 9, n - 9);
        add(1, bytes, n);
    }
    fclose(f);
}

static void add_texts(void)
{
    static const char *const texts[] = {
        "{\"actions\": [[1, 2, 3, 4, 5, 6, 7], [0.5, -1, 0, 0, 0, 0, 1e-3]]}",
        "{\"actions\": [0, 0, 0, 0, 0, 0, 1]}",
        "{\"actions\": {\"__numpy__\": \"AACAPwAAgD8AAIA/AACAPwAAgD8AAIA/AACAPw==\", \"dtype\": "
        "\"<f4\", \"shape\": [7]}}",
        "{\"encoded\": \"{\\\"actions\\\": [[1, 2, 3, 4, 5, 6, 7]]}\"}",
        "{\"actions\": \"[1, 2, 3, 4, 5, 6, 7]\"}",
        "\"error\"",
        "{\"actions\": [{\"__numpy__\": \"AACAPwAAgD8AAIA/AACAPwAAgD8AAIA/AACAPw==\", \"dtype\": "
        "\"<f4\", \"shape\": [7]}]}",
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        add(2, texts[i], strlen(texts[i]));
    add(1,
        "\x81\xa7"
        "actions\x91\x97\x01\x02\x03\x04\x05\x06\x07",
        18);
    add(1, "Traceback", 9);
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? strtol(argv[1], NULL, 10) : 200000;
    int64_t live = mem_live();

    add_arrays();
    add_texts();
    for (int i = 0; i < n_seed; i++)
        (void)try_one(seeds[i].bytes, seeds[i].n);
    return fuzz_run(seeds, n_seed, rng_make(23, RNG_TEST, 0, 0, 0), count, live, try_one);
}

#endif
