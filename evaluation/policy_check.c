#include "evaluation/policy_check.h"

#include "common/base/log.h"
#include "common/base/text.h"

#include <cjson/cJSON.h>
#include <stdarg.h>
#include <string.h>

struct check {
    const struct policy_options *options;
    const struct policy_input *shape;
    int n_act, points;
};

static void point(struct check *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void point(struct check *k, const char *fmt, ...)
{
    char text[400];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    log_warn("eval", "the policy does not fit: %s", text);
    k->points++;
}

static const cJSON *member(const cJSON *j, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(j, name);
}

static int pictures(const struct check *k)
{
    int i, n = 0;

    for (i = 0; i < k->shape->n_item; i++)
        n += k->shape->items[i].picture;
    return n;
}

static int numbers(const struct check *k)
{
    int i, n = 0;

    for (i = 0; i < k->shape->n_item; i++)
        n += k->shape->items[i].picture ? 0 : (int)k->shape->items[i].value.shape[0];
    return n;
}

// [h, w], or one number for both.
static void check_size(struct check *k, const cJSON *size, const char *what)
{
    int i, h, w;

    if (cJSON_IsNumber(size)) {
        h = w = size->valueint;
    } else if (cJSON_GetArraySize(size) >= 2) {
        h = cJSON_GetArrayItem(size, 0)->valueint;
        w = cJSON_GetArrayItem(size, 1)->valueint;
    } else {
        return;
    }
    for (i = 0; i < k->shape->n_item; i++) {
        const struct policy_item *item = &k->shape->items[i];

        if (item->picture && ((int)item->value.shape[0] != h || (int)item->value.shape[1] != w))
            point(k, "%s is %dx%d (wide, high), '%s' is sent as %ux%u", what, w, h, item->key,
                  item->value.shape[1], item->value.shape[0]);
    }
}

static void check_roboarena(struct check *k, const cJSON *about)
{
    const cJSON *external = member(about, "n_external_cameras");
    int need = cJSON_IsNumber(external) ? external->valueint : -1;

    if (cJSON_IsTrue(member(about, "needs_wrist_camera")) && need >= 0)
        need++;
    if (need >= 0 && pictures(k) != need)
        point(k, "it needs %d pictures, %d are sent", need, pictures(k));
    if (cJSON_IsTrue(member(about, "needs_stereo_camera")))
        point(k, "it needs stereo cameras, which no task has");
    check_size(k, member(about, "image_resolution"), "image_resolution");
    if (cJSON_IsString(member(about, "action_space")))
        log_info("eval", "the policy's action_space is '%s'",
                 member(about, "action_space")->valuestring);
}

static void check_starvla(struct check *k, const cJSON *about)
{
    const cJSON *chunk = member(about, "action_chunk_size"), *keys;

    if (cJSON_IsNumber(chunk) && k->options->execute > chunk->valuedouble)
        point(k, "its chunks have %d actions, %lld are to be executed", chunk->valueint,
              (long long)k->options->execute);
    check_size(k, member(about, "training_obs_image_size"), "training_obs_image_size");
    keys = member(about, "state_keys");
    if (cJSON_GetArraySize(keys) > 0 && numbers(k) == 0)
        point(k, "it was trained with state_keys, no numbers are sent");
}

// vla-eval's DimSpec: dims and formats.
static int dims(const cJSON *spec)
{
    const cJSON *d = member(spec, "dims");

    return cJSON_IsNumber(d) ? d->valueint : 0;
}

static const char *format(const cJSON *spec)
{
    const cJSON *f = member(spec, "format");

    return cJSON_IsString(f) ? f->valuestring : "";
}

static bool accepts(const cJSON *spec, const char *wanted)
{
    const cJSON *list = member(spec, "accepts"), *a;

    if (!cJSON_IsArray(list))
        return strcmp(format(spec), wanted) == 0 || strcmp(format(spec), "raw") == 0;
    cJSON_ArrayForEach(a, list) if (cJSON_IsString(a) &&
                                    strcmp(a->valuestring, wanted) == 0) return true;
    return false;
}

static void check_format(struct check *k, const cJSON *spec, const char *what, const char *ours)
{
    if (spec && format(spec)[0] && !accepts(spec, ours))
        point(k, "its %s is '%s', the task's is '%s'", what, format(spec), ours);
}

static void check_vla_eval(struct check *k, const cJSON *about)
{
    const cJSON *action = member(about, "action_spec"), *obs = member(about, "observation_spec");
    const cJSON *params = member(about, "observation_params"), *part, *state;
    int sum = 0;

    cJSON_ArrayForEach(part, action) sum += dims(part);
    if (sum > 0 && sum != k->n_act)
        point(k, "its actions have %d numbers, the task takes %d", sum, k->n_act);
    check_format(k, member(action, "position"), "action's position", "delta_xyz");
    check_format(k, member(action, "rotation"), "action's rotation", "axis_angle");
    part = member(action, "gripper");
    if (k->options->gripper == GRIPPER_NONE || k->options->gripper == GRIPPER_SIGN)
        check_format(k, part, "action's gripper", "binary_close_positive");
    state = member(obs, "state");
    if (state && numbers(k) == 0)
        point(k, "it wants a state, no numbers are sent");
    else if (state && dims(state) > 0 && dims(state) != numbers(k))
        point(k, "it wants a state of %d numbers, %d are sent", dims(state), numbers(k));
    check_format(k, state, "state", "eef_pos3_axisangle3_gripper2");
    if (member(obs, "image") && pictures(k) == 0)
        point(k, "it wants pictures, none is sent");
    if (member(obs, "language") && !k->options->prompt[0])
        point(k, "it wants an instruction, none is sent");
    if (cJSON_IsTrue(member(params, "send_wrist_image")) && pictures(k) < 2)
        point(k, "it wants the wrist camera's picture (send_wrist_image)");
    if (cJSON_IsFalse(member(params, "send_wrist_image")) && pictures(k) > 1)
        point(k, "it wants no wrist camera's picture (send_wrist_image), one is sent");
    if (cJSON_IsTrue(member(params, "send_state")) && numbers(k) == 0)
        point(k, "it wants a state (send_state)");
}

// GR00T's modality config names what a checkpoint takes and gives, as JSON texts or maps.
static void check_modality(struct check *k, const cJSON *about, const char *modality)
{
    const cJSON *m = member(about, modality), *text = member(m, "as_json"), *keys, *key;
    cJSON *parsed = cJSON_IsString(text) ? config_parse(text->valuestring) : NULL;
    char wanted[160];
    bool action = strcmp(modality, "action") == 0, found;
    int i;

    keys = member(parsed ? parsed : m, "modality_keys");
    cJSON_ArrayForEach(key, keys)
    {
        if (!cJSON_IsString(key))
            continue;
        if (strncmp(key->valuestring, modality, strlen(modality)) == 0)
            snprintf(wanted, sizeof wanted, "%s", key->valuestring);
        else
            snprintf(wanted, sizeof wanted, "%s.%s", modality, key->valuestring);
        found = action && strstr(k->options->actions, wanted);
        for (i = 0; !action && i < k->shape->n_item; i++)
            found |= strcmp(k->shape->items[i].key, wanted) == 0;
        if (!found)
            point(k, action ? "it gives '%s', which no action takes" : "it wants '%s'", wanted);
    }
    cJSON_Delete(parsed);
}

int policy_check(const struct policy_options *options, const char *about,
                 const struct policy_view *view, int n_act)
{
    struct check k = {.options = options, .shape = policy_view_shape(view), .n_act = n_act};
    cJSON *j = config_parse(about);

    switch (options->protocol) {
    case POLICY_ROBOARENA:
        check_roboarena(&k, j);
        break;
    case POLICY_STARVLA:
        check_starvla(&k, j);
        break;
    case POLICY_VLA_EVAL:
        check_vla_eval(&k, j);
        break;
    case POLICY_GR00T:
        check_modality(&k, j, "video");
        check_modality(&k, j, "state");
        check_modality(&k, j, "action");
        break;
    default: // the others say nothing that could be checked, or in no agreed form
        check_size(&k, member(j, "image_resolution"), "image_resolution");
    }
    cJSON_Delete(j);
    return k.points;
}
