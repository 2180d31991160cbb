// snapshot.h - an env at one moment as bytes: identity, counters and the whole integration state of
// its world. A state goes into any env of the same task; from there on both give the same rows to
// the bit for the same actions, wherever they run.
//
// The last observation is not part of it (fields such as contact forces belong to the step that
// made them), so keep the row if you need it.
//
// The bytes are checked before they are loaded: magic, version, task, engine, signature of the
// model, sizes, a CRC-32C, and what a world keeps apart from the engine's state. They are not
// protected against forgery, but a forged one can only make a world that the engine calls bad.
//
// Threads: as for the env.
#ifndef ENVSERVER_SNAPSHOT_H
#define ENVSERVER_SNAPSHOT_H

#include "envserver/env.h"

// Bytes of a state of this env, of all envs of a pool; 0 = their worlds cannot be saved.
size_t snapshot_bytes(const struct env *env);

// ST_INVAL if the env has never been reset or the task's worlds cannot be saved. `out` is
// (snapshot_bytes), aligned to 8.
NODISCARD enum status snapshot_write(const struct env *env, void *out);

// ST_PROTO says what does not fit. `in` is aligned to 8.
NODISCARD enum status snapshot_check(const struct env *env, const void *in, size_t bytes);

// Go on from a state that snapshot_check has taken.
void snapshot_read(struct env *env, const void *in);

// Which episode a state is of, as it says itself.
struct snapshot_identity {
    uint64_t seed, stream, episode;
    bool running;
};
NODISCARD enum status snapshot_identify(const void *in, size_t bytes,
                                        struct snapshot_identity *out);

#endif
