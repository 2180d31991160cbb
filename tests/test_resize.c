// Against Pillow, by the checksums of its results (tests/oracle/policy_golden.py).
#include "evaluation/resize.h"

#include "common/base/crc.h"
#include "tests/testing.h"

#include <stdio.h>

static uint8_t *noise(int w, int h)
{
    size_t n = (size_t)w * (size_t)h * 3, i;
    uint32_t state = (uint32_t)(w * 1000 + h);
    uint8_t *p = mem_alloc(n, 1);

    assert_non_null(p);
    for (i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        p[i] = (uint8_t)(state >> 24);
    }
    return p;
}

static void check(enum resize_how how, int iw, int ih, int ow, int oh, unsigned want)
{
    size_t n = (size_t)ow * (size_t)oh * 3;
    uint8_t *src = noise(iw, ih), *dst = mem_alloc(n, 1), *scratch;
    struct resize *r;
    unsigned crc;

    assert_ok(resize_create(&r, how, iw, ih, ow, oh));
    scratch = mem_alloc(resize_scratch(r), 1);
    assert_true(dst && scratch);
    memset(dst, 0xaa, n);
    resize_run(r, src, dst, scratch);
    crc = crc32c(0, dst, n);
    if (crc != want)
        fail_msg("%dx%d to %dx%d, %s: %08x, Pillow has %08x", iw, ih, ow, oh,
                 how == RESIZE_PAD ? "padded" : "plain", crc, want);
    mem_free(scratch);
    mem_free(dst);
    mem_free(src);
    resize_destroy(r);
}

static void pictures_are_resized_as_pillow_does(void **state)
{
    FILE *f = fopen(TESTS_DIR "/golden/policy.txt", "r");
    int iw, ih, ow, oh, n = 0;
    char line[256], how[16];
    unsigned want;

    (void)state;
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "resize %15s %d %d %d %d %x", how, &iw, &ih, &ow, &oh, &want) == 6) {
            check(strcmp(how, "pad") == 0 ? RESIZE_PAD : RESIZE_PLAIN, iw, ih, ow, oh, want);
            n++;
        }
    fclose(f);
    assert_int_equal(n, 25);
}

static void sizes_that_cannot_be_are_refused(void **state)
{
    struct resize *r;
    int64_t n;

    (void)state;
    assert_fails(resize_create(&r, RESIZE_PLAIN, 0, 1, 1, 1), ST_INVAL, "0x1");
    assert_fails(resize_create(&r, RESIZE_PLAIN, 1, 1, 9000, 1), ST_INVAL, "9000");
    assert_fails(resize_create(&r, RESIZE_PAD, 5, 3, 1, 1), ST_INVAL, "vanishes");
    for (n = 0; n < 8; n++) {
        enum status st;

        mem_fail_after(n);
        st = resize_create(&r, RESIZE_PAD, 64, 48, 32, 32);
        mem_fail_after(-1);
        if (st == ST_OK)
            break;
        assert_int_equal(st, ST_NOMEM);
    }
    assert_int_equal(n, 7);
    resize_destroy(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(pictures_are_resized_as_pillow_does),
        leak_test(sizes_that_cannot_be_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
