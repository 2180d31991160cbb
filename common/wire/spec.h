// spec.h - what an env server offers: sizes of a task and the layout of one row of a batch.
//
// A row is one env's answer to one request: a head, the rewards of the executed sub-steps, the last
// observation, info, in same-step mode the final observation and final info of the episode that
// ended, and the pictures of both observations if the task has cameras. Rows of a port have a fixed
// stride, so that row i is at data + i * stride.
#ifndef COMMON_WIRE_SPEC_H
#define COMMON_WIRE_SPEC_H

#include "common/wire/msg.h"

#define SPEC_NAME_MAX  64
#define SPEC_TEXT_MAX  256
#define SPEC_INFO_MAX  16
#define SPEC_FIELD_MAX 320
#define SPEC_ACT_MAX   64
#define SPEC_OBS_MAX   (1 << 20)
#define SPEC_CHUNK_MAX 256
#define SPEC_ENV_MAX   65536

#define SPEC_PICTURE_MAX       16
#define SPEC_PICTURE_SIDE_MAX  4096        // pixels
#define SPEC_PICTURE_BYTES_MAX (64u << 20) // of the pictures of one observation

// Gymnasium's AutoresetMode.
enum autoreset { AUTORESET_NEXT_STEP, AUTORESET_SAME_STEP, AUTORESET_DISABLED };
#define AUTORESET_CHOICES "next-step|same-step|disabled"

struct spec_info {
    char name[SPEC_NAME_MAX];
    int n;
    bool on_reset;
};

// A named part of the observation: numbers offset to offset + n - 1. Parts follow each other.
struct spec_field {
    char name[SPEC_NAME_MAX];
    int offset, n;
};

// What a picture shows of each pixel.
enum spec_plane {
    SPEC_RGB,   // uint8 (height, width, 3)
    SPEC_DEPTH, // float32 (height, width) metres along the view axis
    SPEC_SEG,   // int32 (height, width, 2) MuJoCo object id and type, -1 -1 = nothing
    SPEC_PLANES
};
const char *spec_plane_name(enum spec_plane plane); // "rgb", "depth", "seg"

// A picture of an observation. Pictures follow each other, each at a multiple of 8.
struct spec_picture {
    char name[SPEC_NAME_MAX];   // in observation dicts: "agentview_image", "agentview_depth"
    char camera[SPEC_NAME_MAX]; // "agentview"
    uint32_t plane;             // enum spec_plane
    uint32_t width, height;
    uint32_t orient; // 0 = row 0 is the bottom (opengl), 1 = the top (upright), 2 = turned (rot180)
    uint32_t offset, bytes; // in the picture block of a row; without the padding after it
};

struct spec {
    char task[SPEC_NAME_MAX];        // "Ant-v5"
    char instruction[SPEC_TEXT_MAX]; // what the task asks for, one line
    char engine[SPEC_NAME_MAX];      // "MuJoCo 3.3.7"
    int n_obs;                       // float64 numbers of an observation
    int n_act;                       // float32 numbers of an action
    int n_info;                      // float64 numbers of the info vector
    int n_info_key;
    struct spec_info info[SPEC_INFO_MAX];
    int n_field; // 0: the observation's parts have no names
    struct spec_field fields[SPEC_FIELD_MAX];
    int n_picture; // 0: observations are numbers only
    struct spec_picture pictures[SPEC_PICTURE_MAX];
    size_t picture_bytes;                                // of one observation, a multiple of 8
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
    ROW_ERROR_QPOS,    // the engine found a bad position (NaN, inf or huge) and reset the world
    ROW_ERROR_QVEL,    // the same for a velocity
    ROW_ERROR_QACC,    // the same for an acceleration
    ROW_ERROR_ENGINE,  // the engine reported an error
    ROW_ERROR_OUTPUT,  // an observation or reward is not finite
    ROW_ERROR_CRASH,   // the worker process of the env died: a signal, or out of memory
    ROW_ERROR_TIMEOUT, // the worker process took too long or was stopped, and was replaced
    ROW_ERROR_PICTURE, // the renderer could not draw the observation
    ROW_ERROR_SERVER,  // the env server is gone; made by the client
};
#define ROW_ERROR_LAST ROW_ERROR_SERVER
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

// One row of a RESET: which env starts which episode. The initial state is a function of
// (seed, stream, episode) alone.
struct reset_row {
    uint32_t env, reserved;
    uint64_t seed, stream, episode;
};

// One row of a STEP: followed by (k_max, n_act) float32, of which the first n_sub rows count.
struct step_row {
    uint32_t env;
    uint32_t n_sub; // 1..k_max
};

// Byte offsets inside a row; 0 where a part is absent.
struct row_layout {
    int k_max; // rewards of a row
    uint32_t reward, obs, info, final_obs, final_info;
    uint32_t pictures, final_pictures; // (spec.picture_bytes)
    uint32_t stride;
};

void row_layout_make(struct row_layout *out, const struct spec *spec, int k_max,
                     enum autoreset autoreset);

// Append a picture: name, camera, plane, size and orientation are given, offset and bytes follow.
// ST_INVAL: one too many, a size out of range, too many bytes, or the name is taken.
NODISCARD enum status spec_add_picture(struct spec *spec, const struct spec_picture *picture);

// Leave out the pictures whose bit is set in `skip`.
void spec_skip_pictures(struct spec *spec, uint32_t skip);

// NULL if there is none.
const struct spec_picture *spec_picture_find(const struct spec *spec, const char *name);

// The pictures as "agentview_image 128x128 rgb, ..." for messages, into buf; "none" without any.
const char *spec_picture_list(const struct spec *spec, char *buf, size_t size);

// Offset of an info term of one number; -1 if there is none.
int spec_info_find(const struct spec *spec, const char *name);

// NULL if there is none.
const struct spec_field *spec_field_find(const struct spec *spec, const char *name);

NODISCARD enum status spec_write(struct msg *m, const struct spec *spec);
// Checks every size against the limits above.
NODISCARD enum status spec_read(struct reader *r, struct spec *out);

#endif
