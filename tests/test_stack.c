// Which pictures each observation of a chunk is seen with, against a worker's frame stack that is
// pushed step by step.
#include "tests/testing.h"

#include "common/base/rng.h"
#include "learner/stack.h"
#include "nn/model.h"
#include "rollout/framestack.h"

#define STEPS 12

// A picture of one byte, its number.
static void push(struct framestack *f, uint8_t picture, bool first)
{
    uint8_t block[8] = {0, 0, 0, 0, picture};

    framestack_push(f, 1, block, first);
}

// Random ends of episodes; what a worker saw is written down and what a learner makes of the chunk
// is compared.
static void check(struct rng *r, int stack)
{
    const struct spec_picture picture = {.offset = 4, .bytes = 1};
    static const uint32_t kinds[] = {CHUNK_TERMINATED, CHUNK_TRUNCATED, CHUNK_ERROR, CHUNK_SKIP};
    uint8_t pictures[8 + 2 * STEPS + 1], seen[2 * STEPS + 1][MODEL_STACK_MAX], next = 1,
                                                                               final = 200;
    uint32_t numbers[(2 * STEPS + 1) * MODEL_STACK_MAX], flags[STEPS], n_truncated = 0;
    struct framestack f;
    struct chunk c = {.head = {.n_step = STEPS, .n_lead = (uint32_t)stack - 1, .picture_bytes = 1},
                      .flags = flags,
                      .pictures = pictures};
    int t, k, row;

    assert_ok(framestack_init(&f, &picture, 2, stack));
    push(&f, next++, true);
    for (t = (int)rng_below(r, 4); t > 0; t--) // the episode began before the chunk
        push(&f, next++, false);
    for (k = 0; k < stack; k++)
        pictures[k] = framestack_at(&f, 1)[k][0];
    for (t = 0; t <= STEPS; t++) {
        uint32_t end = rng_below(r, 4) == 0 ? kinds[rng_below(r, 4)] : 0;

        pictures[stack - 1 + t] = framestack_newest(&f, 1)[0];
        for (k = 0; k < stack; k++)
            seen[t][k] = framestack_at(&f, 1)[k][0];
        if (t == STEPS)
            break;
        flags[t] = end;
        if (end & CHUNK_TRUNCATED) {
            row = STEPS + 1 + (int)n_truncated;
            for (k = 0; k + 1 < stack; k++)
                seen[row][k] = framestack_at(&f, 1)[k + 1][0];
            seen[row][stack - 1] = pictures[stack - 1 + STEPS + 1 + n_truncated++] = final++;
        }
        push(&f, next++, end != 0);
    }
    c.head.n_truncated = n_truncated;
    stack_pictures(&c, stack, numbers);
    for (row = 0; row < STEPS + 1 + (int)n_truncated; row++)
        for (k = 0; k < stack; k++)
            assert_int_equal(pictures[numbers[row * stack + k]], seen[row][k]);
    framestack_fini(&f);
}

static void the_learner_sees_what_the_worker_saw(void **state)
{
    struct rng r = rng_make(8, RNG_TEST, 0, 0, 0);

    (void)state;
    for (int i = 0; i < 2000; i++)
        check(&r, 1 + i % MODEL_STACK_MAX);
}

static void without_vision_nothing_is_stacked(void **state)
{
    struct framestack f = {0};

    (void)state;
    framestack_push(&f, 3, NULL, true);
    assert_null(framestack_at(&f, 3));
    assert_null(framestack_newest(&f, 3));
    framestack_fini(&f);
}

static void the_picture_is_found_or_named(void **state)
{
    struct spec spec = {.task = "Ant-v5"};
    const struct spec_picture *p;

    (void)state;
    assert_fails(framestack_choose(&spec, "", &p), ST_INVAL, "Ant-v5 has the pictures: none");
    spec.n_picture = 2;
    spec.pictures[0] = (struct spec_picture){
        .name = "track_depth", .plane = SPEC_DEPTH, .width = 64, .height = 64};
    spec.pictures[1] =
        (struct spec_picture){.name = "track_image", .plane = SPEC_RGB, .width = 64, .height = 64};
    assert_ok(framestack_choose(&spec, "", &p));
    assert_string_equal(p->name, "track_image");
    assert_ok(framestack_choose(&spec, "track_image", &p));
    assert_fails(framestack_choose(&spec, "track_depth", &p), ST_INVAL, "track_image 64x64");
    assert_fails(framestack_choose(&spec, "agentview_image", &p), ST_INVAL, "'agentview_image'");
}

static void servers_are_the_same_if_their_pictures_are(void **state)
{
    struct spec a = {.n_picture = 1}, b;

    (void)state;
    a.pictures[0] = (struct spec_picture){.name = "track_image", .width = 64, .height = 64};
    b = a;
    assert_true(framestack_same(&a, &b));
    b.pictures[0].orient = 1;
    assert_false(framestack_same(&a, &b));
    b = a;
    b.pictures[0].width = 32;
    assert_false(framestack_same(&a, &b));
    b = a;
    b.pictures[0].name[0] = 'b';
    assert_false(framestack_same(&a, &b));
    b = a;
    b.n_picture = 2;
    assert_false(framestack_same(&a, &b) || framestack_same(&b, &a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(the_learner_sees_what_the_worker_saw),
        leak_test(without_vision_nothing_is_stacked),
        leak_test(the_picture_is_found_or_named),
        leak_test(servers_are_the_same_if_their_pictures_are),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
