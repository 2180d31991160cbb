// fuzz_results.c [COUNT] - an evaluation's folder with fixed-seed damage in one of its files: it is
// refused with the file's name, or what was read can be summed up, written, and read again the
// same. An input is one byte that chooses the file, then what stands in it.
#include "tests/testing.h"

#include "common/base/config.h"
#include "common/base/rng.h"
#include "common/base/text.h"
#include "evaluation/summary.h"

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_COUNT 6000
#define INPUT_MAX     8192

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
    const char *name, *text;
} files[] = {
    {"settings.json", "{\"schema\": \"simstream.eval/1\", \"seed\": 7}\n"},
    {"tasks.jsonl",
     "{\"task\": \"suite/0\", \"instruction\": \"do \\u00e4 \\\"it\\\"\", \"episodes\": 3}\n"
     "{\"task\": \"suite/1\", \"instruction\": \"\", \"episodes\": 3}\n"},
    {"inputs.jsonl",
     "{\"task\": \"suite/0\", \"engine\": \"MuJoCo 3.3.7\", \"max_episode_steps\": 220, \"dt_s\": "
     "0.05, \"has_success\": true, \"bddl_sha256\": \"ab\", \"init_sha256\": \"cd\"}\n"},
    {"results.jsonl",
     "{\"item\": \"suite/0/0\", \"task\": \"suite/0\", \"episode\": 0, \"seed\": 7, \"stream\": 0, "
     "\"init_state\": 0, \"outcome\": \"success\", \"return\": 1, \"max_reward\": 1, \"length\": "
     "77, \"terminated\": true, \"truncated\": false, \"success\": true}\n"
     "{\"item\": \"suite/0/2\", \"task\": \"suite/0\", \"episode\": 2, \"seed\": 7, \"stream\": 0, "
     "\"outcome\": \"error\", \"return\": 0, \"length\": 3, \"terminated\": false, \"truncated\": "
     "false, \"success\": false, \"error\": \"worker died\"}\n"},
};

#define FILES ((int)(sizeof files / sizeof files[0]))

static char dir[64], again[80];

static void put(const char *name, const void *bytes, size_t n)
{
    char path[128];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0)
        panic("fuzz_results: cannot write '%s'", path);
}

static void make_folders(void)
{
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    int i;

    snprintf(dir, sizeof dir, "%s/simstream-fuzz-XXXXXX", base);
    if (!mkdtemp(dir))
        panic("fuzz_results: no folder");
    snprintf(again, sizeof again, "%s/again", dir);
    if (mkdir(again, 0700) != 0)
        panic("fuzz_results: no folder");
    for (i = 0; i < FILES; i++)
        put(files[i].name, files[i].text, strlen(files[i].text));
}

static void remove_folders(void)
{
    char path[128];
    int i;

    for (i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "%s/%s", again, files[i].name);
        (void)unlink(path);
        snprintf(path, sizeof path, "%s/%s", dir, files[i].name);
        (void)unlink(path);
    }
    (void)rmdir(again);
    (void)rmdir(dir);
}

static void must(bool ok, const char *what, const char *text)
{
    if (!ok)
        panic("fuzz_results: %s (%s): %s", what, error_last()->text, text);
}

// What was accepted: all that is made of it works, and it is the same when it comes back.
static void use(struct results *r, const char *text)
{
    struct summary_about about = {.dir = dir, .wanted = 6, .wall_s = NAN, .fail_below = NAN};
    struct results back = {0};
    struct text a, b;
    int64_t k;

    text_init(&a);
    text_init(&b);
    must(summary_text(r, &about, &a) == ST_OK, "no summary", text);
    must(config_check_object(text_get(&a), "summary") == ST_OK, "a summary that is no JSON", text);
    must(results_write(r, again) == ST_OK, "cannot be written", text);
    must(results_read(&back, again) == ST_OK, "cannot be read again", text);
    must(results_check_same(r, dir, &back) == ST_OK && back.n == r->n, "came back different", text);
    text_fini(&a);
    text_init(&a);
    for (k = 0; k < r->n; k++) {
        results_put_row(r, &r->rows[k], &a);
        results_put_row(&back, &back.rows[k], &b);
    }
    must(r->n == 0 || strcmp(text_get(&a), text_get(&b)) == 0, "a row came back different", text);
    text_fini(&a);
    text_fini(&b);
    results_fini(&back);
}

static int accepted;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char shown[INPUT_MAX + 1];
    struct results r = {0};
    int i;

    if (size < 1 || size > INPUT_MAX)
        return 0;
    if (!dir[0]) {
        make_folders();
        atexit(remove_folders);
    }
    i = data[0] % FILES;
    memcpy(shown, data + 1, size - 1);
    shown[size - 1] = '\0';
    put(files[i].name, data + 1, size - 1);
    if (results_read(&r, dir) != ST_OK) {
        must(error_last()->code == ST_NOMEM || strstr(error_last()->text, dir), "names no file",
             shown);
    } else if (results_sort(&r) == ST_OK) {
        use(&r, shown);
        accepted++;
    }
    results_fini(&r);
    put(files[i].name, files[i].text, strlen(files[i].text));
    return 0;
}

#ifndef SIMSTREAM_LIBFUZZER

// A few bytes of another kind, a piece that is gone, or one that stands twice.
static size_t damage(uint8_t *bytes, size_t n, struct rng *rng)
{
    static const char odd[] = "{}[]\",:\\0123456789eE+-.nulltruefalse\n \x80\xff";
    size_t at = n ? rng_below(rng, (uint32_t)n) : 0, len = 1 + rng_below(rng, 12);

    switch (rng_below(rng, 4)) {
    case 0:
        if (at + len > n)
            len = n - at;
        memmove(bytes + at, bytes + at + len, n - at - len);
        return n - len;
    case 1:
        if (at + len > n || n + len > INPUT_MAX - 1)
            return n;
        memmove(bytes + at + len, bytes + at, n - at);
        return n + len;
    default:
        if (n > 0)
            bytes[at] = (uint8_t)odd[rng_below(rng, sizeof odd - 1)];
        return n;
    }
}

int main(int argc, char **argv)
{
    static uint8_t input[INPUT_MAX];
    long count = argc > 1 ? strtol(argv[1], NULL, 10) : DEFAULT_COUNT, i;
    struct rng rng = rng_make(5, RNG_TEST, 0, 0, 0);

    for (i = 0; i < count; i++) {
        const char *text = files[i % FILES].text;
        size_t n = strlen(text);
        uint32_t k;

        input[0] = (uint8_t)(i % FILES);
        memcpy(input + 1, text, n);
        for (k = rng_below(&rng, 5); k > 0; k--)
            n = damage(input + 1, n, &rng);
        (void)LLVMFuzzerTestOneInput(input, n + 1);
    }
    printf("%d of %ld folders accepted\n", accepted, count);
    must(accepted > count / 20 && accepted < count * 19 / 20, "all or nothing is accepted", "");
    return 0;
}

#endif
