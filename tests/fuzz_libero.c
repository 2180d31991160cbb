// fuzz_libero.c [COUNT] - the readers of task files (BDDL, tables, XML, init states) against valid
// files with fixed-seed damage. An input is one byte that chooses the reader, then the file.
#include "tests/testing.h"

#include "common/base/file.h"
#include "common/base/rng.h"
#include "scenes/libero/bddl.h"
#include "scenes/libero/init_states.h"
#include "scenes/libero/tables.h"
#include "scenes/libero/xml.h"

#include <stdio.h>

#define DEFAULT_COUNT 20000

enum reader { READ_BDDL, READ_TABLES, READ_XML, READ_INIT, READERS };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_bddl(const char *text, size_t n)
{
    struct bddl b;

    if (bddl_parse(&b, text, n, "fuzz") == ST_OK)
        bddl_fini(&b);
}

static void read_tables(const char *text, size_t n)
{
    struct tables t = {0};
    char *copy = mem_alloc(n + 1, 1);

    memcpy(copy, text, n);
    (void)!tables_parse(&t, copy, "fuzz");
    tables_fini(&t);
    mem_free(copy);
}

static void read_xml(const char *text, size_t n)
{
    struct xml_doc doc;
    struct xml_node *root;

    xml_init(&doc);
    if (xml_parse(&doc, text, n, "fuzz", &root) == ST_OK && !xml_text(&doc, xml_copy(&doc, root)))
        abort();
    xml_fini(&doc);
}

static volatile double sink; // so that every number is read

static void read_init(const char *bytes, size_t n)
{
    struct init_states s;
    int i;

    if (init_states_parse(&s, bytes, n, "fuzz") != ST_OK)
        return;
    for (i = 0; i < s.n_row * s.n_col; i++)
        sink = s.rows[i];
    init_states_fini(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(const char *, size_t) = {read_bddl, read_tables, read_xml,
                                                            read_init};

    if (size > 0)
        readers[data[0] % READERS]((const char *)data + 1, size - 1);
    return 0;
}

#ifndef SIMSTREAM_LIBFUZZER
static const char *const seeds[] = {
    TESTS_DIR "/../scenes/libero/tabletop/bddl_files/tabletop/"
              "open_the_top_drawer_and_put_the_red_block_inside.bddl",
    TESTS_DIR "/../scenes/libero/tabletop/tabletop.tables",
    TESTS_DIR "/../scenes/libero/tabletop/assets/fixtures/stove.xml",
    TESTS_DIR "/../scenes/libero/tabletop/init_files/tabletop/turn_on_the_stove.pruned_init",
};

// A few bytes changed, a piece cut out or doubled.
static size_t damage(struct rng *rng, const char *from, size_t n, uint8_t *to)
{
    uint32_t i, cuts = rng_below(rng, 4), at, len;
    static const char bytes[] = "()<>=:;-\"/ 09.eK\x00\x85\xff\nX";

    memcpy(to, from, n);
    for (i = 0; i < cuts; i++)
        to[rng_below(rng, (uint32_t)n)] = (uint8_t)bytes[rng_below(rng, sizeof bytes - 1)];
    at = rng_below(rng, (uint32_t)n);
    len = rng_below(rng, (uint32_t)(n - at)) / (1 + rng_below(rng, 100));
    if (rng_below(rng, 3) == 0) {
        memmove(to + at, to + at + len, n - at - len);
        n -= len;
    } else if (rng_below(rng, 3) == 0) {
        memmove(to + at + len, to + at, n - at);
        n += len;
    }
    return n;
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? strtol(argv[1], NULL, 10) : DEFAULT_COUNT, i;
    struct rng rng = rng_make(1, RNG_TEST, 0, 0, 0);
    int k;

    for (k = 0; k < READERS; k++) {
        char *text;
        uint8_t *input;
        size_t n;

        if (file_read(seeds[k], &text, &n) != ST_OK) {
            fprintf(stderr, "fuzz_libero: %s\n", error_last()->text);
            return 1;
        }
        input = mem_alloc(2 * n + 2, 1);
        input[0] = (uint8_t)k;
        memcpy(input + 1, text, n);
        LLVMFuzzerTestOneInput(input, n + 1);
        for (i = 0; i < count / READERS; i++) {
            size_t m = damage(&rng, text, n, input + 1);

            LLVMFuzzerTestOneInput(input, m + 1);
        }
        mem_free(input);
        mem_free(text);
    }
    printf("%ld inputs, %lld blocks left\n", count, (long long)mem_live());
    return mem_live() == 0 ? 0 : 1;
}
#endif
