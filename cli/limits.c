#include "cli/limits.h"

#include "common/base/thread.h"
#include "common/base/usage.h"
#include "scenes/engine.h"
#include "scenes/scene.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MIB    (1024.0 * 1024.0)
#define WORLDS 17
#define STEPS  100

// A number in the first line of a file that starts with `prefix`; NAN if there is none.
static double number_in(const char *path, const char *prefix)
{
    FILE *f = fopen(path, "r");
    double value = NAN;
    char line[256];

    if (!f)
        return NAN;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, prefix, strlen(prefix)) != 0)
            continue;
        if (sscanf(line + strlen(prefix), "%lf", &value) != 1)
            value = NAN; // "max", for example
        break;
    }
    fclose(f);
    return value;
}

// Memory of the machine, or of the control group (version 2, else 1) if that is less.
static void measure_memory(struct limits *l)
{
    double limit = number_in("/sys/fs/cgroup/memory.max", "");
    double used = number_in("/sys/fs/cgroup/memory.current", "");

    l->memory_mib = number_in("/proc/meminfo", "MemTotal:") / 1024;
    l->free_mib = number_in("/proc/meminfo", "MemAvailable:") / 1024;
    if (isnan(limit)) {
        limit = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes", "");
        used = number_in("/sys/fs/cgroup/memory/memory.usage_in_bytes", "");
    }
    if (isnan(limit) || isnan(used))
        return;
    l->memory_mib = fmin(l->memory_mib, limit / MIB);
    l->free_mib = fmin(l->free_mib, (limit - used) / MIB);
}

void limits_measure(struct limits *l)
{
    struct statvfs shm;
    struct rlimit files;

    l->cpus = thread_cpus();
    l->cpus_online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    l->files = NAN;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0)
        l->files = files.rlim_cur == RLIM_INFINITY ? INFINITY : (double)files.rlim_cur;
    l->files_open = usage_open_files();
    l->shm_mib = l->shm_free_mib = NAN;
    if (statvfs("/dev/shm", &shm) == 0) {
        l->shm_mib = (double)shm.f_blocks * (double)shm.f_frsize / MIB;
        l->shm_free_mib = (double)shm.f_bavail * (double)shm.f_frsize / MIB;
    }
    measure_memory(l);
}

void limits_raise_files(double n)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY ||
        (double)files.rlim_cur >= n)
        return;
    files.rlim_cur =
        files.rlim_max == RLIM_INFINITY || (double)files.rlim_max > n ? (rlim_t)n : files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files); // what the limit is now is measured afterwards
}

// Worlds that have fallen for a while, so that they have touched what they touch.
static enum status make_worlds(const mjModel *m, mjData **worlds, int n)
{
    struct engine_trap trap;
    volatile bool done = false;
    int i, k;

    if (ENGINE_TRY(&trap)) {
        for (i = 0; i < n; i++) {
            worlds[i] = mj_makeData(m);
            if (!worlds[i])
                break;
            for (k = 0; k < STEPS; k++)
                mj_step(m, worlds[i]);
        }
        done = i == n;
        engine_end(&trap);
    }
    return done ? ST_OK : FAIL(ST_NOMEM, "the engine cannot make %d worlds of this task", n);
}

enum status limits_env_mib(const char *task, const char *kwargs, double *mib)
{
    mjData *worlds[WORLDS] = {0};
    struct scene *scene;
    enum status st;
    double before;
    int i;

    TRY(scene_create(&scene, task, kwargs));
    st = make_worlds(scene->model, worlds, 1); // what is shared is there after this one
    before = usage_resident_bytes() / MIB;
    if (st == ST_OK)
        st = make_worlds(scene->model, worlds + 1, WORLDS - 1);
    if (st == ST_OK) // at least the structure itself, if the allocator had room left
        *mib =
            fmax((usage_resident_bytes() / MIB - before) / (WORLDS - 1), sizeof *worlds[0] / MIB);
    for (i = 0; i < WORLDS; i++)
        mj_deleteData(worlds[i]);
    scene_destroy(scene);
    return st;
}
