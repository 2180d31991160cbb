// replay.h - the actions of recorded demonstrations (see record.h, or LIBERO's own files), to be
// played again: episode i of the evaluation plays demo_i.
//
// Threads: a struct replay is read-only once open.
#ifndef EVALUATION_REPLAY_H
#define EVALUATION_REPLAY_H

#include "common/base/status.h"

#include <stdint.h>

struct replay;

#define REPLAY_PREFIX "replay:" // of a policy's name; the file follows

// Read actions and initial states of all demos. ST_INVAL names what the file lacks.
NODISCARD enum status replay_open(struct replay **out, const char *path);
void replay_close(struct replay *r); // NULL is fine

const char *replay_path(const struct replay *r);
int64_t replay_demos(const struct replay *r);
int replay_n_act(const struct replay *r);

// ST_INVAL unless the file is of this task and seed, or does not say.
NODISCARD enum status replay_check_task(const struct replay *r, const char *task, int64_t seed);

// The episode of the task that demo i starts as: as recorded; i where the file does not say.
uint64_t replay_start(const struct replay *r, int64_t demo);

// The action at this step; zeros behind the last one.
void replay_act(const struct replay *r, int64_t demo, uint64_t step, float *action);

// ST_INVAL unless `state`, (n), is the state that demo i was recorded from, up to rounding.
NODISCARD enum status replay_check_start(const struct replay *r, int64_t demo, const double *state,
                                         int n);

#endif
