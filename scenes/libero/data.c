#include "scenes/libero/data.h"

#include "common/base/file.h"
#include "scenes/scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HOW                                                                              \
    "run 'make libero-data', or set LIBERO_DIR to a folder with bddl_files, init_files " \
    "and assets"

static enum status join(char out[PATH_MAX], const char *dir, const char *file)
{
    if (snprintf(out, PATH_MAX, "%s/%s", dir, file) >= PATH_MAX)
        return FAIL(ST_INVAL, "the path '%.100s/%s' is too long", dir, file);
    return ST_OK;
}

enum status data_find_own(struct data_dirs *out)
{
    TRY(scene_asset_dir("tabletop", out->root, sizeof out->root));
    TRY(join(out->assets, out->root, "assets"));
    TRY(join(out->robot, out->root, "robot"));
    return join(out->tables, out->root, "tabletop.tables");
}

// A checkout of LIBERO has its files two folders down.
static enum status find_root(char out[PATH_MAX], const char *dir)
{
    static const char *const below[] = {"", "/libero", "/libero/libero"};
    char probe[PATH_MAX];
    size_t i;

    for (i = 0; i < sizeof below / sizeof below[0]; i++) {
        if (snprintf(out, PATH_MAX, "%s%s", dir, below[i]) >= PATH_MAX)
            return FAIL(ST_INVAL, "the path '%.100s' is too long", dir);
        TRY(join(probe, out, "bddl_files"));
        if (access(probe, R_OK) == 0)
            return ST_OK;
    }
    return FAIL(ST_MISSING, "LIBERO's files are not in '%s': " HOW, dir);
}

static enum status find_robot(char out[PATH_MAX], const char *root, const char *version)
{
    const char *env = getenv("ROBOSUITE_DIR");
    char name[64], probe[PATH_MAX];

    snprintf(name, sizeof name, "robosuite-%s", version);
    TRY(join(out, root, name));
    if (access(out, R_OK) == 0)
        return ST_OK;
    if (env && *env) {
        TRY(join(out, env, "."));
        TRY(join(probe, out, "robots/panda/robot.xml"));
        if (access(probe, R_OK) == 0)
            return ST_OK;
    }
    return FAIL(ST_MISSING,
                "the Panda of robosuite %s is neither '%s/%s' nor in ROBOSUITE_DIR "
                "(robosuite's models/assets): " HOW,
                version, root, name);
}

enum status data_find_libero(struct data_dirs *out, const char *dir, const char *robosuite_version)
{
    const char *env = getenv("LIBERO_DIR");
    char fetched[PATH_MAX], tables[PATH_MAX];

    if (!*dir && env && *env)
        dir = env;
    if (!*dir) {
        if (scene_asset_dir("libero-data", fetched, sizeof fetched) != ST_OK)
            return FAIL(ST_MISSING, "LIBERO's files are not here: " HOW);
        dir = fetched;
    }
    TRY(find_root(out->root, dir));
    TRY(join(out->assets, out->root, "assets"));
    if (access(out->assets, R_OK) != 0)
        return FAIL(ST_MISSING, "LIBERO's assets are not in '%s': " HOW, out->root);
    TRY(find_robot(out->robot, out->root, robosuite_version));
    TRY(scene_asset_dir("libero", tables, sizeof tables));
    return join(out->tables, tables, "libero.tables");
}
