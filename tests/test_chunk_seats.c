#include "evaluation/chunk_seats.h"

#include "common/base/rng.h"
#include "tests/testing.h"

#include <stdio.h>
#include <string.h>

#define OBS    5
#define ACT    2
#define CHUNK  3
#define SIDE   16
#define BYTES  (SIDE * SIDE * 3)
#define PLAYED 11 // steps of an episode

static void make_spec(struct spec *spec)
{
    struct spec_picture p = {.camera = "any", .width = SIDE, .height = SIDE, .orient = 1};

    memset(spec, 0, sizeof *spec);
    snprintf(spec->task, sizeof spec->task, "Any-v1");
    spec->n_act = ACT;
    spec->n_obs = OBS;
    for (const char *name = "abc"; *name; name++) {
        snprintf(p.name, sizeof p.name, "%c_image", *name);
        assert_ok(spec_add_picture(spec, &p));
    }
}

// Of `n_act` numbers; it sees these pictures, with commas between, "" = none.
static struct weights *perceptron(int n_act, const char *pictures, int n_picture)
{
    struct model_shape shape;
    struct weights *w;

    assert_ok(model_shape_parse(&shape, OBS, n_act, "8"));
    if (n_picture > 0) {
        shape.vision =
            (struct model_vision){.width = SIDE, .height = SIDE, .stack = n_picture, .state = true};
        assert_ok(model_conv_parse(&shape.vision, "4x4/2"));
    }
    assert_ok(weights_create(&w, &shape));
    assert_ok(model_init(&shape, 3, -0.5, w->params));
    snprintf(w->picture, sizeof w->picture, "%s", pictures);
    return w;
}

// Two envs, of which the first is a step behind; every chunk is what the policy says by itself of
// the row that it was asked for.
static void play(const struct weights *w, const struct spec *spec, const int *seen, int n_seen,
                 int execute)
{
    static uint8_t blocks[2][3 * BYTES];
    struct rng r = rng_make(4, RNG_TEST, 0, 0, 0);
    const int every = execute ? execute : CHUNK;
    float chunk[2][CHUNK * ACT], got[2][ACT];
    struct chunk_seats *s;
    struct policy *p;

    assert_ok(policy_create_of(&p, w, 1));
    assert_ok(chunk_seats_create(&s, w, spec, 2, execute));
    for (int t = 0; t < 2 * PLAYED; t++) {
        struct chunk_seat_row row[2];
        double obs[2][OBS];
        int n = 0;

        for (int e = t == 0; e < 2; e++, n++) {
            const uint8_t *pictures[3];

            for (int k = 0; k < OBS; k++)
                obs[e][k] = rng_uniform(&r, -1, 1);
            for (int k = 0; k < 3 * BYTES; k++)
                blocks[e][k] = (uint8_t)rng_u32(&r);
            row[n] = (struct chunk_seat_row){
                .env = e,
                .row = {.obs = obs[e], .seed = 7, .step = (uint64_t)((t + e - 1) % PLAYED)},
                .block = blocks[e]};
            if (row[n].row.step % (uint64_t)every == 0) {
                struct policy_row alone = row[n].row;

                for (int k = 0; k < n_seen; k++)
                    pictures[k] = blocks[e] + spec->pictures[seen[k]].offset;
                alone.pictures = n_seen > 0 ? pictures : NULL;
                assert_ok(policy_act(p, w, &alone, 1, false, chunk[e], NULL));
            }
        }
        assert_ok(chunk_seats_act(s, w, row, n, false, got[0]));
        for (int i = 0; i < n; i++) {
            int at = (int)(row[i].row.step % (uint64_t)every) * ACT;

            assert_memory_equal(got[i], chunk[row[i].env] + at, sizeof got[i]);
        }
    }
    chunk_seats_destroy(s);
    policy_destroy(p);
}

static void perceptrons_give_chunks(void **state)
{
    struct weights *blind = perceptron(CHUNK * ACT, "", 0);
    struct weights *seeing = perceptron(CHUNK * ACT, "c_image,a_image", 2);
    struct spec spec;

    (void)state;
    make_spec(&spec);
    for (int execute = 0; execute <= CHUNK; execute++) {
        play(blind, &spec, NULL, 0, execute);
        play(seeing, &spec, (const int[]){2, 0}, 2, execute);
    }
    weights_drop(blind);
    weights_drop(seeing);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct weights *one = perceptron(ACT, "", 0), *odd = perceptron(CHUNK * ACT + 1, "", 0);
    struct weights *chunk = perceptron(CHUNK * ACT, "", 0);
    struct weights *other = perceptron(CHUNK * ACT, "c_image,d_image", 2);
    struct weights *fewer = perceptron(CHUNK * ACT, "c_image", 2);
    struct weights *more = perceptron(CHUNK * ACT, "c_image,a_image,b_image", 2);
    struct chunk_seats *s;
    struct spec spec;

    (void)state;
    make_spec(&spec);
    assert_true(!chunk_seats_wanted(one, &spec) && !chunk_seats_wanted(odd, &spec));
    assert_true(chunk_seats_wanted(chunk, &spec));
    assert_fails(chunk_seats_create(&s, chunk, &spec, 2, CHUNK + 1), ST_INVAL,
                 "the policy's have 3");
    assert_fails(chunk_seats_create(&s, other, &spec, 2, 0), ST_INVAL, "'d_image'");
    assert_fails(chunk_seats_create(&s, fewer, &spec, 2, 0), ST_INVAL, "sees 2 pictures");
    assert_fails(chunk_seats_create(&s, more, &spec, 2, 0), ST_INVAL, "sees 2 pictures");
    spec.pictures[2].width = 2 * SIDE;
    assert_fails(chunk_seats_create(&s, other, &spec, 2, 0), ST_INVAL, "draws it in 32 by 16");
    weights_drop(one);
    weights_drop(odd);
    weights_drop(chunk);
    weights_drop(other);
    weights_drop(fewer);
    weights_drop(more);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(perceptrons_give_chunks),
        leak_test(what_does_not_fit_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
