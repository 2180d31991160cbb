// The table of fields says where the numbers of a row are.
#include "common/wire/fields.h"

#include "tests/wire_samples.h"

static const struct field *find(const struct fields *f, const char *name)
{
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->field[i].name, name) == 0)
            return &f->field[i];
    fail_msg("no field %s", name);
    return NULL;
}

// A number of a real batch, found by its name alone.
static double number(const struct msg *m, const struct fields *f, const char *name, int row, int k)
{
    const struct batch_head *head = (const void *)m->data;
    const struct field *field = find(f, name);
    double v;

    assert_int_equal(field->type, FIELD_F64);
    memcpy(&v, m->data + sizeof *head + (size_t)row * head->stride + field->offset + (size_t)k * 8,
           sizeof v);
    return v;
}

static void fields_find_the_numbers_of_a_batch(void **state)
{
    struct msg *m = sample_batch(AUTORESET_SAME_STEP, 3);
    struct spec spec = sample_spec();
    struct fields f;

    (void)state;
    fields_make(&f, &spec, SAMPLE_K, AUTORESET_SAME_STEP);
    assert_true(number(m, &f, "batch.reward", 2, 2) == 0.5);
    assert_true(number(m, &f, "batch.obs", 1, 3) == 1 + 0.1 * 3);
    assert_true(number(m, &f, "batch.episode_return", 2, 0) == 3);
    assert_int_equal(
        find(&f, "batch.info.reward_parts")->offset - find(&f, "batch.info.x_position")->offset, 8);
    assert_int_equal(find(&f, "step.action")->shape[0], SAMPLE_K);
    assert_int_equal(find(&f, "step.action")->shape[1], SAMPLE_ACT);
    assert_int_equal(find(&f, "step.action")->type, FIELD_F32);
    assert_int_equal(find(&f, "batch.final_info.reward_parts")->shape[1], 2);
    fields_make(&f, &spec, SAMPLE_K, AUTORESET_DISABLED);
    for (int i = 0; i < f.n; i++)
        assert_null(strstr(f.field[i].name, "final"));
    msg_free(m);
}

static void another_layout_is_refused(void **state)
{
    struct spec spec = sample_spec();
    struct fields f, other;
    struct reader r;
    struct msg *m;

    (void)state;
    fields_make(&f, &spec, SAMPLE_K, AUTORESET_SAME_STEP);
    fields_make(&other, &spec, SAMPLE_K + 1, AUTORESET_SAME_STEP);
    assert_ok(msg_new(&m, 0, 0));
    assert_ok(fields_write(m, &f));
    r = reader_make(m);
    assert_ok(fields_check(&r, &f));
    assert_ok(reader_end(&r, true, "all"));
    r = reader_make(m);
    assert_fails(fields_check(&r, &other), ST_PROTO, "'step.action'");
    fields_make(&other, &spec, SAMPLE_K, AUTORESET_DISABLED);
    r = reader_make(m);
    assert_fails(fields_check(&r, &other), ST_PROTO, "fields, expected");
    for (size_t cut = 0; cut < m->len; cut++) {
        struct msg part = exact_copy(m, cut);

        r = reader_make(&part);
        assert_int_equal(fields_check(&r, &f), ST_PROTO);
        free(part.data);
    }
    msg_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wire_test(fields_find_the_numbers_of_a_batch),
        wire_test(another_layout_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
