// policy_options.h - what a remote policy expects and how its actions are executed: a table of
// options, and named sets of their values for published models.
//
// New checkpoints need no code: a JSON file with the options that differ from a preset is enough.
#ifndef EVALUATION_POLICY_OPTIONS_H
#define EVALUATION_POLICY_OPTIONS_H

#include "common/base/config.h"

enum policy_protocol {
    POLICY_OPENPI,
    POLICY_ROBOARENA, // openpi's envelope with endpoints
    POLICY_VLLM_OMNI, // openpi's envelope, errors as maps
    POLICY_STARVLA,   // openpi's arrays, requests with many examples
    POLICY_VLA_EVAL,
    POLICY_GR00T,
    POLICY_ACT,
    POLICY_PROTOCOLS
};
#define POLICY_PROTOCOL_CHOICES "openpi|roboarena|vllm-omni|starvla|vla-eval|gr00t|act"

enum policy_resize { POLICY_RESIZE_NONE, POLICY_RESIZE_PAD, POLICY_RESIZE_PLAIN };

// What is made of the last number of an action.
enum policy_gripper {
    GRIPPER_NONE,
    GRIPPER_SIGN,     // -1 below 0, else 1
    GRIPPER_INVERT,   // -g
    GRIPPER_UNIT,     // 0..1 to -1..1
    GRIPPER_UNIT_INV, // -sign(2 g - 1): 0..1, 1 = open
    GRIPPER_HALF_INV, // -1 above 0.5, else 1
};

// How GR00T's servers want arrays and observations.
enum policy_gr00t {
    GR00T_FLAT,   // "video.image" with batch and time, the sim policy wrapper of N1.6 and N1.7
    GR00T_NESTED, // {"video": {"image"}} with batch and time
    GR00T_N15,    // the observation map itself, without batch
};

struct policy_options {
    char name[OPT_STR_MAX]; // identifies the policy wherever its server is; "" = the address does
    int protocol;           // enum policy_protocol; set by the address's scheme where it names one
    // Pictures: "KEY=PICTURE,...", how they lie, and the size that is sent.
    char images[OPT_STR_MAX];
    int orient;                    // opengl, upright, rot180 (render.h)
    char camera_size[OPT_STR_MAX]; // of the environment's cameras, "256x256"
    int resize;                    // enum policy_resize
    char resize_to[OPT_STR_MAX];   // "224x224"
    // Numbers: "KEY=FIELD[FROM:TO]+FIELD...,...".
    char states[OPT_STR_MAX];
    int state_type;            // 0 float64, 1 float32
    char prompt[OPT_STR_MAX];  // key of the instruction; "" = none
    char extra[OPT_STR_MAX];   // JSON object: constant members of every request
    char actions[OPT_STR_MAX]; // keys of the reply, joined in this order
    int64_t execute, horizon;  // steps of a chunk; 0 = all, 0 = any
    int ensemble;              // enum chunk_ensemble
    double ensemble_weight;
    int gripper;    // enum policy_gripper
    int act_double; // HTTP /act: arrays as JSON texts in JSON
    int gr00t_codec, gr00t_shape;
    int64_t batch_max, batch_wait_ns;
    int64_t connect_wait_ns, first_wait_ns, answer_wait_ns;
    bool mismatch_ok;
};

extern const struct opt policy_opts[];

struct policy_preset {
    const char *name;
    const char *scene;   // the environment's preset, see scene_preset_find
    const char *kwargs;  // more of its keyword arguments, JSON members, or ""
    const char *options; // JSON object for policy_opts
};

// NULL if there is none of this name.
const struct policy_preset *policy_preset_find(const char *name);
#define POLICY_PRESET_NAMES "openpi, starvla, vla-eval, gr00t, gr00t-n1.5, openvla, openvla-oft"

// Is this the address of a policy server, "ws://..." and so on?
bool policy_is_address(const char *name);

// Defaults, then the scheme of `address`, the preset's values (NULL = none) and a JSON object, or
// "@FILE" with one ("" = none). `url` gets the address as the transport wants it.
NODISCARD enum status policy_options_make(struct policy_options *out, const char *address,
                                          const char *preset, const char *json, char *url,
                                          size_t size);

// The options that determine results, as JSON: all but the name, waits, batches and mismatch_ok.
NODISCARD enum status policy_options_settings(const struct policy_options *o, char *buf,
                                              size_t size);

// "256x128" to sides of 1 to `max`.
NODISCARD enum status policy_read_size(const char *text, int max, int *w, int *h);

// Keyword argument for the environment's cameras, such as
// "cameras": "agentview:256x256:rot180"; "" if the policy sees no pictures.
NODISCARD enum status policy_cameras(const struct policy_options *o, char *buf, size_t size);

#endif
