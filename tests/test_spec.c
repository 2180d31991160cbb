#include "common/wire/spec.h"

#include "tests/wire_samples.h"

#include <limits.h>
#include <stdio.h>

static enum status round_trip(const struct spec *in, struct spec *out)
{
    struct msg *m = NULL;
    struct reader r;
    enum status st;

    assert_ok(msg_new(&m, MSG_WELCOME, 0));
    st = spec_write(m, in);
    if (st == ST_OK) {
        r = reader_make(m);
        assert_ok(spec_read(&r, out));
        assert_ok(reader_end(&r, true, "spec"));
    }
    msg_free(m);
    return st;
}

static void a_spec_comes_back_the_same(void **state)
{
    struct spec in = sample_spec(), out;

    (void)state;
    memset(&out, 0xff, sizeof out);
    assert_ok(round_trip(&in, &out));
    assert_memory_equal(&in, &out, sizeof in);
}

static void the_largest_spec_fits(void **state)
{
    struct spec in = sample_spec(), out;

    (void)state;
    memset(in.task, 'a', SPEC_NAME_MAX - 1);
    in.task[SPEC_NAME_MAX - 1] = '\0';
    in.n_obs = SPEC_OBS_MAX;
    in.n_act = SPEC_ACT_MAX;
    in.n_info_key = SPEC_INFO_MAX;
    in.n_info = 0;
    memset(in.info, 0, sizeof in.info);
    for (int i = 0; i < SPEC_INFO_MAX; i++) {
        snprintf(in.info[i].name, sizeof in.info[i].name, "key_%d", i);
        in.info[i].n = i + 1;
        in.n_info += i + 1;
    }
    memset(in.fields, 0, sizeof in.fields);
    in.n_field = SPEC_FIELD_MAX;
    for (int i = 0; i < SPEC_FIELD_MAX; i++) {
        snprintf(in.fields[i].name, sizeof in.fields[i].name, "field_%d", i);
        in.fields[i].offset = i;
        in.fields[i].n = i + 1 < SPEC_FIELD_MAX ? 1 : SPEC_OBS_MAX - i;
    }
    for (int i = 0; i < SPEC_ACT_MAX; i++) {
        in.act_low[i] = -INFINITY;
        in.act_high[i] = INFINITY;
    }
    in.max_episode_steps = INT64_MAX;
    in.n_env = SPEC_ENV_MAX;
    assert_ok(round_trip(&in, &out));
    assert_memory_equal(&in, &out, sizeof in);
}

// What each broken field costs a writer; the reader has the same rules.
static void broken_specs_are_named(void **state)
{
    struct spec s, out;

#define REFUSED(change, part)                                 \
    do {                                                      \
        s = sample_spec();                                    \
        change;                                               \
        assert_fails(round_trip(&s, &out), ST_INVAL, (part)); \
    } while (0)
    (void)state;
    REFUSED(s.task[0] = '\0', "the task has 0 characters");
    REFUSED(memset(s.task, 'x', sizeof s.task), "the task has 64 characters");
    REFUSED(s.task[1] = '\n', "the task holds a control character");
    REFUSED(s.engine[0] = '\x1b', "the engine holds a control character");
    REFUSED(s.instruction[0] = '\0', "the instruction has 0 characters");
    REFUSED(s.n_field = SPEC_FIELD_MAX + 1, "n_field");
    REFUSED(s.n_field = 1, "its fields have 2");
    REFUSED(s.fields[1].offset = 1, "field 'velocity' starts at 1, the ones before end at 2");
    REFUSED(s.fields[0].n = 0, "size of a field");
    REFUSED(s.fields[1].name[0] = '\0', "a field name");
    REFUSED(s.n_picture = SPEC_PICTURE_MAX + 1, "n_picture");
    REFUSED(s.pictures[0].name[0] = '\0', "a picture's name");
    REFUSED(s.pictures[1].camera[0] = '\n', "a picture's camera");
    REFUSED(s.pictures[1] = s.pictures[0], "two pictures are called 'agentview_image'");
    REFUSED(s.pictures[0].plane = 3, "the plane of a picture");
    REFUSED(s.pictures[0].width = 0, "the width of a picture");
    REFUSED(s.pictures[0].height = 4097, "the height of a picture");
    REFUSED(s.pictures[0].orient = 3, "the orientation of a picture");
    REFUSED(s.pictures[0].bytes = 44, "has 44 bytes at 0, expected 45 at 0");
    REFUSED(s.pictures[1].offset = 45, "has 60 bytes at 45, expected 60 at 48");
    REFUSED(s.pictures[0].width = s.pictures[0].height = 4096;
            s.pictures[0].bytes = s.pictures[1].offset = 3 << 24; s.pictures[1].width = 4096;
            s.pictures[1].height = 1100;
            s.pictures[1].bytes = 4096 * 1100 * 4, "bytes of the pictures of an observation");
    REFUSED(s.picture_bytes = 105, "picture_bytes is 105, expected 112");
    REFUSED(s.n_obs = 0, "n_obs is 0, expected 1 to 1048576");
    REFUSED(s.n_obs = SPEC_OBS_MAX + 1, "n_obs");
    REFUSED(s.n_act = 0, "n_act is 0, expected 1 to 64");
    REFUSED(s.n_act = 65, "n_act");
    REFUSED(s.n_act = -1, "n_act");
    REFUSED(s.n_info = 4, "n_info is 4, its parts have 3");
    REFUSED(s.n_info = -3, "n_info");
    REFUSED(s.n_info_key = 17, "n_info_key");
    REFUSED(s.info[1].n = 0, "size of an info");
    REFUSED(s.info[1].n = INT_MAX, "size of an info");
    REFUSED(s.info[0].name[0] = '\0', "info name");
    REFUSED(s.act_low[1] = 2, "action 1 has the bounds 2 to 0.4");
    REFUSED(s.act_high[0] = NAN, "action 0");
    REFUSED(s.max_episode_steps = -1, "max_episode_steps");
    REFUSED(s.dt_s = 0, "dt_s");
    REFUSED(s.dt_s = NAN, "dt_s");
    REFUSED(s.dt_s = INFINITY, "dt_s");
    REFUSED(s.n_env = 0, "n_env");
    REFUSED(s.n_env = SPEC_ENV_MAX + 1, "n_env");
#undef REFUSED
}

static enum status read_part(const struct msg *m)
{
    struct reader r = reader_make(m);
    struct spec out;
    enum status st = spec_read(&r, &out);

    return st == ST_OK ? reader_end(&r, true, "spec") : st;
}

static void every_broken_byte_is_refused_or_harmless(void **state)
{
    struct spec in = sample_spec();
    struct msg *m = NULL;
    int refused = 0;

    (void)state;
    assert_ok(msg_new(&m, MSG_WELCOME, 0));
    assert_ok(spec_write(m, &in));
    for (size_t cut = 0; cut < m->len; cut++) {
        struct msg part = exact_copy(m, cut);

        assert_int_equal(read_part(&part), ST_PROTO);
        free(part.data);
    }
    for (size_t i = 0; i < m->len; i++) {
        struct msg part = exact_copy(m, m->len);
        struct reader r;
        struct spec out;

        part.data[i] ^= 0x80;
        r = reader_make(&part);
        if (spec_read(&r, &out) == ST_OK) {
            struct spec again;

            assert_ok(round_trip(&out, &again)); // what is accepted fits the writer's rules
        } else {
            refused++;
        }
        free(part.data);
    }
    assert_true(refused > 50);
    msg_free(m);
}

static void parts_of_a_row_follow_each_other(void **state)
{
    struct spec s = sample_spec();
    struct row_layout l;
    uint32_t head = sizeof(struct row_head);

    (void)state;
    row_layout_make(&l, &s, SAMPLE_K, AUTORESET_NEXT_STEP);
    assert_int_equal(l.k_max, SAMPLE_K);
    assert_int_equal(l.reward, head);
    assert_int_equal(l.obs, head + 8 * SAMPLE_K);
    assert_int_equal(l.info, l.obs + 8 * SAMPLE_OBS);
    assert_int_equal(l.final_obs, 0);
    assert_int_equal(l.final_info, 0);
    assert_int_equal(l.pictures, l.info + 8 * 3);
    assert_int_equal(l.final_pictures, 0);
    assert_int_equal(l.stride, l.pictures + 112);
    row_layout_make(&l, &s, 1, AUTORESET_SAME_STEP);
    assert_int_equal(l.obs, head + 8);
    assert_int_equal(l.final_obs, l.info + 8 * 3);
    assert_int_equal(l.final_info, l.final_obs + 8 * SAMPLE_OBS);
    assert_int_equal(l.pictures, l.final_info + 8 * 3);
    assert_int_equal(l.final_pictures, l.pictures + 112);
    assert_int_equal(l.stride, l.final_pictures + 112);
    spec_skip_pictures(&s, 1);
    row_layout_make(&l, &s, 1, AUTORESET_SAME_STEP);
    assert_int_equal(l.stride, l.pictures + 2 * 64);
    spec_skip_pictures(&s, 1);
    s.n_info = s.n_info_key = 0;
    row_layout_make(&l, &s, 1, AUTORESET_SAME_STEP);
    assert_int_equal(l.info, 0);
    assert_int_equal(l.final_info, 0);
    assert_int_equal(l.final_obs, l.obs + 8 * SAMPLE_OBS);
    assert_int_equal(l.stride, l.final_obs + 8 * SAMPLE_OBS);
    row_layout_make(&l, &s, 1, AUTORESET_DISABLED);
    assert_int_equal(l.stride, l.obs + 8 * SAMPLE_OBS);
    s.n_obs = s.n_info = SPEC_OBS_MAX;
    row_layout_make(&l, &s, SPEC_CHUNK_MAX, AUTORESET_SAME_STEP);
    assert_int_equal(l.stride, head + 8 * SPEC_CHUNK_MAX + 4 * 8 * SPEC_OBS_MAX); // no overflow
}

static void pictures_are_placed_one_after_the_other(void **state)
{
    struct spec s = {0};
    struct spec_picture p = {"a_image", "a", SPEC_RGB, 3, 3, 1, 99, 99};
    char text[64];

    (void)state;
    assert_string_equal(spec_picture_list(&s, text, sizeof text), "none");
    assert_ok(spec_add_picture(&s, &p));
    assert_fails(spec_add_picture(&s, &p), ST_INVAL, "two pictures are called 'a_image'");
    p = (struct spec_picture){"a_depth", "a", SPEC_DEPTH, 3, 3, 1, 0, 0};
    assert_ok(spec_add_picture(&s, &p));
    p = (struct spec_picture){"a_segmentation", "a", SPEC_SEG, 3, 3, 1, 0, 0};
    assert_ok(spec_add_picture(&s, &p));
    assert_int_equal(s.pictures[0].offset, 0);
    assert_int_equal(s.pictures[0].bytes, 27);
    assert_int_equal(s.pictures[1].offset, 32);
    assert_int_equal(s.pictures[1].bytes, 36);
    assert_int_equal(s.pictures[2].offset, 72);
    assert_int_equal(s.pictures[2].bytes, 72);
    assert_int_equal(s.picture_bytes, 144);
    assert_string_equal(spec_picture_list(&s, text, sizeof text),
                        "a_image 3x3 rgb, a_depth 3x3 depth, a_segmentation 3x3 seg");
    assert_int_equal(strlen(spec_picture_list(&s, text, 10)), 9);
    spec_skip_pictures(&s, 2);
    assert_int_equal(s.n_picture, 2);
    assert_int_equal(s.pictures[1].offset, 32);
    assert_int_equal(s.picture_bytes, 104);
    assert_null(spec_picture_find(&s, "a_depth"));
    assert_ptr_equal(spec_picture_find(&s, "a_segmentation"), &s.pictures[1]);
    p = (struct spec_picture){"big_depth", "big", SPEC_DEPTH, 4096, 4096, 1, 0, 0};
    assert_fails(spec_add_picture(&s, &p), ST_INVAL, "more than 64 MiB");
    p.width = 5000;
    assert_fails(spec_add_picture(&s, &p), ST_INVAL, "width");
    p = (struct spec_picture){"", "c", SPEC_RGB, 1, 1, 1, 0, 0};
    while (s.n_picture < SPEC_PICTURE_MAX) {
        snprintf(p.name, sizeof p.name, "c%d", s.n_picture);
        assert_ok(spec_add_picture(&s, &p));
    }
    p.name[0] = 'd';
    assert_fails(spec_add_picture(&s, &p), ST_INVAL, "more than 16 pictures");
}

static void error_names_are_words(void **state)
{
    (void)state;
    for (int e = ROW_ERROR_NONE; e <= ROW_ERROR_LAST; e++)
        assert_string_not_equal(row_error_name((enum row_error)e), "unknown");
    assert_string_equal(row_error_name((enum row_error)99), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wire_test(a_spec_comes_back_the_same),
        wire_test(the_largest_spec_fits),
        wire_test(broken_specs_are_named),
        wire_test(every_broken_byte_is_refused_or_harmless),
        wire_test(parts_of_a_row_follow_each_other),
        wire_test(pictures_are_placed_one_after_the_other),
        wire_test(error_names_are_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
