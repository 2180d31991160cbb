// training.h - what `learn` and `train` share: the learner in a thread, the progress line, the
// result.
#ifndef CLI_TRAINING_H
#define CLI_TRAINING_H

#include "common/base/thread.h"
#include "learner/learner.h"

#define TRAINING_PARTNERS_MAX 32

struct training {
    struct learner_config *cfg; // borrowed
    struct learner_progress progress;
    const atomic_bool *asked;                                // by a signal
    const atomic_bool *partner_ended[TRAINING_PARTNERS_MAX]; // rollout workers in this process
    int n_partner;
    bool announce, json; // print the learner's address, as JSON
    atomic_bool stop;    // the learner's
    atomic_bool ended;
    enum status st;
    struct error err;
};

void training_init(struct training *t, struct learner_config *cfg, const atomic_bool *asked);

// Run the learner to its end, drawing progress.
enum status training_watch(struct training *t);

// Print the result or the calling thread's last error; the exit code.
int training_finish(struct training *t, enum status st, bool json);

#endif
