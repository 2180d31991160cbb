#include "envserver/snapshot.h"

#include "common/base/crc.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define MAGIC   "SIMSTATE"
#define VERSION 2

struct snapshot_head {
    char magic[8];
    uint32_t version;
    uint32_t crc; // of everything behind it
    uint64_t bytes;
    char task[SPEC_NAME_MAX];
    uint64_t plan; // randomize_id, 0 = none
    int32_t engine, nq, nv, na, nu, nbody, ngeom, neq;
    uint32_t signature, reserved; // of the model
    uint64_t seed, stream, episode;
    double episode_return;
    uint32_t elapsed, running;
};

_Static_assert(sizeof(struct snapshot_head) % 8 == 0, "a row of doubles follows");

#define CRC_FROM offsetof(struct snapshot_head, bytes)

size_t snapshot_bytes(const struct env *env)
{
    size_t varies = env->variant ? variant_saved_bytes(env->variant) : 0;

    if (!sim_can_save(env->scene))
        return 0;
    return sizeof(struct snapshot_head) + sim_row_bytes(env->scene) + varies;
}

// What a state of this scene begins with.
static struct snapshot_head head_of(const struct env *env)
{
    const struct scene *scene = env->scene;
    const mjModel *m = scene->model;
    struct snapshot_head head = {.version = VERSION, .bytes = snapshot_bytes(env)};

    memcpy(head.magic, MAGIC, sizeof head.magic);
    snprintf(head.task, sizeof head.task, "%s", scene->name);
    head.plan = env->variant ? variant_plan_id(env->variant) : 0;
    head.engine = mj_version();
    head.nq = (int32_t)m->nq;
    head.nv = (int32_t)m->nv;
    head.na = (int32_t)m->na;
    head.nu = (int32_t)m->nu;
    head.nbody = (int32_t)m->nbody;
    head.ngeom = (int32_t)m->ngeom;
    head.neq = (int32_t)m->neq;
    head.signature = scene->signature;
    return head;
}

static uint32_t crc_of(const void *state, size_t bytes)
{
    return crc32c(0, (const uint8_t *)state + CRC_FROM, bytes - CRC_FROM);
}

enum status snapshot_write(const struct env *env, void *out)
{
    struct snapshot_head head = head_of(env);
    uint8_t *row = (uint8_t *)out + sizeof head;

    if (head.bytes == 0)
        return FAIL(ST_INVAL, "worlds of task '%s' cannot be saved", env->scene->name);
    if (!env->started)
        return FAIL(ST_INVAL, "env %u has no state before its first reset", env->head.env);
    head.seed = env->seed;
    head.stream = env->stream;
    head.episode = env->episode;
    head.episode_return = env->episode_return;
    head.elapsed = env->elapsed;
    head.running = env->running;
    memcpy(out, &head, sizeof head);
    if (env->own)
        sim_save(env->own, row);
    else
        memcpy(row, env->row, sim_row_bytes(env->scene));
    if (env->variant)
        variant_save(env->variant, row + sim_row_bytes(env->scene));
    head.crc = crc_of(out, head.bytes);
    memcpy(out, &head, sizeof head);
    return ST_OK;
}

static enum status read_head(const void *in, size_t bytes, struct snapshot_head *head)
{
    if (bytes < sizeof *head)
        return FAIL(ST_PROTO, "a state of %zu bytes is too short", bytes);
    memcpy(head, in, sizeof *head);
    if (memcmp(head->magic, MAGIC, sizeof head->magic) != 0 || head->version != VERSION)
        return FAIL(ST_PROTO, "this is no state of version %d", VERSION);
    head->task[sizeof head->task - 1] = '\0';
    return ST_OK;
}

enum status snapshot_identify(const void *in, size_t bytes, struct snapshot_identity *out)
{
    struct snapshot_head head;

    TRY(read_head(in, bytes, &head));
    *out = (struct snapshot_identity){head.seed, head.stream, head.episode, head.running != 0};
    return ST_OK;
}

// What lies behind the head, of a state whose bytes are whole.
static enum status check_parts(const struct env *env, const uint8_t *row, bool running)
{
    if (running)
        TRY(sim_check_row(env->scene, row));
    if (env->variant)
        TRY(variant_check(env->variant, row + sim_row_bytes(env->scene)));
    return ST_OK;
}

enum status snapshot_check(const struct env *env, const void *in, size_t bytes)
{
    struct snapshot_head want = head_of(env), head;

    if (want.bytes == 0)
        return FAIL(ST_INVAL, "worlds of task '%s' cannot be saved", env->scene->name);
    TRY(read_head(in, bytes, &head));
    if (strcmp(head.task, want.task) != 0)
        return FAIL(ST_PROTO, "the state is one of task '%s', expected '%s'", head.task, want.task);
    if (head.engine != want.engine)
        return FAIL(ST_PROTO, "the state is of engine version %d, expected %d", head.engine,
                    want.engine);
    if (memcmp(&head.nq, &want.nq, 7 * sizeof head.nq) != 0)
        return FAIL(ST_PROTO,
                    "the state is of another model of task '%s': nq %d, nv %d, nbody %d, "
                    "expected %d, %d, %d",
                    want.task, head.nq, head.nv, head.nbody, want.nq, want.nv, want.nbody);
    if (head.signature != want.signature)
        return FAIL(ST_PROTO,
                    "the state is of another model of task '%s': as large, but with signature "
                    "%08x, expected %08x",
                    want.task, head.signature, want.signature);
    if (head.plan != want.plan)
        return FAIL(ST_PROTO, "the state is one of envs that are randomised otherwise");
    if (head.bytes != want.bytes || bytes != want.bytes)
        return FAIL(ST_PROTO, "the state has %zu bytes, expected %zu", bytes, (size_t)want.bytes);
    if (head.crc != crc_of(in, bytes) || head.running > 1 || !isfinite(head.episode_return))
        return FAIL(ST_PROTO, "the state is damaged (CRC)");
    return check_parts(env, (const uint8_t *)in + sizeof head, head.running);
}

void snapshot_read(struct env *env, const void *in)
{
    const uint8_t *row = (const uint8_t *)in + sizeof(struct snapshot_head);
    struct snapshot_head head;

    memcpy(&head, in, sizeof head);
    env->seed = head.seed;
    env->stream = head.stream;
    env->episode = head.episode;
    env->episode_return = head.episode_return;
    env->elapsed = head.elapsed;
    env->started = true;
    env->running = head.running;
    env->lost = ROW_ERROR_NONE;
    if (env->variant)
        variant_load(env->variant, row + sim_row_bytes(env->scene));
    if (!head.running)
        return; // the world is made anew by the next reset
    if (env->own)
        sim_load(env->own, row);
    else
        memcpy(env->row, row, sim_row_bytes(env->scene));
}
