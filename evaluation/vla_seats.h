// vla_seats.h - envs that are played by a vision-language-action policy: what it sees of their
// rows, and the chunks of actions that are being executed.
//
// Threads: one at a time.
#ifndef EVALUATION_VLA_SEATS_H
#define EVALUATION_VLA_SEATS_H

#include "common/wire/spec.h"
#include "nn/policy.h"

struct vla_seats;

// A row that needs an action: of which env (0..n_env-1), its numbers and its picture block.
struct vla_seat_row {
    int env;
    struct policy_row row; // obs: as the server has it; pictures and instruction are filled in
    const uint8_t *block;
};

// `execute`: actions of a chunk that are executed before the next is asked for, 0 = all. The spec
// is copied as far as it is needed. ST_INVAL says what the task does not give.
NODISCARD enum status vla_seats_create(struct vla_seats **out, const struct weights *w,
                                       const struct spec *spec, int n_env, int64_t execute);
void vla_seats_destroy(struct vla_seats *s); // NULL is fine

// actions (n, n_act) of n rows of different envs. Step 0 begins an episode.
NODISCARD enum status vla_seats_act(struct vla_seats *s, const struct weights *w,
                                    const struct vla_seat_row *rows, int n, bool greedy,
                                    float *actions);

#endif
