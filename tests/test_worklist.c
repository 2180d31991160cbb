#include "tests/testing.h"

#include "evaluation/worklist.h"

static int64_t take(struct worklist *w)
{
    int64_t episode = -1;

    assert_ok(worklist_take(w, &episode));
    return episode;
}

static void finish(struct worklist *w, int64_t episode, enum outcome outcome, double ret)
{
    struct episode_result r = {.episode = episode, .outcome = outcome, .ret = ret};

    worklist_finish(w, &r);
}

static void assert_emits(struct worklist *w, int64_t episode)
{
    struct episode_result r;

    assert_true(worklist_emit(w, &r));
    assert_int_equal(r.episode, episode);
}

static void assert_emits_nothing(struct worklist *w)
{
    struct episode_result r;

    assert_false(worklist_emit(w, &r));
}

static void worklist_hands_out_in_order_and_emits_as_results_come(void **state)
{
    struct worklist *w;
    int64_t unused;
    int i;

    (void)state;
    assert_ok(worklist_create(&w, 4, 0));
    for (i = 0; i < 4; i++)
        assert_int_equal(take(w), i);
    assert_int_equal(worklist_take(w, &unused), ST_AGAIN);
    assert_emits_nothing(w);
    finish(w, 2, OUTCOME_DONE, 0);
    finish(w, 0, OUTCOME_DONE, 0);
    assert_emits(w, 2);
    assert_emits(w, 0);
    assert_emits_nothing(w);
    finish(w, 1, OUTCOME_SUCCESS, 0);
    assert_emits(w, 1);
    assert_emits_nothing(w);
    assert_int_equal(worklist_count(w)->successes, 1);
    assert_false(worklist_complete(w));
    finish(w, 3, OUTCOME_FAILURE, 0);
    assert_true(worklist_complete(w));
    assert_int_equal(worklist_take(w, &unused), ST_CLOSED);
    assert_emits(w, 3);
    assert_emits_nothing(w);
    assert_int_equal(worklist_count(w)->done, 4);
    assert_int_equal(worklist_count(w)->running, 0);
    worklist_destroy(w);
}

static void worklist_tries_an_error_again_before_later_episodes(void **state)
{
    struct worklist *w;
    struct episode_result r;

    (void)state;
    assert_ok(worklist_create(&w, 5, 2));
    assert_int_equal(take(w), 0);
    assert_int_equal(take(w), 1);
    finish(w, 1, OUTCOME_ERROR, 1);
    finish(w, 0, OUTCOME_ERROR, 1);
    assert_int_equal(take(w), 0);
    assert_int_equal(take(w), 1);
    assert_int_equal(take(w), 2);
    assert_int_equal(worklist_count(w)->retries, 2);
    finish(w, 0, OUTCOME_DONE, 7);
    finish(w, 1, OUTCOME_ERROR, 2);
    assert_int_equal(take(w), 1);
    finish(w, 1, OUTCOME_ERROR, 3); // the third try was the last
    assert_int_equal(take(w), 3);
    assert_int_equal(worklist_count(w)->errors, 1);
    assert_int_equal(worklist_count(w)->done, 1);
    assert_true(worklist_emit(w, &r));
    assert_true(r.outcome == OUTCOME_DONE && r.ret == 7);
    assert_true(worklist_emit(w, &r));
    assert_true(r.outcome == OUTCOME_ERROR && r.ret == 3);
    worklist_destroy(w);
}

static void worklist_give_back_costs_no_try(void **state)
{
    struct worklist *w;
    int i;

    (void)state;
    assert_ok(worklist_create(&w, 2, 0));
    for (i = 0; i < 5; i++) {
        assert_int_equal(take(w), 0);
        worklist_give_back(w, 0);
    }
    assert_int_equal(worklist_count(w)->returned, 5);
    assert_int_equal(worklist_count(w)->retries, 0);
    assert_int_equal(take(w), 0);
    finish(w, 0, OUTCOME_DONE, 0);
    assert_int_equal(take(w), 1);
    worklist_destroy(w);
}

static void worklist_leaves_out_what_is_skipped(void **state)
{
    struct worklist *w;
    int64_t unused;

    (void)state;
    assert_ok(worklist_create(&w, 5, 0));
    worklist_skip(w, 0);
    worklist_skip(w, 3);
    assert_int_equal(take(w), 1);
    assert_int_equal(take(w), 2);
    assert_int_equal(take(w), 4);
    finish(w, 4, OUTCOME_DONE, 0);
    worklist_give_back(w, 2);
    assert_int_equal(take(w), 2);
    finish(w, 2, OUTCOME_DONE, 0);
    assert_false(worklist_complete(w));
    finish(w, 1, OUTCOME_DONE, 0);
    assert_int_equal(worklist_take(w, &unused), ST_CLOSED);
    assert_emits(w, 4);
    assert_emits(w, 2);
    assert_emits(w, 1);
    assert_emits_nothing(w);
    assert_int_equal(worklist_count(w)->done, 3);
    worklist_destroy(w);
}

static void worklist_create_checks_and_survives_lack_of_memory(void **state)
{
    struct worklist *w = NULL;
    int64_t n;

    (void)state;
    assert_fails(worklist_create(&w, 0, 0), ST_INVAL, "expected 1..1000000");
    assert_fails(worklist_create(&w, WORKLIST_MAX + 1, 0), ST_INVAL, "expected 1..1000000");
    assert_fails(worklist_create(&w, 1, -1), ST_INVAL, "retries");
    for (n = 0;; n++) {
        mem_fail_after(n);
        if (worklist_create(&w, 10, 1) == ST_OK)
            break;
        assert_null(w);
        assert_int_equal(error_last()->code, ST_NOMEM);
    }
    mem_fail_after(-1);
    assert_int_equal(n, 3);
    worklist_destroy(w);
    worklist_destroy(NULL);
}

// Any interleaving of takes, errors, losses and results ends with one result an episode, in order.
static void worklist_keeps_its_promises_in_random_play(void **state)
{
    enum { N = 50 };
    uint32_t x = 12345;
    int run;

    (void)state;
    for (run = 0; run < 200; run++) {
        int64_t running[N], n_emit = 0;
        bool emitted[N] = {false};
        int n_running = 0;
        struct worklist *w;
        struct episode_result r;

        assert_ok(worklist_create(&w, N, 1));
        while (!worklist_complete(w)) {
            int what, i;

            x = x * 1664525u + 1013904223u;
            what = (int)(x >> 28);
            if (n_running < 8 && what < 8) {
                int64_t e;
                enum status st = worklist_take(w, &e);

                if (st == ST_OK) {
                    for (i = 0; i < n_running; i++)
                        assert_true(running[i] != e);
                    running[n_running++] = e;
                } else {
                    assert_int_equal(st, ST_AGAIN);
                    assert_true(n_running > 0);
                }
            } else if (n_running > 0) {
                int64_t e;

                i = (int)((x >> 8) % (unsigned)n_running);
                e = running[i];
                running[i] = running[--n_running];
                if (what == 8)
                    worklist_give_back(w, e);
                else
                    finish(w, e, what < 11 ? OUTCOME_ERROR : OUTCOME_DONE, 0);
            }
            for (; worklist_emit(w, &r); n_emit++) {
                assert_false(emitted[r.episode]);
                emitted[r.episode] = true;
            }
        }
        assert_int_equal(n_emit, N);
        assert_int_equal(n_running, 0);
        assert_int_equal(worklist_count(w)->done + worklist_count(w)->errors, N);
        worklist_destroy(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(worklist_hands_out_in_order_and_emits_as_results_come),
        leak_test(worklist_tries_an_error_again_before_later_episodes),
        leak_test(worklist_give_back_costs_no_try),
        leak_test(worklist_leaves_out_what_is_skipped),
        leak_test(worklist_create_checks_and_survives_lack_of_memory),
        leak_test(worklist_keeps_its_promises_in_random_play),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
