#include "evaluation/policy_options.h"

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/thread.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct policy_options, field)

const struct opt policy_opts[] = {
    {"name", OPT_STR, AT(name), 0, 0, "",
     "of the policy, for settings.json; empty = the server's address", NULL},
    {"protocol", OPT_ENUM, AT(protocol), 0, 0, "openpi", "what the server speaks",
     POLICY_PROTOCOL_CHOICES},
    {"images", OPT_STR, AT(images), 0, 0, "", "pictures as KEY=PICTURE, separated by commas", NULL},
    {"orient", OPT_ENUM, AT(orient), 0, 0, "rot180", "how the policy wants pictures to lie",
     "opengl|upright|rot180"},
    {"camera_size", OPT_STR, AT(camera_size), 0, 0, "256x256", "of the environment's cameras",
     NULL},
    {"resize", OPT_ENUM, AT(resize), 0, 0, "none",
     "pictures are sent as they are, resized and padded, or resized", "none|pad|plain"},
    {"resize_to", OPT_STR, AT(resize_to), 0, 0, "224x224", "size that is sent", NULL},
    {"states", OPT_STR, AT(states), 0, 0, "",
     "numbers as KEY=FIELD[FROM:TO]+FIELD, separated by commas", NULL},
    {"state_type", OPT_ENUM, AT(state_type), 0, 0, "float64", "type of those numbers",
     "float64|float32"},
    {"prompt", OPT_STR, AT(prompt), 0, 0, "prompt", "key of the instruction; empty = none", NULL},
    {"extra", OPT_STR, AT(extra), 0, 0, "{}", "JSON object with constants of every request", NULL},
    {"actions", OPT_STR, AT(actions), 0, 0, "actions",
     "keys of the actions in a reply, joined in this order", NULL},
    {"execute", OPT_INT, AT(execute), 0, 256, "0",
     "actions of a chunk that are executed before the next request; 0 = the whole chunk", NULL},
    {"horizon", OPT_INT, AT(horizon), 0, 256, "0", "actions that a chunk must have; 0 = any", NULL},
    {"ensemble", OPT_ENUM, AT(ensemble), 0, 0, "newest",
     "what is done where chunks overlap: newest, average, ema (weight of the newer), act "
     "(exponent of the older)",
     "newest|average|ema|act"},
    {"ensemble_weight", OPT_REAL, AT(ensemble_weight), 0, 100, "0.01", "the number of ema and act",
     NULL},
    {"gripper", OPT_ENUM, AT(gripper), 0, 0, "none",
     "the last number: as it is, its sign, negated, 0..1 to -1..1, -sign(2g-1), or -1 above 0.5",
     "none|sign|invert|unit|unit-inverted|half-inverted"},
    {"act_encoding", OPT_ENUM, AT(act_double), 0, 0, "single",
     "HTTP /act: arrays as JSON, or as texts that hold JSON", "single|double"},
    {"gr00t_codec", OPT_ENUM, AT(gr00t_codec), 0, 0, "npy",
     "arrays as .npy files (N1.5, N1.6) or as of msgpack-numpy (N1.7)", "npy|msgpack-numpy"},
    {"gr00t_shape", OPT_ENUM, AT(gr00t_shape), 0, 0, "flat",
     "observations as the sim policy wrapper wants them, nested, or as of N1.5",
     "flat|nested|n1.5"},
    {"batch_max", OPT_INT, AT(batch_max), 1, 1024, "8",
     "observations of a request, where the server takes several", NULL},
    {"batch_wait", OPT_TIME, AT(batch_wait_ns), 0, 60e9, "5ms",
     "how long an observation waits for others", NULL},
    {"connect_wait", OPT_TIME, AT(connect_wait_ns), 0, 86400e9, "120s",
     "how long to try to reach the server, also after it is gone", NULL},
    {"first_wait", OPT_TIME, AT(first_wait_ns), 1e6, 86400e9, "300s",
     "how long the first answer may take", NULL},
    {"answer_wait", OPT_TIME, AT(answer_wait_ns), 1e6, 86400e9, "30s",
     "how long any other answer may take", NULL},
    {"mismatch_ok", OPT_BOOL, AT(mismatch_ok), 0, 1, "false",
     "go on when the policy declares something else than the environment gives", NULL},
    {0},
};

#define LIBERO_IMAGES(a, b) "\"images\": \"" a "=agentview_image," b "=robot0_eye_in_hand_image\""

static const struct policy_preset presets[] = {
    {"openpi", "openpi", "",
     "{" LIBERO_IMAGES("observation/image",
                       "observation/wrist_image") ", \"resize\": \"pad\", "
                                                  "\"states\": \"observation/state=policy_state\", "
                                                  "\"execute\": 5}"},
    {"starvla", "openpi", "",
     "{\"protocol\": \"starvla\", " LIBERO_IMAGES(
         "image", "wrist_image") ", \"resize\": \"plain\", \"prompt\": \"lang\", \"gripper\": "
                                 "\"half-inverted\", "
                                 "\"extra\": \"{\\\"do_sample\\\": false, \\\"use_ddim\\\": true, "
                                 "\\\"num_ddim_steps\\\": "
                                 "10}\"}"},
    {"vla-eval", "openpi", "",
     "{\"protocol\": \"vla-eval\", " LIBERO_IMAGES(
         "images/agentview",
         "images/wrist") ", \"states\": \"states=policy_state\", \"prompt\": \"task_description\", "
                         "\"gripper\": \"sign\"}"},
    {"gr00t", "openpi", "\"init_states\": \"random\", \"max_episode_steps\": 720",
     "{\"protocol\": \"gr00t\", " LIBERO_IMAGES(
         "video.image",
         "video.wrist_image") ", \"states\": \"state.x=policy_state[0:1],state.y=policy_state[1:2],"
                              "state.z=policy_state[2:3],state.roll=policy_state[3:4],state.pitch="
                              "policy_state[4:5],"
                              "state.yaw=policy_state[5:6],state.gripper=policy_state[6:8]\", "
                              "\"state_type\": \"float32\", \"prompt\": "
                              "\"annotation.human.action.task_description\", "
                              "\"actions\": "
                              "\"action.x,action.y,action.z,action.roll,action.pitch,action.yaw,"
                              "action.gripper\", \"execute\": 8, \"gripper\": \"unit-inverted\"}"},
    {"openvla", "openpi", "",
     "{\"protocol\": \"act\", \"images\": \"image=agentview_image\", \"prompt\": \"instruction\", "
     "\"actions\": \"\", \"gripper\": \"unit-inverted\"}"},
    {"openvla-oft", "openpi", "",
     "{\"protocol\": \"act\", " LIBERO_IMAGES(
         "full_image", "wrist_image") ", \"states\": \"state=policy_state\", \"prompt\": "
                                      "\"instruction\", \"actions\": \"\", "
                                      "\"gripper\": \"unit-inverted\"}"},
    {NULL, NULL, NULL, NULL},
};

const struct policy_preset *policy_preset_find(const char *name)
{
    const struct policy_preset *p;

    for (p = presets; p->name; p++)
        if (strcmp(p->name, name) == 0)
            return p;
    return NULL;
}

// Schemes: the protocol that they name (-1 = the options say it), and the transport's scheme.
static const struct {
    const char *scheme, *transport;
    int protocol;
} schemes[] = {
    {"ws://", "ws://", -1},
    {"wss://", "wss://", -1},
    {"openpi+ws://", "ws://", POLICY_OPENPI},
    {"openpi+wss://", "wss://", POLICY_OPENPI},
    {"roboarena+ws://", "ws://", POLICY_ROBOARENA},
    {"roboarena+wss://", "wss://", POLICY_ROBOARENA},
    {"vllm-omni+ws://", "ws://", POLICY_VLLM_OMNI},
    {"vllm-omni+wss://", "wss://", POLICY_VLLM_OMNI},
    {"starvla+ws://", "ws://", POLICY_STARVLA},
    {"starvla+wss://", "wss://", POLICY_STARVLA},
    {"vla-eval+ws://", "ws://", POLICY_VLA_EVAL},
    {"vla-eval+wss://", "wss://", POLICY_VLA_EVAL},
    {"zmq://", "tcp://", POLICY_GR00T},
    {"gr00t+tcp://", "tcp://", POLICY_GR00T},
    {"http://", "http://", POLICY_ACT},
    {"act+http://", "http://", POLICY_ACT},
};

#define SCHEMES ((int)(sizeof schemes / sizeof schemes[0]))

static int scheme_of(const char *address)
{
    int i = 0;

    while (i < SCHEMES && strncmp(address, schemes[i].scheme, strlen(schemes[i].scheme)) != 0)
        i++;
    return i;
}

bool policy_is_address(const char *name)
{
    return scheme_of(name) < SCHEMES;
}

enum status policy_options_settings(const struct policy_options *o, char *buf, size_t size)
{
    static const char *const manner[] = {"name",       "batch_max",   "batch_wait", "connect_wait",
                                         "first_wait", "answer_wait", "mismatch_ok"};
    struct opt table[sizeof policy_opts / sizeof policy_opts[0]];
    const struct opt *opt;
    size_t i, n = 0;

    for (opt = policy_opts; opt->name; opt++) {
        for (i = 0; i < sizeof manner / sizeof manner[0] && strcmp(opt->name, manner[i]) != 0;)
            i++;
        if (i == sizeof manner / sizeof manner[0])
            table[n++] = *opt;
    }
    table[n] = (struct opt){0};
    return opts_dump(table, o, buf, size);
}

static enum status apply(struct policy_options *o, const char *json)
{
    char *text;
    enum status st;
    size_t n;

    if (json[0] != '@')
        return opts_json(policy_opts, o, json, "--policy-options");
    TRY(file_read(json + 1, &text, &n));
    st = opts_json(policy_opts, o, text, json + 1);
    mem_free(text);
    return st;
}

enum status policy_options_make(struct policy_options *out, const char *address, const char *preset,
                                const char *json, char *url, size_t size)
{
    const struct policy_preset *p = preset ? policy_preset_find(preset) : NULL;
    int i = scheme_of(address), n;

    if (i == SCHEMES)
        return FAIL(ST_INVAL, "'%.100s' is no address of a policy server", address);
    if (preset && !p)
        return FAIL(ST_INVAL, "there is no preset '%s' for remote policies: " POLICY_PRESET_NAMES,
                    preset);
    memset(out, 0, sizeof *out);
    TRY(opts_defaults(policy_opts, out));
    if (p)
        TRY(opts_json(policy_opts, out, p->options, "the preset"));
    if (json)
        TRY(apply(out, json));
    if (schemes[i].protocol >= 0)
        out->protocol = schemes[i].protocol;
    if (schemes[i].protocol < 0 && out->protocol >= POLICY_GR00T)
        return FAIL(ST_INVAL, "'%.100s': protocol %s does not go over WebSockets", address,
                    opt_choice_name(POLICY_PROTOCOL_CHOICES, out->protocol));
    n = snprintf(url, size, "%s%s", schemes[i].transport, address + strlen(schemes[i].scheme));
    return n > 0 && (size_t)n < size ? ST_OK : FAIL(ST_INVAL, "'%.100s...' is too long", address);
}

enum status policy_read_size(const char *text, int max, int *w, int *h)
{
    char *end;
    long x = strtol(text, &end, 10), y;

    if (end != text && *end == 'x') {
        const char *second = end + 1;

        y = strtol(second, &end, 10);
        if (end != second && !*end && x >= 1 && x <= max && y >= 1 && y <= max) {
            *w = (int)x;
            *h = (int)y;
            return ST_OK;
        }
    }
    return FAIL(ST_INVAL, "'%.40s' is no size of a picture, expected such as 256x256", text);
}

enum status policy_cameras(const struct policy_options *o, char *buf, size_t size)
{
    const char *p = o->images, *eq, *end;
    int w, h, n;

    buf[0] = '\0';
    if (!*p)
        return ST_OK;
    TRY(policy_read_size(o->camera_size, 8192, &w, &h));
    n = snprintf(buf, size, "\"cameras\": \"");
    for (; *p && n < (int)size; p = *end ? end + 1 : end) {
        end = p + strcspn(p, ",");
        eq = memchr(p, '=', (size_t)(end - p));
        if (!eq || end - eq < 8 || strncmp(end - 6, "_image", 6) != 0)
            return FAIL(ST_INVAL, "images: '%.*s', expected KEY=CAMERA_image", (int)(end - p), p);
        n += snprintf(buf + n, size - (size_t)n, "%s%.*s:%dx%d:%s", p == o->images ? "" : ",",
                      (int)(end - 6 - eq - 1), eq + 1, w, h,
                      opt_choice_name("opengl|upright|rot180", o->orient));
    }
    if (n < (int)size)
        n += snprintf(buf + n, size - (size_t)n, "\"");
    return n < (int)size ? ST_OK : FAIL(ST_INVAL, "images: too many pictures");
}
