#include "nn/tokenizer.h"

#include "common/base/rng.h"
#include "common/base/text.h"
#include "tests/testing.h"

#include <stdio.h>

static struct tokenizer *parse(const char *text)
{
    struct tokenizer *t;

    assert_ok(tokenizer_parse(&t, text, strlen(text), "v.bpe"));
    return t;
}

// The tokens as "[th][e]".
static void assert_encodes(const struct tokenizer *t, const char *text, const char *want)
{
    int32_t ids[64];
    char have[512] = "";
    int n, i;

    assert_ok(tokenizer_encode(t, text, strlen(text), ids, 64, &n));
    for (i = 0; i < n; i++) {
        size_t k;
        const char *bytes = tokenizer_token(t, ids[i], &k);

        snprintf(have + strlen(have), sizeof have - strlen(have), "[%.*s]", (int)k, bytes);
    }
    assert_string_equal(have, want);
}

static void without_a_vocabulary_tokens_are_bytes(void **state)
{
    struct tokenizer *t;
    int32_t ids[8];
    size_t n_text;
    int n;

    (void)state;
    assert_ok(tokenizer_load(&t, ""));
    assert_int_equal(tokenizer_size(t), 256);
    assert_ok(tokenizer_encode(t, "a\xff\0b", 4, ids, 4, &n));
    assert_int_equal(n, 4);
    assert_true(ids[0] == 'a' && ids[1] == 255 && ids[2] == 0 && ids[3] == 'b');
    assert_ok(tokenizer_encode(t, "", 0, ids, 0, &n));
    assert_int_equal(n, 0);
    assert_fails(tokenizer_encode(t, "abc", 3, ids, 2, &n), ST_INVAL, "more than 2 tokens");
    (void)tokenizer_text(t, &n_text);
    assert_int_equal(n_text, 0);
    assert_null(tokenizer_token(t, 256, &n_text));
    assert_null(tokenizer_token(t, -1, &n_text));
    tokenizer_destroy(t);
}

static void merges_apply_in_the_order_of_the_file(void **state)
{
    struct tokenizer *t = parse("simstream-bpe 1 plain\n# comment\nh e\nt he\nt h\n\ne \\20\n");

    (void)state;
    assert_int_equal(tokenizer_size(t), 256 + 4);
    assert_encodes(t, "the", "[the]");
    assert_encodes(t, "tha", "[th][a]");
    assert_encodes(t, "he e he", "[he][ ][e ][he]");
    assert_encodes(t, "hehe", "[he][he]");
    tokenizer_destroy(t);
}

static void words_are_not_joined(void **state)
{
    static const char merges[] = "a \\20\n\\20 b\n\\20b c\n\\20 \\20\n";
    char file[128];
    struct tokenizer *t;

    (void)state;
    snprintf(file, sizeof file, "simstream-bpe 1 words\n%s", merges);
    t = parse(file);
    assert_encodes(t, "a bc", "[a][ bc]");
    assert_encodes(t, "a  bc", "[a][ ][ bc]");
    tokenizer_destroy(t);
    snprintf(file, sizeof file, "simstream-bpe 1 plain\n%s", merges);
    t = parse(file);
    assert_encodes(t, "a bc", "[a ][b][c]");
    tokenizer_destroy(t);
}

// The definition, on strings: join the first pair of the earliest merge until there is none.
static int reference(const char (*merge)[2][64], int n_merge, const char *text, char (*out)[64])
{
    int n = (int)strlen(text), i, m;

    for (i = 0; i < n; i++)
        snprintf(out[i], 64, "%c", text[i]);
    for (m = 0; m < n_merge; m++)
        for (i = 0; i + 1 < n; i++)
            if (strcmp(out[i], merge[m][0]) == 0 && strcmp(out[i + 1], merge[m][1]) == 0) {
                memcpy(out[i] + strlen(out[i]), merge[m][1], strlen(merge[m][1]) + 1);
                memmove(out + i + 1, out + i + 2, (size_t)(n - i - 2) * sizeof out[0]);
                n--;
                m = -1; // an earlier merge may apply now
                break;
            }
    return n;
}

static void random_vocabularies_agree_with_the_definition(void **state)
{
    static char merge[40][2][64], tokens[64][64], known[64][64];
    int round;

    (void)state;
    for (round = 0; round < 200; round++) {
        struct rng r = rng_make(5, RNG_TEST, 0, (uint64_t)round, 0);
        int n_known = 3, n_merge = 0, i, k, n, tries;
        char line[160], text[40];
        struct text file;
        struct tokenizer *t;
        int32_t ids[64];

        text_init(&file);
        text_add(&file, "simstream-bpe 1 plain\n");
        for (i = 0; i < 3; i++)
            snprintf(known[i], 64, "%c", 'a' + i);
        for (tries = 0; tries < 40 && n_merge < 30; tries++) {
            const char *a = known[rng_below(&r, (uint32_t)n_known)];
            const char *b = known[rng_below(&r, (uint32_t)n_known)];

            snprintf(line, sizeof line, "%s%s", a, b);
            for (i = 0; i < n_known && strcmp(known[i], line) != 0; i++)
                ;
            if (i < n_known || strlen(line) > 12)
                continue;
            snprintf(merge[n_merge][0], 64, "%s", a);
            snprintf(merge[n_merge++][1], 64, "%s", b);
            text_add(&file, "%s %s\n", a, b);
            snprintf(known[n_known++], 64, "%.12s", line);
        }
        t = parse(text_get(&file));
        assert_int_equal(tokenizer_size(t), 256 + n_merge);
        for (k = 0; k < 20; k++) {
            size_t bytes;

            n = (int)rng_below(&r, sizeof text);
            for (i = 0; i < n; i++)
                text[i] = (char)('a' + rng_below(&r, 3));
            text[n] = '\0';
            n = reference((const char(*)[2][64])merge, n_merge, text, tokens);
            assert_ok(tokenizer_encode(t, text, strlen(text), ids, 64, &i));
            assert_int_equal(i, n);
            for (i = 0; i < n; i++) {
                const char *p = tokenizer_token(t, ids[i], &bytes);

                assert_int_equal(bytes, strlen(tokens[i]));
                assert_memory_equal(p, tokens[i], bytes);
            }
        }
        tokenizer_destroy(t);
        text_fini(&file);
    }
}

static void faults_name_the_line(void **state)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"gpt\n", "v.bpe:1: expected 'simstream-bpe 1 words'"},
        {"simstream-bpe 1 plain\n\nab c\n", "v.bpe:3: the left token is not known"},
        {"simstream-bpe 1 plain\na bc\n", "v.bpe:2: the right token is not known"},
        {"simstream-bpe 1 plain\na b\na b\n", "v.bpe:3: this token is there already"},
        {"simstream-bpe 1 plain\na b\nb c\na bc\nab c\n", "v.bpe:5: this token is there already"},
        {"simstream-bpe 1 plain\na b c\n", "v.bpe:2: more than two tokens"},
        {"simstream-bpe 1 plain\na\n", "v.bpe:2: expected two tokens"},
        {"simstream-bpe 1 plain\na  b\n", "v.bpe:2: expected two tokens"},
        {"simstream-bpe 1 plain\na \\2\n", "v.bpe:2: a backslash without"},
        {"simstream-bpe 1 plain\na \xc3\n", "v.bpe:2: byte 195, expected it as \\c3"},
    };
    struct tokenizer *t = NULL;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_fails(tokenizer_parse(&t, cases[i].text, strlen(cases[i].text), "v.bpe"), ST_INVAL,
                     cases[i].part);
    assert_null(t);
    assert_fails(tokenizer_load(&t, "/nonexistent/v.bpe"), ST_MISSING, "/nonexistent/v.bpe");
}

// Tokens may not become longer than the limit, however few merges that takes.
static void tokens_have_a_bound(void **state)
{
    struct tokenizer *t = NULL;
    struct text file;
    int n;

    (void)state;
    text_init(&file);
    text_add(&file, "simstream-bpe 1 plain\n");
    for (n = 1; n <= 256; n *= 2) {
        char a[257];

        memset(a, 'a', sizeof a);
        text_add(&file, "%.*s %.*s\n", n, a, n, a);
    }
    assert_fails(tokenizer_parse(&t, text_get(&file), strlen(text_get(&file)), "v.bpe"), ST_INVAL,
                 "v.bpe:10: a token of 512 bytes, at most 256");
    text_fini(&file);
}

static void out_of_memory_is_reported(void **state)
{
    static const char file[] = "simstream-bpe 1 words\nt h\nth e\n";
    struct tokenizer *t = NULL;
    int n;

    (void)state;
    for (n = 0;; n++) {
        mem_fail_after(n);
        if (tokenizer_parse(&t, file, sizeof file - 1, "v.bpe") == ST_OK)
            break;
        assert_null(t);
        assert_int_equal(error_last()->code, ST_NOMEM);
    }
    mem_fail_after(-1);
    assert_true(n > 3);
    tokenizer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(without_a_vocabulary_tokens_are_bytes),
        leak_test(merges_apply_in_the_order_of_the_file),
        leak_test(words_are_not_joined),
        leak_test(random_vocabularies_agree_with_the_definition),
        leak_test(faults_name_the_line),
        leak_test(tokens_have_a_bound),
        leak_test(out_of_memory_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
