// What a remote policy is shown, what its options mean, and how its own words are checked.
#include "evaluation/policy_view.h"

#include "common/base/log.h"
#include "common/wire/spec.h"
#include "evaluation/policy_check.h"
#include "evaluation/resize.h"
#include "tests/log_testing.h"
#include "tests/testing.h"

#include <stdio.h>

#define W 4
#define H 3

static int setup(void **state)
{
    log_capture();
    return leak_setup(state);
}

static int teardown(void **state)
{
    log_set_sink(NULL, NULL);
    return leak_teardown(state);
}

// Two pictures, the second with the given orientation, and eight numbers.
static const struct spec *toy(uint32_t orient)
{
    static struct spec spec;
    struct spec_picture front = {.name = "front_image", .camera = "front", .width = W, .height = H};
    struct spec_picture hand = front;

    spec = (struct spec){.task = "Toy",
                         .instruction = "do it",
                         .n_obs = 8,
                         .n_act = 7,
                         .n_field = 2,
                         .fields = {{"pos", 0, 5}, {"vel", 5, 3}}};
    snprintf(hand.name, sizeof hand.name, "hand_image");
    hand.orient = orient;
    assert_ok(spec_add_picture(&spec, &front));
    assert_ok(spec_add_picture(&spec, &hand));
    return &spec;
}

static void read_options(struct policy_options *o, const char *json)
{
    char url[64];

    assert_ok(policy_options_make(o, "ws://x", NULL, json, url, sizeof url));
}

// A pixel's colour says where it was.
static void paint(uint8_t *p)
{
    int i;

    for (i = 0; i < W * H; i++) {
        p[3 * i] = (uint8_t)(i % W);
        p[3 * i + 1] = (uint8_t)(i / W);
        p[3 * i + 2] = 77;
    }
}

static void pictures_are_turned_as_the_policy_wants(void **state)
{
    static const char *const names[] = {"opengl", "upright", "rot180"};
    uint32_t given, wanted;

    (void)state;
    for (given = 0; given < 3; given++)
        for (wanted = 0; wanted < 3; wanted++) {
            const struct spec *spec = toy(given);
            uint8_t *pictures = mem_alloc(spec->picture_bytes, 1), *scratch;
            const uint8_t *got;
            struct policy_options o;
            struct policy_view *v;
            struct policy_input in;
            double obs[8] = {0};
            char json[128];
            int x, y;

            // opengl has row 0 at the bottom; upright has it at the top; rot180 also mirrors
            bool flip_v = (given == 0) != (wanted == 0), flip_h = (given == 2) != (wanted == 2);

            snprintf(json, sizeof json, "{\"images\": \"i=hand_image\", \"orient\": \"%s\"}",
                     names[wanted]);
            read_options(&o, json);
            assert_ok(policy_view_create(&v, spec, &o));
            scratch = mem_alloc(policy_view_scratch(v), 1);
            paint(pictures + spec->pictures[1].offset);
            policy_view_make(v, obs, pictures, scratch, &in);
            assert_int_equal(in.n_item, 1);
            assert_string_equal(in.items[0].key, "i");
            got = in.items[0].value.data;
            for (y = 0; y < H; y++)
                for (x = 0; x < W; x++, got += 3) {
                    assert_int_equal(got[0], flip_h ? W - 1 - x : x);
                    assert_int_equal(got[1], flip_v ? H - 1 - y : y);
                    assert_int_equal(got[2], 77);
                }
            policy_view_destroy(v);
            mem_free(scratch);
            mem_free(pictures);
        }
}

static void pictures_are_turned_before_they_are_resized(void **state)
{
    const struct spec *spec = toy(0);
    uint8_t *pictures = mem_alloc(spec->picture_bytes, 1), *scratch, turned[W * H * 3];
    uint8_t want[5 * 8 * 3], between[4096];
    struct policy_options o;
    struct policy_view *v;
    struct policy_input in;
    struct resize *r;
    double obs[8] = {0};
    int i;

    (void)state;
    read_options(&o, "{\"images\": \"a=front_image,b=hand_image\", \"orient\": \"rot180\", "
                     "\"resize\": \"pad\", \"resize_to\": \"5x8\"}");
    assert_ok(policy_view_create(&v, spec, &o));
    scratch = mem_alloc(policy_view_scratch(v), 1);
    for (i = 0; i < W * H * 3; i++)
        pictures[i] = (uint8_t)(i * 37);
    for (i = 0; i < W * H; i++)
        memcpy(turned + 3 * i, pictures + 3 * (W * H - 1 - i), 3);
    memset(want, 0xaa, sizeof want);
    assert_ok(resize_create(&r, RESIZE_PAD, W, H, 5, 8));
    resize_run(r, turned, want, between);
    policy_view_make(v, obs, pictures, scratch, &in);
    assert_int_equal(in.n_item, 2);
    assert_int_equal(in.items[0].value.shape[0], 8);
    assert_int_equal(in.items[0].value.shape[1], 5);
    assert_memory_equal(in.items[0].value.data, want, sizeof want);
    resize_destroy(r);
    policy_view_destroy(v);
    mem_free(scratch);
    mem_free(pictures);
}

static void numbers_are_picked_in_order(void **state)
{
    const struct spec *spec = toy(0);
    double obs[8] = {0.1, 1, 2, 3, 4, 5, 6, 7}, want[5] = {6, 7, 0.1, 1, 2};
    float single[5] = {6, 7, 0.1f, 1, 2};
    struct policy_options o;
    struct policy_view *v;
    struct policy_input in;
    uint8_t scratch[512];

    (void)state;
    read_options(&o, "{\"states\": \"s=vel[1:3]+pos[0:3],all=pos+vel\"}");
    assert_ok(policy_view_create(&v, spec, &o));
    assert_true(policy_view_scratch(v) <= sizeof scratch);
    policy_view_make(v, obs, NULL, scratch, &in);
    assert_int_equal(in.items[0].value.type, TENSOR_F8);
    assert_int_equal(in.items[0].value.shape[0], 5);
    assert_memory_equal(in.items[0].value.data, want, sizeof want);
    assert_memory_equal(in.items[1].value.data, obs, sizeof obs);
    policy_view_destroy(v);
    read_options(&o, "{\"states\": \"s=vel[1:3]+pos[0:3]\", \"state_type\": \"float32\"}");
    assert_ok(policy_view_create(&v, spec, &o));
    policy_view_make(v, obs, NULL, scratch, &in);
    assert_int_equal(in.items[0].value.type, TENSOR_F4);
    assert_memory_equal(in.items[0].value.data, single, sizeof single);
    policy_view_destroy(v);
}

static void presets_and_schemes_are_what_they_say(void **state)
{
    static const struct {
        const char *name, *scheme, *url;
        int protocol, execute;
    } cases[] = {
        {"openpi", "ws://h:1", "ws://h:1", POLICY_OPENPI, 5},
        {"starvla", "ws://h:1", "ws://h:1", POLICY_STARVLA, 0},
        {"starvla", "starvla+wss://h:1/x", "wss://h:1/x", POLICY_STARVLA, 0},
        {"vla-eval", "ws://h:1", "ws://h:1", POLICY_VLA_EVAL, 0},
        {"gr00t", "gr00t+tcp://h:1", "tcp://h:1", POLICY_GR00T, 8},
        {"openvla", "http://h:1", "http://h:1", POLICY_ACT, 0},
        {"openvla-oft", "act+http://h:1", "http://h:1", POLICY_ACT, 0},
    };
    struct policy_options o;
    char url[64], cameras[256];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_true(policy_is_address(cases[i].scheme));
        assert_ok(policy_options_make(&o, cases[i].scheme, cases[i].name, NULL, url, sizeof url));
        assert_int_equal(o.protocol, cases[i].protocol);
        assert_int_equal(o.execute, cases[i].execute);
        assert_string_equal(url, cases[i].url);
        assert_ok(policy_cameras(&o, cameras, sizeof cameras));
        assert_non_null(strstr(cameras, "\"cameras\": \"agentview:256x256:rot180"));
    }
    assert_false(policy_is_address("policy.h5"));
    assert_false(policy_is_address("tcp://env:5555"));
    assert_ok(
        policy_options_make(&o, "ws://h", "openpi", "{\"camera_size\": \"64\"}", url, sizeof url));
    assert_fails(policy_cameras(&o, cameras, sizeof cameras), ST_INVAL, "'64' is no size");
    read_options(&o, "{\"images\": \"i=front\"}");
    assert_fails(policy_cameras(&o, cameras, sizeof cameras), ST_INVAL, "KEY=CAMERA_image");
}

static int points(const char *options, const char *about)
{
    struct policy_options o;
    struct policy_view *v;
    int n;

    log_text[0] = '\0';
    read_options(&o, options);
    assert_ok(policy_view_create(&v, toy(0), &o));
    n = policy_check(&o, about, v, 7);
    policy_view_destroy(v);
    return n;
}

#define STATE "\"states\": \"state.s=pos+vel\", \"images\": \"video.i=front_image\""

static void the_servers_words_are_checked(void **state)
{
    (void)state;
    assert_int_equal(points("{" STATE "}", "{}"), 0);
    assert_int_equal(points("{" STATE "}", "not json"), 0);
    assert_int_equal(points("{" STATE ", \"protocol\": \"roboarena\"}",
                            "{\"image_resolution\": [3, 4], \"n_external_cameras\": 1, "
                            "\"needs_wrist_camera\": false, \"needs_stereo_camera\": false}"),
                     0);
    assert_int_equal(points("{" STATE ", \"protocol\": \"roboarena\"}",
                            "{\"image_resolution\": [4, 3], \"n_external_cameras\": 2, "
                            "\"needs_wrist_camera\": true, \"needs_stereo_camera\": true}"),
                     3);
    assert_non_null(strstr(log_text, "needs 3 pictures, 1 are sent"));
    assert_non_null(strstr(log_text, "image_resolution is 3x4 (wide, high), 'video.i' is sent as "
                                     "4x3"));
    assert_int_equal(points("{" STATE ", \"protocol\": \"starvla\", \"execute\": 8}",
                            "{\"action_chunk_size\": 4, \"training_obs_image_size\": 224}"),
                     2);
    assert_non_null(strstr(log_text, "chunks have 4 actions, 8 are to be executed"));
    assert_int_equal(
        points("{" STATE ", \"protocol\": \"vla-eval\"}",
               "{\"action_spec\": {\"a\": {\"dims\": 8}}, \"observation_spec\": {\"state\": "
               "{\"dims\": 9, \"format\": \"joint_positions\"}}, \"observation_params\": "
               "{\"send_wrist_image\": true}}"),
        4);
    assert_int_equal(
        points("{" STATE ", \"protocol\": \"vla-eval\"}",
               "{\"observation_spec\": {\"state\": {\"dims\": 8, \"format\": \"x\", \"accepts\": "
               "[\"x\", \"eef_pos3_axisangle3_gripper2\"]}}}"),
        0);
}

static void gr00ts_modalities_are_checked(void **state)
{
    static const char about[] =
        "{\"video\": {\"__ModalityConfig_class__\": true, \"as_json\": \"{\\\"modality_keys\\\": "
        "[\\\"video.i\\\", \\\"wrist\\\"]}\"}, \"state\": {\"modality_keys\": [\"s\"]}, "
        "\"action\": {\"modality_keys\": [\"action.x\", \"base\"]}}";
    char url[64];
    struct policy_options o;
    struct policy_view *v;

    (void)state;
    assert_ok(policy_options_make(&o, "zmq://x", NULL, "{" STATE ", \"actions\": \"action.x\"}",
                                  url, sizeof url));
    assert_ok(policy_view_create(&v, toy(0), &o));
    assert_int_equal(policy_check(&o, about, v, 7), 2);
    assert_non_null(strstr(log_text, "wants 'video.wrist'"));
    assert_non_null(strstr(log_text, "gives 'action.base'"));
    policy_view_destroy(v);
}

#define log_test(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        log_test(pictures_are_turned_as_the_policy_wants),
        log_test(pictures_are_turned_before_they_are_resized),
        log_test(numbers_are_picked_in_order),
        log_test(presets_and_schemes_are_what_they_say),
        log_test(the_servers_words_are_checked),
        log_test(gr00ts_modalities_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
