// film.h - which episodes are filmed, and the actions that they are filmed from. A film is made
// when its episode is over and the outcome is known: whoever can draw plays the actions again,
// which gives the same states to the bit. So episodes that nobody wants to see cost nothing, and
// policies see what they see without films.
//
// Threads: film_keep from any; create, film_make and destroy from one. A script belongs to one
// thread at a time.
#ifndef EVALUATION_FILM_H
#define EVALUATION_FILM_H

#include "evaluation/worklist.h"

#include <stddef.h>

struct film;
struct script; // the actions of one episode

enum film_which { FILM_NONE, FILM_FAILURES, FILM_ALL };
#define FILM_CHOICES "none|failures|all"

struct film_config {
    enum film_which which;
    int64_t episodes;
    // Make the film of the episode that started as number `start`; actions is (n_step, n_act).
    enum status (*make)(void *arg, uint64_t start, const float *actions, int64_t n_step,
                        const struct episode_result *result);
    void *arg;
};

NODISCARD enum status film_create(struct film **out, const struct film_config *cfg);

// An action was sent, (n_act); *script is made if it is NULL. A lack of memory shows in film_keep.
void script_act(struct script **script, const float *action, int n_act);
void script_clear(struct script *script); // NULL is fine
void script_free(struct script *script);  // NULL is fine

// An episode of the task that started as number `start` has its result. If there is to be a film
// of it, *script is the film's afterwards, and NULL.
NODISCARD enum status film_keep(struct film *f, struct script **script, uint64_t start,
                                const struct episode_result *result);

// Make the film of this episode, if there is to be one.
NODISCARD enum status film_make(struct film *f, const struct episode_result *result);

// Path of an episode's film below an evaluation's folder: videos/GROUP_INDEX/eval_episode_17.mp4,
// without the index for a task that is in no suite; episode -1 = the folder.
void film_path(char *buf, size_t size, const char *task, int64_t episode);

void film_destroy(struct film *f); // NULL is fine

#endif
