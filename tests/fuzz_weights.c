// fuzz_weights.c [COUNT] - files of weights and vocabularies from elsewhere, with fixed-seed
// damage: safetensors and byte-pair vocabularies. What is accepted is read to its last number.
//
// An input is one byte that chooses the reader, then the file.
#include "nn/safetensors.h"
#include "nn/tokenizer.h"

#include "tests/fuzz_testing.h"

#include <string.h>

#define SEEDS 5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile double sink;

static int try_tensors(const uint8_t *data, size_t size)
{
    static float x[FUZZ_INPUT_MAX];
    static uint8_t bytes[FUZZ_INPUT_MAX];
    struct safetensors *s;
    uint64_t total = 0;

    if (safetensors_of(&s, data, size, "input") != ST_OK)
        return 0;
    for (int i = 0; i < safetensors_count(s); i++) {
        const struct safetensor *t = safetensors_at(s, i);

        must(safetensors_find(s, t->name) == t, "an array is not found by its name");
        must(t->bytes <= size && t->from + t->bytes <= size, "an array is larger than the file");
        total += t->bytes;
        must(safetensors_bytes(s, t, bytes) == ST_OK, "bytes of an array cannot be read");
        if (safetensors_read(s, t, x) == ST_OK)
            for (int64_t k = 0; k < t->n; k++)
                sink += x[k];
    }
    must(total < size, "arrays overlap");
    (void)safetensors_meta(s, "format");
    safetensors_close(s);
    return 1;
}

static int try_vocabulary(const uint8_t *data, size_t size)
{
    static const char text[] = "the thing to the left of the other thing";
    struct tokenizer *t;
    int32_t ids[sizeof text];
    size_t at = 0, n;
    int n_id;

    if (tokenizer_parse(&t, (const char *)data, size, "input") != ST_OK)
        return 0;
    must(tokenizer_encode(t, text, sizeof text - 1, ids, sizeof text, &n_id) == ST_OK,
         "a text cannot be encoded");
    for (int i = 0; i < n_id; i++) {
        const char *bytes = tokenizer_token(t, ids[i], &n);

        must(bytes && at + n <= sizeof text - 1 && memcmp(bytes, text + at, n) == 0,
             "another text comes back");
        at += n;
    }
    must(at == sizeof text - 1, "a part of the text is lost");
    tokenizer_destroy(t);
    return 1;
}

static int try_one(const uint8_t *data, size_t size)
{
    if (size < 1 || size > FUZZ_INPUT_MAX)
        return 0;
    return data[0] % 2 ? try_vocabulary(data + 1, size - 1) : try_tensors(data + 1, size - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)try_one(data, size);
    return 0;
}

#ifndef SIMSTREAM_LIBFUZZER

static struct fuzz_seed seeds[SEEDS];

static void add_text(struct fuzz_seed *s, uint8_t reader, const char *text)
{
    s->bytes[0] = reader;
    memcpy(s->bytes + 1, text, strlen(text));
    s->n = 1 + strlen(text);
}

static void add_tensors(struct fuzz_seed *s, const char *header, size_t n)
{
    uint64_t length = strlen(header);

    s->bytes[0] = 0;
    memcpy(s->bytes + 1, &length, sizeof length);
    memcpy(s->bytes + 9, header, length);
    s->n = 9 + length + n;
}

static void add_golden(struct fuzz_seed *s)
{
    FILE *f = fopen(TESTS_DIR "/golden/package.safetensors", "rb");

    must(f != NULL, "no tests/golden/package.safetensors");
    s->bytes[0] = 0;
    s->n = 1 + fread(s->bytes + 1, 1, FUZZ_INPUT_MAX - 1, f);
    fclose(f);
}

static void make_seeds(void)
{
    add_golden(&seeds[0]);
    add_tensors(&seeds[1],
                "{\"__metadata__\":{\"a\":\"b\"},\"x\":{\"dtype\":\"F16\",\"shape\":[2,2],"
                "\"data_offsets\":[0,8]},\"y\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":"
                "[8,9]}}",
                9);
    add_tensors(&seeds[2], "{}", 0);
    add_text(&seeds[3], 1, "simstream-bpe 1 words\nt h\nth e\n\\20 the\n# no\ni n\nin g\n");
    add_text(&seeds[4], 1, "simstream-bpe 1 plain\n\\00 \\ff\na b\nab ab\nabab abab\n");
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? strtol(argv[1], NULL, 10) : 100000;
    int64_t live = mem_live();

    make_seeds();
    for (int i = 0; i < SEEDS; i++)
        must(try_one(seeds[i].bytes, seeds[i].n), "a seed is refused");
    return fuzz_run(seeds, SEEDS, rng_make(29, RNG_TEST, 0, 0, 0), count, live, try_one);
}

#endif
