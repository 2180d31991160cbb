#define _GNU_SOURCE // dladdr, RTLD_DEFAULT, CPU_COUNT
#include "cli/cmd.h"
#include "cli/devices.h"
#include "cli/limits.h"

#include "common/base/json.h"
#include "common/base/thread.h"
#include "common/wire/spec.h"
#include "scenes/engine.h"
#include "scenes/libero/data.h"
#include "scenes/scene.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>

#define CHECKS_MAX 16
#define MIB        (1024.0 * 1024.0)

struct doctor_options {
    bool json;
};

static const struct opt table[] = {
    {"json", OPT_BOOL, offsetof(struct doctor_options, json), 0, 1, "false", "print JSON", NULL},
    {0},
};

struct check {
    const char *name;
    bool required, found;
    char detail[PATH_MAX + 128]; // version and place, or what is wrong
    char advice[256];            // what to install or set; "" = nothing
};

struct fit { // how many envs of a task the free memory holds for sure
    const char *task;
    double env_mib; // that the engine reserves; it touches less
    int64_t n_env;
};

struct findings {
    int n_check, n_fit;
    struct check check[CHECKS_MAX];
    struct devices egl, gpu;
    struct limits limits;
    struct fit fit[3];
};

static struct check *add(struct findings *f, const char *name, bool required)
{
    struct check *c = &f->check[f->n_check++];

    c->name = name;
    c->required = required;
    return c;
}

// --- libraries ----------------------------------------------------------------------------------
//
// Their headers have other homes, so versions are asked for by symbol.

static void *find(const char *symbol)
{
    return dlsym(RTLD_DEFAULT, symbol);
}

static const char *place_of(const void *symbol)
{
    Dl_info info;

    return symbol && dladdr(symbol, &info) ? info.dli_fname : "?";
}

// A library whose function `symbol` gives its version as text.
static void check_library(struct findings *f, const char *name, const char *symbol,
                          const char *package)
{
    struct check *c = add(f, name, true);
    void *p = find(symbol);
    const char *(*version)(void);

    memcpy(&version, &p, sizeof p);
    c->found = p != NULL;
    if (c->found)
        snprintf(c->detail, sizeof c->detail, "%s, %s", version(), place_of(p));
    else
        snprintf(c->detail, sizeof c->detail, "not loaded");
    if (!c->found)
        snprintf(c->advice, sizeof c->advice, "apt-get install %s", package);
}

static void check_hdf5(struct findings *f)
{
    struct check *c = add(f, "HDF5", true);
    void *p = find("H5get_libversion");
    int (*version)(unsigned *major, unsigned *minor, unsigned *release);
    unsigned major, minor, release;

    memcpy(&version, &p, sizeof p);
    c->found = p && version(&major, &minor, &release) >= 0;
    if (c->found) {
        snprintf(c->detail, sizeof c->detail, "%u.%u.%u, %s", major, minor, release, place_of(p));
    } else {
        snprintf(c->detail, sizeof c->detail, "not loaded");
        snprintf(c->advice, sizeof c->advice, "apt-get install libhdf5-103-1");
    }
}

static void check_mujoco(struct findings *f)
{
    struct check *c = add(f, "MuJoCo", true);
    int built = mjVERSION_HEADER, loaded = mj_version();

    c->found = built == loaded;
    snprintf(c->detail, sizeof c->detail, "%s, %s", mj_versionString(),
             place_of(find("mj_version")));
    if (!c->found)
        snprintf(c->advice, sizeof c->advice,
                 "built for version number %d, loaded %d: put the matching libmujoco.so first in "
                 "the library path, or build again with -DMUJOCO_DIR",
                 built, loaded);
}

// A processor that is newer than the library gets its kernels for the oldest one.
static void check_blas(struct findings *f)
{
    struct check *c;

    check_library(f, "OpenBLAS", "openblas_get_config", "libopenblas0-pthread");
    check_library(f, "OpenBLAS kernels", "openblas_get_corename", "libopenblas0-pthread");
    c = &f->check[f->n_check - 1];
#if defined(__x86_64__)
    if (strncmp(c->detail, "Prescott", 8) == 0 && __builtin_cpu_supports("avx2"))
        snprintf(c->advice, sizeof c->advice,
                 "slow ones, since OpenBLAS does not know this processor; for learner and train "
                 "set OPENBLAS_CORETYPE=%s",
                 __builtin_cpu_supports("avx512f") ? "SkylakeX" : "Haswell");
#endif
}

static void check_libraries(struct findings *f)
{
    check_mujoco(f);
    check_library(f, "nng", "nng_version", "libnng1");
    check_hdf5(f);
    check_blas(f);
    check_library(f, "cJSON", "cJSON_Version", "libcjson1");
}

// --- models, devices ----------------------------------------------------------------------------

static void check_models(struct findings *f)
{
    struct check *c = add(f, "Gymnasium models", true);

    c->found = scene_asset_dir("gym", c->detail, sizeof c->detail) == ST_OK;
    if (c->found)
        return;
    snprintf(c->detail, sizeof c->detail, "%s", error_last()->text);
    snprintf(c->advice, sizeof c->advice, "make setup, then make install again");
}

static void check_libero(struct findings *f)
{
    struct check *c = add(f, "LIBERO's files", false);
    struct data_dirs dirs;

    c->found = data_find_libero(&dirs, "", "1.4.1") == ST_OK;
    snprintf(c->detail, sizeof c->detail, "%.*s", (int)sizeof c->detail - 1,
             c->found ? dirs.root : error_last()->text);
    if (!c->found)
        snprintf(c->advice, sizeof c->advice, "make libero-data");
}

// The whole chain once: compile the model of `task` and measure a world of it.
static enum status measure_task(const char *task, double *mib)
{
    struct engine_trap trap;
    mjData *volatile d = NULL;
    struct scene *scene;

    TRY(scene_create(&scene, task, ""));
    if (ENGINE_TRY(&trap)) {
        d = mj_makeData(scene->model);
        engine_end(&trap);
    }
    if (d)
        *mib = (double)(sizeof *d + (size_t)d->nbuffer + (size_t)d->narena) / MIB;
    mj_deleteData(d);
    scene_destroy(scene);
    return d ? ST_OK : FAIL(ST_NOMEM, "the engine cannot make a world of task '%s'", task);
}

static void check_tasks(struct findings *f)
{
    static const char *const sizes[] = {"InvertedPendulum-v5", "Ant-v5", "Humanoid-v5"};
    struct check *c = add(f, "task models", true);
    size_t i;

    c->found = true;
    for (i = 0; i < sizeof sizes / sizeof sizes[0] && c->found; i++) {
        struct fit *fit = &f->fit[f->n_fit];
        double n;

        if (measure_task(sizes[i], &fit->env_mib) != ST_OK) {
            c->found = false;
            snprintf(c->detail, sizeof c->detail, "%s", error_last()->text);
            snprintf(c->advice, sizeof c->advice, "make setup, then make install again");
            return;
        }
        fit->task = sizes[i];
        n = f->limits.free_mib * 0.9 / fit->env_mib;
        fit->n_env = n < SPEC_ENV_MAX ? (int64_t)n : SPEC_ENV_MAX;
        f->n_fit++;
    }
    snprintf(c->detail, sizeof c->detail, "they compile, worlds can be made");
}

static void check_devices(struct findings *f)
{
    const char *const names[] = {"EGL", "GPU"};
    struct devices *const devices[] = {&f->egl, &f->gpu};
    int i;

    devices_egl(&f->egl);
    devices_gpu(&f->gpu);
    for (i = 0; i < 2; i++) {
        struct check *c = add(f, names[i], false);

        c->found = devices[i]->usable > 0;
        snprintf(c->detail, sizeof c->detail, "%s", devices[i]->detail);
        snprintf(c->advice, sizeof c->advice, "%s", devices[i]->advice);
    }
}

// --- output -------------------------------------------------------------------------------------

static bool healthy(const struct findings *f)
{
    int i;

    for (i = 0; i < f->n_check; i++)
        if (f->check[i].required && !f->check[i].found)
            return false;
    return true;
}

static void print_egl(const struct devices *devices)
{
    int i;

    for (i = 0; i < devices->n; i++) {
        const struct device *d = &devices->device[i];
        char cuda[32] = "";

        if (d->cuda >= 0)
            snprintf(cuda, sizeof cuda, ", CUDA device %d", d->cuda);
        printf("%24s%d: %s%s\n%24s   %s%s\n", "", i, d->name, cuda, "", d->renderer,
               !d->works     ? ""
               : d->software ? " (software: on the CPU)"
                             : " (hardware)");
    }
}

static void print_gpus(const struct devices *devices)
{
    int i;

    for (i = 0; i < devices->n; i++)
        printf("%24s%s\n", "", devices->device[i].name);
}

static void print_checks(const struct findings *f)
{
    int i;

    for (i = 0; i < f->n_check; i++) {
        const struct check *c = &f->check[i];

        printf("%-4s %-17s  %s\n",
               c->found      ? "ok"
               : c->required ? "FAIL"
                             : "-",
               c->name, c->detail);
        if (strcmp(c->name, "EGL") == 0)
            print_egl(&f->egl);
        if (strcmp(c->name, "GPU") == 0)
            print_gpus(&f->gpu);
        if (c->advice[0])
            printf("%24s%s%s\n", "", c->found ? "" : "to get it: ", c->advice);
    }
}

static void print_table(const struct findings *f)
{
    const struct limits *l = &f->limits;
    int i;

    print_checks(f);
    printf("\nCPUs        %d usable of %d\n", l->cpus, l->cpus_online);
    printf("memory      %.0f MiB, %.0f MiB free\n", l->memory_mib, l->free_mib);
    printf("open files  %.0f\n", l->files);
    if (isnan(l->shm_mib))
        printf("/dev/shm    not there\n");
    else
        printf("/dev/shm    %.0f MiB\n", l->shm_mib);
    if (f->n_fit > 0)
        printf("\nenvs that fit into the free memory (one server has at most %d):\n", SPEC_ENV_MAX);
    for (i = 0; i < f->n_fit; i++)
        printf("  %-20s %8lld  of at most %.1f MiB\n", f->fit[i].task, (long long)f->fit[i].n_env,
               f->fit[i].env_mib);
    printf("\n%s\n", healthy(f) ? "all that is needed is there"
                                : "something that is needed is missing, see FAIL");
}

static void put_devices(struct json *j, const char *key, const struct devices *d, bool renders)
{
    int i;

    json_open(j, key, '[');
    for (i = 0; i < d->n; i++) {
        json_open(j, NULL, '{');
        json_str(j, "name", d->device[i].name);
        if (renders) {
            json_str(j, "renderer", d->device[i].renderer);
            json_bool(j, "works", d->device[i].works);
            json_bool(j, "software", d->device[i].software);
            json_int(j, "cuda", d->device[i].cuda);
        }
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void put_checks(struct json *j, const struct findings *f)
{
    int i;

    json_open(j, "checks", '[');
    for (i = 0; i < f->n_check; i++) {
        const struct check *c = &f->check[i];

        json_open(j, NULL, '{');
        json_str(j, "name", c->name);
        json_bool(j, "required", c->required);
        json_bool(j, "found", c->found);
        json_str(j, "detail", c->detail);
        if (c->advice[0])
            json_str(j, "advice", c->advice);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void put_findings(struct json *j, const struct findings *f)
{
    const struct limits *l = &f->limits;
    int i;

    json_open(j, NULL, '{');
    json_bool(j, "ok", healthy(f));
    put_checks(j, f);
    put_devices(j, "egl_devices", &f->egl, true);
    put_devices(j, "gpus", &f->gpu, false);
    json_open(j, "limits", '{');
    json_int(j, "cpus", l->cpus);
    json_int(j, "cpus_online", l->cpus_online);
    json_real(j, "memory_mib", l->memory_mib);
    json_real(j, "memory_free_mib", l->free_mib);
    json_real(j, "open_files", l->files);
    json_real(j, "shm_mib", l->shm_mib);
    json_close(j, '}');
    json_open(j, "fits", '[');
    for (i = 0; i < f->n_fit; i++) {
        json_open(j, NULL, '{');
        json_str(j, "task", f->fit[i].task);
        json_real(j, "env_mib", f->fit[i].env_mib);
        json_int(j, "envs", f->fit[i].n_env);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_close(j, '}');
}

int cmd_doctor(int argc, char **argv)
{
    static struct findings f;
    struct doctor_options o;
    struct json j;
    int code = cmd_begin(table, &o, "doctor [--json]", argc, argv, 0, NULL);

    if (code >= 0)
        return code;
    memset(&f, 0, sizeof f);
    check_libraries(&f);
    check_models(&f);
    check_libero(&f);
    limits_measure(&f.limits);
    check_tasks(&f);
    check_devices(&f);
    if (o.json) {
        json_init(&j);
        put_findings(&j, &f);
        puts(json_text(&j) ? json_text(&j) : "{\"ok\": false}");
        json_fini(&j);
    } else {
        print_table(&f);
    }
    return healthy(&f) ? EXIT_DONE : EXIT_FAILED;
}
