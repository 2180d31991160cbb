// Tasks: names, keyword arguments, model files.
#include "tests/testing.h"

#include "scenes/scene.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define N_TASK 17 // 11 of Gymnasium, 6 suites

static void the_registry_is_sorted_and_complete(void **state)
{
    int i, member;

    (void)state;
    for (i = 0; i < N_TASK; i++) {
        const struct scene_task *task = scene_task_at(i);

        assert_non_null(task);
        if (i > 0)
            assert_true(strcmp(scene_task_at(i - 1)->name, task->name) < 0);
        if (task->members)
            continue;
        assert_ptr_equal(scene_task_find(task->name, &member), task);
        assert_true(strlen(task->instruction) > 0);
    }
    assert_null(scene_task_at(N_TASK));
    assert_null(scene_task_at(INT_MAX));
    assert_null(scene_task_at(-1));
    assert_null(scene_task_find("Ant", &member));
}

static void members_of_suites_are_found_by_index(void **state)
{
    static const char *const none[] = {"libero_spatial",
                                       "libero_spatial/",
                                       "libero_spatial/10",
                                       "libero_spatial/-1",
                                       "libero_spatial/03",
                                       "libero_spatial/1x",
                                       "libero_90/99999999999999999999",
                                       "libero/1"};
    const struct scene_task *task;
    int member = 0;

    (void)state;
    task = scene_task_find("libero_spatial/3", &member);
    assert_non_null(task);
    assert_string_equal(task->name, "libero_spatial");
    assert_int_equal(member, 3);
    assert_string_equal(task->members[3].instruction,
                        "pick up the black bowl on the cookie box and place it on the plate");
    task = scene_task_find("libero_90/89", &member);
    assert_non_null(task);
    assert_int_equal(task->n_member, 90);
    assert_int_equal(member, 89);
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        assert_null(scene_task_find(none[i], &member));
}

static void an_unknown_task_offers_the_nearest_name(void **state)
{
    struct scene *scene = NULL;
    char endless[1000];

    (void)state;
    assert_fails(scene_create(&scene, "Hoper-v5", ""), ST_INVAL, "the nearest is 'Hopper-v5'");
    assert_fails(scene_create(&scene, "halfcheetah", ""), ST_INVAL, "'HalfCheetah-v5'");
    assert_fails(scene_create(&scene, "HumanoidStandUp", ""), ST_INVAL, "'HumanoidStandup-v5'");
    assert_fails(scene_create(&scene, "Ant-v4", ""), ST_INVAL, "unknown task 'Ant-v4'");
    assert_fails(scene_create(&scene, "libero_spatal/7", ""), ST_INVAL, "'libero_spatial/7'");
    assert_fails(scene_create(&scene, "", ""), ST_INVAL, "unknown task ''");
    memset(endless, 'a', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    assert_fails(scene_create(&scene, endless, ""), ST_INVAL, "unknown task");
    assert_null(scene);
}

static void bad_keyword_arguments_are_named(void **state)
{
    static const struct {
        const char *task, *kwargs, *part;
        enum status st;
    } bad[] = {
        {"Ant-v5", "{\"speed\": 3}", "unknown option 'speed'", ST_INVAL},
        {"Ant-v5", "{\"speed\": 3}", "healthy_z_range", ST_INVAL}, // the text lists what there is
        {"Hopper-v5", "{\"main_body\": 1}", "main_body", ST_INVAL},
        {"Ant-v5", "{\"healthy_reward\": \"much\"}", "healthy_reward", ST_INVAL},
        {"Ant-v5", "{\"healthy_reward\": [1]}", "healthy_reward", ST_INVAL},
        {"Ant-v5", "{\"healthy_reward\": null}", "healthy_reward", ST_INVAL},
        {"Ant-v5", "{\"terminate_when_unhealthy\": 1}", "terminate_when_unhealthy", ST_INVAL},
        {"Ant-v5", "{\"terminate_when_unhealthy\": \"no\"}", "terminate_when_unhealthy", ST_INVAL},
        {"Ant-v5", "{\"healthy_z_range\": [1]}", "healthy_z_range", ST_INVAL},
        {"Ant-v5", "{\"healthy_z_range\": [1, 2, 3]}", "healthy_z_range", ST_INVAL},
        {"Ant-v5", "{\"healthy_z_range\": [1, true]}", "healthy_z_range", ST_INVAL},
        {"Ant-v5", "{\"healthy_z_range\": [\"nan\", 1]}", "healthy_z_range", ST_INVAL},
        {"Ant-v5", "{\"frame_skip\": 0}", "frame_skip", ST_INVAL},
        {"Ant-v5", "{\"frame_skip\": 1.5}", "frame_skip", ST_INVAL},
        {"Ant-v5", "{\"max_episode_steps\": -2}", "max_episode_steps", ST_INVAL},
        {"Ant-v5", "{\"reset_noise_scale\": -0.1}", "reset_noise_scale", ST_INVAL},
        {"Ant-v5", "{\"main_body\": 99}", "main_body is 99", ST_INVAL},
        {"Ant-v5", "{\"main_body\": -1}", "main_body is -1", ST_INVAL},
        {"Ant-v5", "{\"main_body\": \"hat\"}", "no body 'hat'", ST_INVAL},
        {"Ant-v5", "{\"xml_file\": \"absent.xml\"}", "absent.xml", ST_MISSING},
        {"Ant-v5", "{\"xml_file\": \"/absent/ant.xml\"}", "'/absent/ant.xml'", ST_MISSING},
        {"Ant-v5", "{\"xml_file\": \"~someone/ant.xml\"}", "~someone/ant.xml", ST_INVAL},
        {"Ant-v5", "{\"xml_file\": \"..\"}", "'..' is no file", ST_INVAL},
        {"Ant-v5", "{\"xml_file\": \"/dev/zero\"}", "'/dev/zero' is no file", ST_INVAL},
        {"Pusher-v5", "{\"xml_file\": \"reacher.xml\"}", "at least 11 and 11", ST_INVAL},
        {"Pusher-v5", "{\"xml_file\": \"ant.xml\"}", "no body 'tips_arm'", ST_INVAL},
        {"Reacher-v5", "{\"xml_file\": \"ant.xml\"}", "expected 4", ST_INVAL},
        {"Hopper-v5", "{\"xml_file\": \"inverted_pendulum.xml\"}", "at least 3", ST_INVAL},
        {"InvertedDoublePendulum-v5", "{\"xml_file\": \"hopper.xml\"}", "two links", ST_INVAL},
        {"Ant-v5", "{", "not a JSON object", ST_INVAL},
        {"Ant-v5", "[1]", "not a JSON object", ST_INVAL},
        {"Ant-v5", "frame_skip=5", "not a JSON object", ST_INVAL},
    };
    struct scene *scene = NULL;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_fails(scene_create(&scene, bad[i].task, bad[i].kwargs), bad[i].st, bad[i].part);
    assert_null(scene);
}

static void rendering_keywords_say_so(void **state)
{
    static const char *const words[] = {
        "default_camera_config", "width",       "height",   "camera_id",
        "camera_name",           "render_mode", "max_geom", "visual_options",
    };
    struct scene *scene = NULL;
    size_t i;
    int t;

    (void)state;
    for (i = 0; i < sizeof words / sizeof words[0]; i++) {
        for (t = 0; t < N_TASK; t++) {
            char kwargs[64], part[96];

            snprintf(kwargs, sizeof kwargs, "{\"%s\": 64}", words[i]);
            snprintf(part, sizeof part, "keyword '%s' is about rendering", words[i]);
            if (!scene_task_at(t)->members)
                assert_fails(scene_create(&scene, scene_task_at(t)->name, kwargs), ST_INVAL, part);
        }
    }
    assert_null(scene);
}

static void frame_skip_and_time_limit_are_options(void **state)
{
    static const char *const none[] = {"{\"max_episode_steps\": 0}", "{\"max_episode_steps\": -1}"};
    const struct scene_common *common;
    struct scene *s = NULL;
    size_t i;

    (void)state;
    assert_ok(scene_create(&s, "Hopper-v5", "{\"frame_skip\": 1, \"max_episode_steps\": 7}"));
    common = s->params;
    assert_close(s->dt_s, 0.002, 1e-12, 0);
    assert_int_equal(common->frame_skip, 1);
    assert_int_equal(common->max_episode_steps, 7);
    scene_destroy(s);
    for (i = 0; i < 2; i++) {
        assert_ok(scene_create(&s, "Hopper-v5", none[i]));
        assert_int_equal(((const struct scene_common *)s->params)->max_episode_steps, 0);
        scene_destroy(s);
    }
}

static void a_model_file_may_be_a_path(void **state)
{
    char dir[PATH_MAX], kwargs[PATH_MAX + 32], home[PATH_MAX];
    struct scene *s = NULL;

    (void)state;
    assert_ok(scene_asset_dir("gym", dir, sizeof dir));
    snprintf(kwargs, sizeof kwargs, "{\"xml_file\": \"%s/hopper.xml\"}", dir);
    assert_ok(scene_create(&s, "Hopper-v5", kwargs));
    assert_int_equal(s->n_obs, 11);
    scene_destroy(s);
    snprintf(home, sizeof home, "%s", getenv("HOME") ? getenv("HOME") : "/");
    assert_int_equal(setenv("HOME", dir, 1), 0);
    assert_ok(scene_create(&s, "Hopper-v5", "{\"xml_file\": \"~/hopper.xml\"}"));
    assert_int_equal(setenv("HOME", home, 1), 0);
    scene_destroy(s);
}

// Write a model of `n_act` motors on a free body's hinge to a scratch file; its kwargs.
static void own_model(int n_act, char *path, size_t size, char *kwargs, size_t kwargs_size)
{
    FILE *f;
    int fd, k;

    snprintf(path, size, "/tmp/test_scene.XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    f = fdopen(fd, "w");
    assert_non_null(f);
    fputs("<mujoco><worldbody><body name='torso'><freejoint/><geom size='.1'/>"
          "<body><joint name='j' axis='0 1 0'/><geom size='.1' pos='1 0 0'/></body></body>"
          "</worldbody><actuator>",
          f);
    for (k = 0; k < n_act; k++)
        fputs("<motor joint='j' ctrlrange='-1 1'/>", f);
    fputs("</actuator></mujoco>", f);
    assert_int_equal(fclose(f), 0);
    snprintf(kwargs, kwargs_size, "{\"xml_file\": \"%s\"}", path);
}

static void own_models_are_checked(void **state)
{
    char path[64], kwargs[128];
    struct scene *s = NULL;
    FILE *f;

    (void)state;
    own_model(3, path, sizeof path, kwargs, sizeof kwargs);
    assert_ok(scene_create(&s, "Humanoid-v5", kwargs));
    assert_int_equal(s->n_obs, 8 - 2 + 7 + 20 + 12 + 1 + 12);
    assert_int_equal(s->n_info_key, 9); // this one has no tendons
    assert_int_equal(s->n_info, 9);
    scene_destroy(s);
    s = NULL;
    f = fopen(path, "w");
    assert_non_null(f);
    fputs("<mujoco><nonsense/></mujoco>", f);
    fclose(f);
    assert_fails(scene_create(&s, "Humanoid-v5", kwargs), ST_INVAL, "nonsense");
    (void)unlink(path);
    own_model(0, path, sizeof path, kwargs, sizeof kwargs);
    assert_fails(scene_create(&s, "Humanoid-v5", kwargs), ST_INVAL, "has 0 actuators");
    (void)unlink(path);
    own_model(65, path, sizeof path, kwargs, sizeof kwargs);
    assert_fails(scene_create(&s, "Humanoid-v5", kwargs), ST_INVAL, "has 65 actuators");
    (void)unlink(path);
    assert_null(s);
}

static void too_many_info_terms_are_an_error(void **state)
{
    struct scene scene = {.task = scene_task_at(0)};
    int i;

    (void)state;
    for (i = 0; i < SCENE_INFO_MAX; i++)
        assert_ok(scene_add_info(&scene, "term", 2, false));
    assert_int_equal(scene.n_info, 2 * SCENE_INFO_MAX);
    assert_ok(scene_add_info(&scene, "nothing", 0, false)); // takes no place
    assert_fails(scene_add_info(&scene, "term", 1, false), ST_INVAL, "info terms");
    assert_int_equal(scene.n_info_key, SCENE_INFO_MAX);
}

static void running_out_of_memory_leaves_nothing_behind(void **state)
{
    struct scene *scene = NULL;
    int64_t n, live = mem_live();

    (void)state;
    for (n = 0;; n++) {
        mem_fail_after(n);
        if (scene_create(&scene, "InvertedPendulum-v5", "{\"frame_skip\": 3}") == ST_OK)
            break;
        assert_null(scene);
        assert_int_equal(error_last()->code, ST_NOMEM);
        assert_true(mem_live() == live);
    }
    mem_fail_after(-1);
    assert_true(n >= 4);
    scene_destroy(scene);
    scene_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(the_registry_is_sorted_and_complete),
        leak_test(members_of_suites_are_found_by_index),
        leak_test(an_unknown_task_offers_the_nearest_name),
        leak_test(bad_keyword_arguments_are_named),
        leak_test(rendering_keywords_say_so),
        leak_test(frame_skip_and_time_limit_are_options),
        leak_test(a_model_file_may_be_a_path),
        leak_test(own_models_are_checked),
        leak_test(too_many_info_terms_are_an_error),
        leak_test(running_out_of_memory_leaves_nothing_behind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
