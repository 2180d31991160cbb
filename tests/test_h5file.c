#include "tests/testing.h"

#include "nn/h5file.h"

#include <stdio.h>
#include <unistd.h>

static char folder[] = "/tmp/simstream-h5file-XXXXXX";
static char path[64];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/a.h5", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static const float numbers[6] = {1, 2, 3, 4, 5, 6};

static void save_example(void)
{
    struct h5file *f;

    assert_ok(h5file_create(&f));
    assert_ok(h5file_put(f, "table", H5_F32, 2, 3, numbers));
    assert_ok(h5file_put_int(f, "count", -7));
    assert_ok(h5file_put_real(f, "ratio", 0.1));
    assert_ok(h5file_put_text(f, "note", "hello"));
    assert_ok(h5file_save(f, path));
    h5file_close(f);
}

static void what_was_put_is_got(void **state)
{
    struct h5file *f;
    float back[6];
    int64_t count;
    double ratio;
    char note[6];

    (void)state;
    save_example();
    assert_ok(h5file_open(&f, path));
    assert_ok(h5file_get(f, "table", H5_F32, 2, 3, back));
    assert_memory_equal(back, numbers, sizeof back);
    assert_ok(h5file_get_int(f, "count", -10, 10, &count));
    assert_int_equal(count, -7);
    assert_ok(h5file_get_real(f, "ratio", 0, 1, &ratio));
    assert_close(ratio, 0.1, 0, 0);
    assert_ok(h5file_get_text(f, "note", note, sizeof note));
    assert_string_equal(note, "hello");
    h5file_close(f);
}

static void several_files_may_be_open(void **state)
{
    struct h5file *a, *b, *c;

    (void)state;
    save_example();
    assert_ok(h5file_create(&a));
    assert_ok(h5file_open(&b, path));
    assert_ok(h5file_open(&c, path));
    h5file_close(a);
    h5file_close(b);
    h5file_close(c);
}

static void misfits_are_named_with_file_and_item(void **state)
{
    struct h5file *f;
    double wide[6];
    float back[6];
    int64_t count;
    double ratio;
    char note[5];

    (void)state;
    save_example();
    assert_ok(h5file_open(&f, path));
    assert_fails(h5file_get(f, "tables", H5_F32, 2, 3, back), ST_INVAL, "no dataset 'tables'");
    assert_fails(h5file_get(f, "table", H5_F32, 3, 2, back), ST_INVAL,
                 "a.h5': dataset 'table' is (2, 3), expected (3, 2)");
    assert_fails(h5file_get(f, "table", H5_F32, 6, 0, back), ST_INVAL, "expected (6)");
    assert_fails(h5file_get(f, "table", H5_F64, 2, 3, wide), ST_INVAL, "expected float64");
    assert_fails(h5file_get_int(f, "count", 0, 10, &count), ST_INVAL,
                 "attribute 'count' is -7, expected 0 to 10");
    assert_fails(h5file_get_int(f, "ratio", 0, 10, &count), ST_INVAL, "expected a whole number");
    assert_fails(h5file_get_real(f, "rat", 0, 1, &ratio), ST_INVAL, "no attribute 'rat'");
    assert_fails(h5file_get_text(f, "note", note, sizeof note), ST_INVAL, "attribute 'note'");
    h5file_close(f);
}

static void numbers_that_are_not_finite_are_refused(void **state)
{
    const float bad[2] = {1, NAN};
    struct h5file *f;
    float back[2];

    (void)state;
    assert_ok(h5file_create(&f));
    assert_ok(h5file_put(f, "x", H5_F32, 2, 0, bad));
    assert_ok(h5file_save(f, path));
    h5file_close(f);
    assert_ok(h5file_open(&f, path));
    assert_fails(h5file_get(f, "x", H5_F32, 2, 0, back), ST_INVAL, "not finite");
    h5file_close(f);
}

static size_t read_file(uint8_t *bytes, size_t max)
{
    FILE *in = fopen(path, "rb");
    size_t n;

    assert_non_null(in);
    n = fread(bytes, 1, max, in);
    fclose(in);
    return n;
}

static void write_file(const uint8_t *bytes, size_t n)
{
    FILE *out = fopen(path, "wb");

    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(out);
}

static void equal_contents_give_equal_files(void **state)
{
    static uint8_t a[1 << 16], b[1 << 16];
    size_t n;

    (void)state;
    save_example();
    n = read_file(a, sizeof a);
    save_example();
    assert_int_equal(read_file(b, sizeof b), n);
    assert_memory_equal(a, b, n);
}

static void a_changed_byte_anywhere_is_noticed(void **state)
{
    static uint8_t bytes[1 << 16];
    struct h5file *f;
    size_t n, i;

    (void)state;
    save_example();
    n = read_file(bytes, sizeof bytes);
    assert_true(n > 64 && n < sizeof bytes);
    for (i = 0; i < n - 16; i += 97) {
        bytes[i] ^= 0x10;
        write_file(bytes, n);
        assert_fails(h5file_open(&f, path), ST_INVAL, "damaged");
        bytes[i] ^= 0x10;
    }
}

static void short_and_foreign_files_are_refused(void **state)
{
    static uint8_t bytes[1 << 16];
    struct h5file *f;
    size_t n, cut;

    (void)state;
    save_example();
    n = read_file(bytes, sizeof bytes);
    for (cut = 0; cut < n - 16; cut += 401) {
        write_file(bytes, cut);
        assert_fails(h5file_open(&f, path), ST_INVAL, "a.h5' is not a readable HDF5 file");
    }
    write_file((const uint8_t *)"{\"a\": 1}", 8);
    assert_fails(h5file_open(&f, path), ST_INVAL, "is not a readable HDF5 file");
    unlink(path);
    assert_fails(h5file_open(&f, path), ST_MISSING, "a.h5");
    assert_fails(h5file_open(&f, folder), ST_INVAL, "is not a file");
    // without its checksum, as other programs write it, the file is fine
    write_file(bytes, n - 16);
    assert_ok(h5file_open(&f, path));
    h5file_close(f);
}

static void groups_types_and_texts_come_back(void **state)
{
    static const uint8_t bytes[3] = {0, 7, 255};
    static const double reals[2] = {0.5, -1};
    static char big[70000], back[70000];
    struct h5file *f;
    double got[2];
    uint8_t small[3];
    int64_t rows, cols, one;

    (void)state;
    memset(big, 'x', sizeof big - 1);
    assert_ok(h5file_stream(&f, path));
    assert_ok(h5file_put(f, "a/b/bytes", H5_U8, 3, 0, bytes));
    assert_ok(h5file_put(f, "a/table", H5_F32, 2, 3, numbers));
    assert_ok(h5file_at(f, "a/b"));
    assert_ok(h5file_put_reals(f, "reals", 2, reals));
    assert_ok(h5file_put_flag(f, "flag", true));
    assert_ok(h5file_put_long_text(f, "big", big));
    assert_fails(h5file_put_flag(f, "flag", true), ST_IO, "attribute 'flag' of 'a/b'");
    assert_fails(h5file_put(f, "a/table", H5_F32, 2, 3, numbers), ST_IO, "dataset 'a/table'");
    assert_ok(h5file_at(f, "/"));
    assert_ok(h5file_put_int(f, "count", 4));
    assert_ok(h5file_put_labels(f, "names", "ab\0cde", 2, 3));
    assert_ok(h5file_put_labels(f, "none", NULL, 0, 3));
    assert_ok(h5file_finish(f));
    h5file_close(f);
    assert_ok(h5file_open_large(&f, path));
    assert_ok(h5file_get(f, "a/b/bytes", H5_U8, 3, 0, small));
    assert_memory_equal(small, bytes, 3);
    assert_ok(h5file_shape(f, "a/table", &rows, &cols));
    assert_true(rows == 2 && cols == 3);
    assert_ok(h5file_shape(f, "none", &rows, &cols));
    assert_true(rows == 0 && cols == 0);
    assert_true(h5file_has_attr(f, "count") && !h5file_has_attr(f, "flag"));
    assert_ok(h5file_at(f, "a/b"));
    assert_ok(h5file_get_int(f, "flag", 0, 1, &one));
    assert_int_equal(one, 1);
    assert_ok(h5file_get_reals(f, "reals", 2, got));
    assert_memory_equal(got, reals, sizeof got);
    assert_fails(h5file_get_reals(f, "reals", 3, got), ST_INVAL, "'reals' of 'a/b' has 2 items");
    assert_fails(h5file_get_reals(f, "rails", 3, got), ST_INVAL, "no attribute 'rails' of 'a/b'");
    assert_ok(h5file_get_text(f, "big", back, sizeof back));
    assert_string_equal(back, big);
    assert_fails(h5file_get_text(f, "big", back, 100), ST_INVAL, "100 bytes or more");
    assert_fails(h5file_at(f, "a/c"), ST_INVAL, "no group 'a/c'");
    h5file_close(f);
}

static enum status note_name(void *arg, const char *name)
{
    snprintf((char *)arg + strlen(arg), 20, "%s", name);
    return strcmp(name, "stop") == 0 ? FAIL(ST_INVAL, "stop") : ST_OK;
}

static void demonstrations_are_read_in_parts(void **state)
{
    static const double reals[4] = {0.5, -1, 1e-3, 7};
    static const uint8_t frames[3][2][2][3] = {{{{1, 2, 3}, {4}}}, {{{5}}}, {{{6}}, {{7, 8}}}};
    uint8_t got[2][2][2][3];
    char names[64] = "";
    int64_t sizes[4];
    struct h5file *f;
    float x[4];

    (void)state;
    assert_ok(h5file_stream(&f, path));
    assert_ok(h5file_put(f, "g/reals", H5_F64, 2, 2, reals));
    assert_ok(h5file_put(f, "g/ints", H5_U8, 2, 0, frames));
    assert_ok(h5file_put_frames(f, "g/stop/frames", H5_U8, 3, 2, 2, 3, frames));
    assert_ok(h5file_put(f, "g/unseen", H5_U8, 2, 0, frames));
    assert_ok(h5file_finish(f));
    h5file_close(f);
    assert_ok(h5file_open_large(&f, path));
    assert_ok(h5file_get_floats(f, "g/reals", 2, 2, x));
    for (int i = 0; i < 4; i++)
        assert_true(x[i] == (float)reals[i]);
    assert_fails(h5file_get_floats(f, "g/ints", 2, 0, x), ST_INVAL, "expected float32 or float64");
    assert_fails(h5file_get_floats(f, "g/reals", 4, 1, x), ST_INVAL, "is (2, 2), expected (4, 1)");
    assert_fails(h5file_get_floats(f, "g/none", 4, 1, x), ST_INVAL, "no dataset 'g/none'");
    assert_fails(h5file_frames_shape(f, "g/ints", sizes), ST_INVAL, "no array of uint8 pictures");
    assert_ok(h5file_frames_shape(f, "g/stop/frames", sizes));
    assert_true(sizes[0] == 3 && sizes[1] == 2 && sizes[2] == 2 && sizes[3] == 3);
    assert_ok(h5file_get_frames(f, "g/stop/frames", sizes, 1, 2, got[0][0][0]));
    assert_memory_equal(got, frames[1], sizeof got);
    assert_fails(h5file_get_frames(f, "g/stop/frames", sizes, 2, 2, got[0][0][0]), ST_INVAL,
                 "no pictures 2 to 3");
    assert_true(h5file_has(f, "g/stop/frames") && h5file_has(f, "g/stop"));
    assert_true(!h5file_has(f, "g/none") && !h5file_has(f, "none/frames"));
    assert_fails(h5file_each(f, "g", note_name, names), ST_INVAL, "stop");
    assert_string_equal(names, "intsrealsstop");
    assert_fails(h5file_each(f, "h", note_name, names), ST_INVAL, "no group 'h'");
    h5file_close(f);
}

static void out_of_memory_is_reported(void **state)
{
    struct h5file *f = NULL;
    int n;

    (void)state;
    save_example();
    for (n = 0;; n++) {
        enum status st;

        mem_fail_after(n);
        st = h5file_open(&f, path);
        mem_fail_after(-1);
        if (st == ST_OK)
            break;
        assert_int_equal(st, ST_NOMEM);
        assert_null(f);
    }
    assert_true(n > 0);
    h5file_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(what_was_put_is_got),
        leak_test(several_files_may_be_open),
        leak_test(misfits_are_named_with_file_and_item),
        leak_test(numbers_that_are_not_finite_are_refused),
        leak_test(equal_contents_give_equal_files),
        leak_test(a_changed_byte_anywhere_is_noticed),
        leak_test(short_and_foreign_files_are_refused),
        leak_test(groups_types_and_texts_come_back),
        leak_test(demonstrations_are_read_in_parts),
        leak_test(out_of_memory_is_reported),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
