// spec.h - what an env server offers: sizes of a task and the layout of one row of a batch.
//
// A row is one env's answer to one request: a head, the rewards of the executed sub-steps, the last
// observation, info, and in same-step mode the final observation and final info of the episode that
// ended. Rows of a port have a fixed stride, so that row i is at data + i * stride.
#ifndef COMMON_WIRE_SPEC_H
#define COMMON_WIRE_SPEC_H

#include "common/wire/msg.h"

#define SPEC_NAME_MAX  64
#define SPEC_INFO_MAX  16
#define SPEC_ACT_MAX   64
#define SPEC_OBS_MAX   (1 << 20)
#define SPEC_CHUNK_MAX 256
#define SPEC_ENV_MAX   65536

// Gymnasium's AutoresetMode.
enum autoreset { AUTORESET_NEXT_STEP, AUTORESET_SAME_STEP, AUTORESET_DISABLED };
#define AUTORESET_CHOICES "next-step|same-step|disabled"

struct spec_info {
    char name[SPEC_NAME_MAX];
    int n;
    bool on_reset;
};

struct spec {
    char task[SPEC_NAME_MAX];   // "Ant-v5"
    char engine[SPEC_NAME_MAX]; // "MuJoCo 3.3.7"
    int n_obs;                  // float64 numbers of an observation
    int n_act;                  // float32 numbers of an action
    int n_info;                 // float64 numbers of the info vector
    int n_info_key;
    struct spec_info info[SPEC_INFO_MAX];
    float act_low[SPEC_ACT_MAX], act_high[SPEC_ACT_MAX]; // (n_act)
    int64_t max_episode_steps;                           // 0 = no limit
    double dt_s;                                         // seconds per env step
    bool has_success;
    int n_env; // envs of the server
};

enum row_flag {
    ROW_FIRST = 1,      // the observation is the first of an episode; no action was executed
    ROW_TERMINATED = 2, // the episode ended by the task's own rule
    ROW_TRUNCATED = 4,  // the episode ended by the time limit
    ROW_ERROR = 8,      // the episode ended by an infrastructure or physics error
    ROW_SUCCESS = 16,   // the task's goal was reached in one of the sub-steps
    ROW_HAS_FINAL = 32, // final observation and info are filled in; the observation is the next
                        // episode's first
};
#define ROW_DONE (ROW_TERMINATED | ROW_TRUNCATED | ROW_ERROR)

enum row_error {
    ROW_ERROR_NONE,
    ROW_ERROR_QPOS,   // the engine found a bad position (NaN, inf or huge) and reset the world
    ROW_ERROR_QVEL,   // the same for a velocity
    ROW_ERROR_QACC,   // the same for an acceleration
    ROW_ERROR_ENGINE, // the engine reported an error
    ROW_ERROR_OUTPUT, // an observation or reward is not finite
};
const char *row_error_name(enum row_error error);

// Head of a row. Identity and counters are those of the episode that the rewards belong to.
struct row_head {
    uint32_t env;
    uint32_t flags; // enum row_flag
    uint64_t seed, stream, episode;
    double episode_return; // sum of rewards so far
    uint32_t elapsed;      // env steps of the episode so far
    uint32_t n_sub;        // sub-steps executed by this request: 0 for a reset, else 1..k
    uint32_t error;        // enum row_error
    uint32_t reserved;
};

// Byte offsets inside a row; 0 where a part is absent.
struct row_layout {
    int k_max; // rewards of a row
    uint32_t reward, obs, info, final_obs, final_info, stride;
};

void row_layout_make(struct row_layout *out, const struct spec *spec, int k_max,
                     enum autoreset autoreset);

NODISCARD enum status spec_write(struct msg *m, const struct spec *spec);
// Checks every size against the limits above.
NODISCARD enum status spec_read(struct reader *r, struct spec *out);

#endif
