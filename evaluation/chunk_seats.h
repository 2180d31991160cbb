// chunk_seats.h - envs that are played by a policy that decides on chunks of actions: what it sees
// of their rows, and the chunks that are being executed.
//
// A vision-language-action model sees the robot's state and its cameras (nn/vla_input.h) and says
// itself how long its chunks are. A perceptron sees the observation and the pictures that it was
// trained with, and gives the numbers of one action or of several, one behind the other.
//
// Threads: one at a time.
#ifndef EVALUATION_CHUNK_SEATS_H
#define EVALUATION_CHUNK_SEATS_H

#include "common/wire/spec.h"
#include "nn/policy.h"

struct chunk_seats;

// Does this policy give more than the one action of `spec` that is wanted? Not if its numbers are
// no whole actions.
bool chunk_seats_wanted(const struct weights *w, const struct spec *spec);

// A row that needs an action: of which env (0..n_env-1), its numbers and its picture block.
struct chunk_seat_row {
    int env;
    struct policy_row row; // obs: as the server has it; the rest of what is seen is filled in
    const uint8_t *block;
};

// `execute`: actions of a chunk that are executed before the next is asked for, 0 = all. The spec
// is copied as far as it is needed. ST_INVAL says what the task does not give.
NODISCARD enum status chunk_seats_create(struct chunk_seats **out, const struct weights *w,
                                         const struct spec *spec, int n_env, int64_t execute);
void chunk_seats_destroy(struct chunk_seats *s); // NULL is fine

// actions (n, n_act) of n rows of different envs. Step 0 begins an episode.
NODISCARD enum status chunk_seats_act(struct chunk_seats *s, const struct weights *w,
                                      const struct chunk_seat_row *rows, int n, bool greedy,
                                      float *actions);

#endif
