// vla_policy_testing.h - weights of a small vision-language-action policy for tests.
#ifndef TESTS_VLA_POLICY_TESTING_H
#define TESTS_VLA_POLICY_TESTING_H

#include "tests/testing.h"

#include "nn/weights.h"

#include <stdio.h>

#define VLA_POLICY_SIZES                                                                   \
    "{\"cameras\": 2, \"image\": 4, \"patch\": 2, \"vocab\": 300, \"state\": 8, "          \
    "\"action\": 3, \"chunk\": 4, \"vision_width\": 8, \"vision_layers\": 1, "             \
    "\"vision_heads\": 2, \"vision_mlp\": 8, \"width\": 16, \"layers\": 2, \"heads\": 2, " \
    "\"kv_heads\": 1, \"head_dim\": 8, \"mlp\": 16, \"expert_width\": 12, \"expert_mlp\": 12"

#define VLA_POLICY_WORDS "simstream-bpe 1 words\nt h\nth e\n"

// Of random parameters, cameras agentview_image and robot0_eye_in_hand_image, upright; action k
// between -1 - k and 1 + 2 k.
static inline struct weights *vla_policy_weights_of(const char *json, uint64_t seed)
{
    static const char *const cameras[] = {"agentview_image", "robot0_eye_in_hand_image"};
    struct vla_input in = {.n_camera = 2, .n_action = 3};
    struct vla_config c;
    struct vla_table t;
    struct vla_about *a;
    struct weights *w;

    for (int i = 0; i < 2; i++) {
        snprintf(in.camera[i].picture, SPEC_NAME_MAX, "%s", cameras[i]);
        in.camera[i].orient = 1;
    }
    for (int i = 0; i < VLA_STATE; i++) {
        in.state_mean[i] = 0.1 * i;
        in.state_std[i] = 0.5;
    }
    for (int i = 0; i < 3; i++) {
        in.action_low[i] = -1 - i;
        in.action_high[i] = 1 + 2 * i;
    }
    assert_ok(vla_config_parse(&c, json, "sizes"));
    assert_ok(vla_about_create(&a, &c, &in, VLA_POLICY_WORDS, strlen(VLA_POLICY_WORDS)));
    snprintf(a->kwargs, sizeof a->kwargs, "{\"cameras\": \"default\"}");
    assert_ok(weights_create_vla(&w, a));
    assert_ok(vla_table_init(&t, &c));
    vla_init(&c, &t, seed, -1, w->params);
    vla_table_fini(&t);
    vla_about_destroy(a);
    w->version = seed;
    return w;
}

static inline struct weights *vla_policy_weights(uint64_t seed)
{
    return vla_policy_weights_of(VLA_POLICY_SIZES "}", seed);
}

static inline struct weights *vla_policy_weights_flow(uint64_t seed)
{
    return vla_policy_weights_of(VLA_POLICY_SIZES ", \"head\": \"flow\", \"steps\": 3}", seed);
}

#endif
