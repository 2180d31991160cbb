#include "evaluation/policy_client.h"

#include "evaluation/chunk.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void policy_client_init(struct policy_client *c, const struct policy_ops *ops, const char *url,
                        const struct policy_options *options, const char *key,
                        const atomic_bool *stop)
{
    memset(c, 0, sizeof *c);
    c->ops = ops;
    c->options = options;
    c->key = key;
    c->stop = stop;
    snprintf(c->url, sizeof c->url, "%s", url);
    pack_init(&c->pack);
}

void policy_client_fini(struct policy_client *c)
{
    c->ops->close(c);
    pack_fini(&c->pack);
}

enum status policy_take_floats(struct policy_chunk *out, const struct tensor_floats *f, int at,
                               int *width)
{
    const uint32_t *shape = f->shape;
    int n_dim = f->n_dim, n, i;

    while (n_dim > 2 && shape[0] == 1) { // a batch of one
        shape++;
        n_dim--;
    }
    if (n_dim > 2 || f->n == 0)
        return FAIL(ST_INVAL, "the policy's actions have %d dimensions, expected (steps, numbers)",
                    n_dim);
    n = n_dim == 2 ? (int)shape[0] : 1;
    *width = n_dim == 0 ? 1 : (int)shape[n_dim - 1];
    if (n > CHUNK_STEPS_MAX)
        return FAIL(ST_INVAL, "the policy gave a chunk of %d actions, at most %d are expected", n,
                    CHUNK_STEPS_MAX);
    if (at > 0 && n != out->n)
        return FAIL(ST_INVAL, "the parts of the policy's actions have %d and %d steps", out->n, n);
    if (at + *width > out->n_act)
        return FAIL(ST_INVAL, "the policy's actions have %d numbers or more, the task takes %d",
                    at + *width, out->n_act);
    for (i = 0; i < n; i++)
        memcpy(out->actions + (size_t)i * (size_t)out->n_act + at,
               f->v + (size_t)i * (size_t)*width, (size_t)*width * sizeof(float));
    out->n = n;
    return ST_OK;
}

enum status policy_check_actions(const struct policy_client *c, const struct policy_chunk *out,
                                 int columns)
{
    int64_t want = c->options->horizon;
    int i;

    if (columns != out->n_act)
        return FAIL(ST_INVAL, "the policy's actions have %d numbers, the task takes %d", columns,
                    out->n_act);
    if (want && out->n != want)
        return FAIL(ST_INVAL, "the policy gave a chunk of %d actions, horizon is %lld", out->n,
                    (long long)want);
    if (out->n < c->options->execute)
        return FAIL(ST_INVAL, "the policy gave a chunk of %d actions, %lld are to be executed",
                    out->n, (long long)c->options->execute);
    for (i = 0; i < out->n * out->n_act; i++)
        if (!isfinite(out->actions[i]))
            return FAIL(ST_PROTO, "number %d of the policy's action %d is not finite",
                        i % out->n_act, i / out->n_act);
    return ST_OK;
}

// A key of the list at `p` into `key`; where the next begins, NULL after the last.
static const char *next_key(const char *p, char *key, size_t size)
{
    size_t n = strcspn(p, ",");

    snprintf(key, size, "%.*s", (int)n, p);
    return p[n] ? p + n + 1 : NULL;
}

enum status policy_take_actions(const struct policy_client *c, const msgpack_object *map,
                                struct policy_chunk *out)
{
    float v[CHUNK_STEPS_MAX * CHUNK_ACT_MAX];
    const char *p = c->options->actions;
    char key[OPT_STR_MAX];
    int at = 0, width;

    while (p) {
        struct tensor_floats f = {.v = v, .cap = sizeof v / sizeof v[0]};

        p = next_key(p, key, sizeof key);
        if (!pack_find(map, key))
            return FAIL(ST_INVAL, "the policy's reply has no '%s'", key);
        if (tensor_floats_read(&f, pack_find(map, key)) != ST_OK)
            return error_prefix("'%s' of the policy's reply", key);
        TRY(policy_take_floats(out, &f, at, &width));
        at += width;
    }
    return policy_check_actions(c, out, at);
}
