// rl_testing.h - default options of an update from whole episodes, for its tests.
#ifndef TESTS_RL_TESTING_H
#define TESTS_RL_TESTING_H

#include "tests/testing.h"

#include "learner/rl_update.h"

// With one step a window and a constant learning rate.
static inline struct update_config update_defaults(double lr)
{
    struct holder {
        struct update_config u;
    } h;
    static const struct opt table[] = {UPDATE_OPTS(struct holder, u), {0}};

    assert_ok(opts_defaults(table, &h));
    h.u.lr = h.u.lr_final = lr;
    h.u.epochs = h.u.minibatches = 1;
    return h.u;
}

// Without warm-up.
static inline struct rl_config rl_defaults(void)
{
    struct holder {
        struct rl_config r;
    };
    static struct holder h;
    static const struct opt table[] = {RL_OPTS(struct holder, r), {0}};

    assert_ok(opts_defaults(table, &h));
    h.r.warmup = 0;
    return h.r;
}

#endif
