// groups.h - groups of episodes from one start: held until their members are there, then scored
// against each other. No critic: the other members are the baseline.
//
// With scores R_1..R_n of the members that count (0/1 where the task knows success):
//   RLOO     A_i = R_i - mean of the others = (R_i - mean) n / (n - 1)   (Kool et al. 2019)
//   GRPO     A_i = (R_i - mean) / (std + 1e-6), std with n - 1           (Shao et al. 2024)
//   Dr.GRPO  A_i = R_i - mean                                            (Liu et al. 2025)
// A group whose members all have the same score teaches nothing: its advantages are 0, and it is
// dropped (dynamic sampling, Yu et al. 2025), as is a group of fewer than two members that count
// (a single one has no baseline, whatever its score) and one with a member that is too old.
//
// A whole group is the unit: it is settled when all `size` members have come, or, with what has
// come, at the last call before one of them would be too old. The clock is the policy version.
// Members that ended by an error are members without a score.
//
// For a policy with a critic (GROUP_NONE) there are no such comparisons: groups of any size, 1 too,
// are kept whatever their scores are, with advantages of 0 for others to fill in.
//
// Episodes are borrowed pointers that nothing is read through. Threads: one at a time.
#ifndef LEARNER_GROUPS_H
#define LEARNER_GROUPS_H

#include "common/base/status.h"

#include <stdint.h>

#define GROUPS_SIZE_MAX 256
#define GROUPS_LATE_MAX 4096 // settled groups whose late members are known as such

enum group_baseline { GROUP_RLOO, GROUP_GRPO, GROUP_DRGRPO, GROUP_NONE };
#define GROUP_BASELINES "rloo|grpo|drgrpo"

struct groups_config {
    int size;     // members of a group, 2..GROUPS_SIZE_MAX; without a baseline from 1
    uint64_t eta; // versions that a member may be old when its group is settled
    enum group_baseline baseline;
};

struct group_member {
    uint64_t group;       // its number, unique over the training
    uint32_t member;      // 0..size-1
    uint64_t version_min; // of its oldest decision
    double score;
    bool error;    // it ended by an error: no score
    void *episode; // the caller's
};

enum group_verdict { GROUP_HELD, GROUP_TWICE, GROUP_LATE };

enum group_fate {
    GROUP_KEPT,
    GROUP_UNIFORM, // all scores are the same
    GROUP_STALE,   // a member is too old
    GROUP_SINGLE,  // fewer than two members with a score; without a baseline: none
};

// A settled group. The arrays hold until the next call.
struct group_result {
    uint64_t group;
    enum group_fate fate;
    int n;                             // members that came, in the order of their numbers
    const struct group_member *member; // (n)
    const double *advantage;           // (n) 0 unless kept, and for errors
    double mean;                       // of the scores, 0 without any
};

// What became of everything, since the start.
struct groups_count {
    uint64_t kept, uniform, stale, single; // groups
    uint64_t incomplete;                   // of those, settled before all members had come
    uint64_t twice, late;                  // members that were refused
};

struct groups;

NODISCARD enum status groups_create(struct groups **out, const struct groups_config *cfg);
void groups_destroy(struct groups *g); // NULL is fine; does not free episodes

// A member has come. Held, or refused: then the caller keeps the episode. ST_INVAL if its number or
// score cannot be.
NODISCARD enum status groups_add(struct groups *g, const struct group_member *m,
                                 enum group_verdict *out);

// Which groups are settled.
enum group_call {
    GROUP_WHOLE,     // those whose members have all come, and those that are too old
    GROUP_LAST_CALL, // the window is about to close: those too that the next version finds too old
    GROUP_ALL,       // nobody comes any more: all
};

// The settled group with the lowest number; ST_AGAIN if there is none. `version` is the present
// one. The caller has the episodes back.
NODISCARD enum status groups_take(struct groups *g, uint64_t version, enum group_call call,
                                  struct group_result *out);

// Any open group's episodes, group by group, in the order of their numbers; for the end.
// ST_AGAIN when there are none.
NODISCARD enum status groups_drain(struct groups *g, struct group_result *out);

int groups_waiting(const struct groups *g); // members that are held
const struct groups_count *groups_counts(const struct groups *g);

// advantage (n) of scores (n) under a baseline; n >= 2. The formulas above.
void group_advantages(enum group_baseline b, const double *score, int n, double *advantage);

#endif
