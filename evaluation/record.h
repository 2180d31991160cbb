// record.h - demonstrations: the episodes of an evaluation as one HDF5 file in the layout that
// LIBERO and robomimic read, DIR/demos.hdf5.
//
// A lane fills a take while it plays an episode and hands it over when the episode has its result;
// the evaluation writes takes in episode order, so the file does not depend on how the work was
// spread: equal evaluations give equal bytes. Demos are numbered without gaps. What waits for its
// turn is kept in memory up to a bound, then on disk in a file without a name.
//
// What is recorded comes from named parts of the observation: sim_state, robot0_gripper_qpos,
// robot0_eef_pos, robot0_eef_quat (x, y, z, w) and robot0_joint_pos; and all pictures, under
// LIBERO's names: agentview_rgb, eye_in_hand_rgb. states[t] is the state before action t.
//
// Threads: recorder_keep from any; the rest from one. A take belongs to one thread at a time.
#ifndef EVALUATION_RECORD_H
#define EVALUATION_RECORD_H

#include "common/wire/spec.h"
#include "evaluation/worklist.h"

struct recorder;
struct take; // one episode as it is played

// obs[t] is the observation before action t (at states[t]), or after it, as in LIBERO's own files.
enum record_align { RECORD_PRE, RECORD_POST };
#define RECORD_ALIGN_CHOICES "pre|post"

// What the observations do not tell. All strings are borrowed until recorder_close.
struct record_about {
    enum record_align align;
    bool failures;            // keep failures too
    const char *env_name;     // "Libero_Tabletop_Manipulation"
    const char *env_args;     // JSON
    const char *problem_info; // JSON with language_instruction
    const char *bddl_name, *bddl_text;
    const char *model; // MJCF in which @k@ stands for number k of the observation's fixture_pose
    // of the evaluation
    const char *policy, *kwargs;
    int64_t seed, n_episode;
};

// Begin DIR/demos.hdf5 (at first demos.hdf5.tmp); one of an earlier run goes. ST_INVAL names the
// part of the observation that is missing. Pictures must all be the same way up.
NODISCARD enum status recorder_open(struct recorder **out, const char *dir,
                                    const struct record_about *about, const struct spec *spec);

// An empty take, for the episode that starts as number `start` of the task's episodes; *take is
// made if it is NULL, else used again.
NODISCARD enum status recorder_begin(const struct recorder *r, struct take **take, uint64_t start);

// An observation of the episode, (n_obs) of the spec: the first one, then one after each action;
// with its pictures, (picture_bytes) of the spec, ignored if there are none. `success`: the goal
// was reached by the last action.
NODISCARD enum status take_observe(struct take *take, const double *obs, const uint8_t *pictures,
                                   bool success);
// The action that was sent after the last observation, (n_act).
void take_act(struct take *take, const float *action);
void take_free(struct take *take); // NULL is fine

// An episode has its result, which is no error. *take is the recorder's afterwards, and NULL.
NODISCARD enum status recorder_keep(struct recorder *r, struct take **take,
                                    const struct episode_result *result);

// Write what was kept of this episode, if anything.
NODISCARD enum status recorder_write(struct recorder *r, int64_t episode);

// Complete the file and give it its name; its numbers of demos. What was not written is not in it.
NODISCARD enum status recorder_finish(struct recorder *r, int64_t *n_demo);

// Without recorder_finish nothing is left behind. NULL is fine.
void recorder_close(struct recorder *r);

// Tests: bytes of waiting takes that are kept in memory.
void recorder_set_bound(struct recorder *r, size_t bytes);

#endif
