// lane.h - one env server of an evaluation: takes episodes from the shared list, plays them in the
// server's envs, puts results into the list. All rows of a batch are inferred together, but for a
// remote policy: there each env waits for its own answer while the others go on.
//
// Threads: lane_run is the body of the lane's own thread; open and destroy belong to the thread
// that runs the evaluation. What lanes share is guarded by one lock. A remote policy's answers come
// in its threads, which send the actions themselves.
#ifndef EVALUATION_LANE_H
#define EVALUATION_LANE_H

#include "common/base/thread.h"
#include "common/wire/spec.h"
#include "evaluation/film.h"
#include "evaluation/record.h"
#include "evaluation/remote.h"
#include "evaluation/replay.h"
#include "evaluation/worklist.h"
#include "nn/weights.h"

#include <stdatomic.h>

struct lane;

// LANE_EXPERT: the action that the observation itself proposes, in its field `expert_action`.
// LANE_REPLAY: recorded actions. LANE_REMOTE: those of a policy server.
enum lane_policy { LANE_WEIGHTS, LANE_RANDOM, LANE_ZERO, LANE_EXPERT, LANE_REPLAY, LANE_REMOTE };

// What the lanes of one evaluation share.
struct lane_shared {
    pthread_mutex_t mtx;
    pthread_cond_t changed; // an episode ended or came back, or halt
    struct worklist *list;  // guarded by mtx
    bool halt;              // guarded by mtx; start nothing more and end
    struct error fatal;     // guarded by mtx; a failure that no other server would cure
    atomic_llong *env_steps;
    struct recorder *recorder; // NULL = do not record; set before the lanes run
    struct film *film;         // NULL = no films
};

struct lane_config {
    const char *url; // copied
    enum lane_policy policy;
    const struct weights *weights; // borrowed; LANE_WEIGHTS only
    const struct replay *replay;   // borrowed; LANE_REPLAY only
    struct remote *remote;         // borrowed; LANE_REMOTE only
    bool greedy;
    int64_t execute; // actions of a chunk that are executed, 0 = all; of policies with chunks
    bool pictures;   // rows have all pictures of the server, for the policy or the recorder
    uint64_t seed;
    int64_t connect_wait_ns;
    const atomic_bool *stop; // give up connecting when it is true; NULL = no such flag
    int64_t answer_wait_ns;  // a server that is silent for longer with requests in flight is gone
    struct lane_shared *shared; // borrowed
};

// Connect and lease all envs that are free.
NODISCARD enum status lane_open(struct lane **out, const struct lane_config *cfg);

const struct spec *lane_spec(const struct lane *lane);
const char *lane_plan(const struct lane *lane); // how the server's models differ; "" = they do not
const char *lane_url(const struct lane *lane);
int lane_envs(const struct lane *lane);
int64_t lane_ended(const struct lane *lane); // episodes with a result so far; lane_run's thread

// Play until there is nothing left, or `halt`: ST_OK. Any other status: the server is lost, or
// shared->fatal is set; its running episodes are back in the list. Once.
NODISCARD enum status lane_run(struct lane *lane);

// NULL is fine.
void lane_destroy(struct lane *lane);

#endif
