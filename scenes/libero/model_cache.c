#include "scenes/libero/model_cache.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "scenes/engine.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct hash {
    uint64_t a, b;
};

// Two multiplicative hashes over words of eight bytes: 128 bits against chance, not against malice.
static void hash_bytes(struct hash *h, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint64_t word;

    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&word, p, 8);
        h->a = (h->a ^ word) * 0x9e3779b97f4a7c15u;
        h->b = (h->b ^ (word >> 32 | word << 32)) * 0xc2b2ae3d27d4eb4fu;
        h->a ^= h->a >> 29;
        h->b ^= h->b >> 31;
    }
    word = 0;
    memcpy(&word, p, n);
    word ^= (uint64_t)(n + 1) << 56;
    h->a = (h->a ^ word) * 0x9e3779b97f4a7c15u;
    h->b = (h->b ^ word) * 0xc2b2ae3d27d4eb4fu;
}

static enum status hash_files(struct hash *h, const struct xml_node *root)
{
    const struct xml_node *n;

    for (n = root; n; n = xml_walk(root, (struct xml_node *)n)) {
        const char *file = xml_get(n, "file");
        char *bytes;
        size_t size;

        if (!file)
            continue;
        TRY(file_read(file, &bytes, &size));
        hash_bytes(h, bytes, size);
        mem_free(bytes);
    }
    return ST_OK;
}

static enum status cache_path(char path[PATH_MAX], const char *text, const struct xml_node *root)
{
    const char *own = getenv("SIMSTREAM_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME"), *version = mj_versionString();
    struct hash h = {0x243f6a8885a308d3u, 0x13198a2e03707344u};
    char dir[PATH_MAX];
    int n;

    hash_bytes(&h, version, strlen(version));
    hash_bytes(&h, text, strlen(text));
    TRY(hash_files(&h, root));
    if (own && *own)
        n = snprintf(dir, sizeof dir, "%s", own);
    else if (xdg && *xdg)
        n = snprintf(dir, sizeof dir, "%s/simstream", xdg);
    else
        n = snprintf(dir, sizeof dir, "%s/.cache/simstream", home && *home ? home : "/tmp");
    if (n >= (int)sizeof dir)
        return FAIL(ST_INVAL, "the path of the cache folder is too long");
    TRY(file_make_dir(dir));
    n = snprintf(path, PATH_MAX, "%s/%016" PRIx64 "%016" PRIx64 ".mjb", dir, h.a, h.b);
    return n < PATH_MAX ? ST_OK : FAIL(ST_INVAL, "the path of the cache folder is too long");
}

struct compilation {
    mjSpec *spec;
    mjModel *model;
    char error[512];
};

// Parse and compile inside of a trap; what was made is in `c` even if the engine gave up half way.
static bool run_compiler(struct compilation *c, const char *text)
{
    struct engine_trap trap;

    if (!ENGINE_TRY(&trap)) {
        snprintf(c->error, sizeof c->error, "%s", trap.text);
        return false;
    }
    c->spec = mj_parseXMLString(text, NULL, c->error, sizeof c->error);
    if (c->spec)
        c->model = mj_compile(c->spec, NULL);
    engine_end(&trap);
    return true;
}

static enum status compile(const mjModel **out, const char *text, const char *what)
{
    struct compilation c = {0};

    if (run_compiler(&c, text) && c.spec && !c.model)
        snprintf(c.error, sizeof c.error, "%s", mjs_getError(c.spec));
    mj_deleteSpec(c.spec);
    if (!c.model)
        return FAIL(ST_INVAL, "%s: cannot compile the scene: %s", what, c.error);
    *out = c.model;
    return ST_OK;
}

static const mjModel *load(const char *path)
{
    struct engine_trap trap;
    mjModel *volatile m = NULL;

    if (!file_exists(path) || !ENGINE_TRY(&trap))
        return NULL;
    m = mj_loadModel(path, NULL);
    engine_end(&trap);
    return m;
}

// Written beside and renamed, so that another process never sees half a model.
static void save(const char *path, const mjModel *m)
{
    char beside[PATH_MAX + 32];

    snprintf(beside, sizeof beside, "%s.%ld.tmp", path, (long)getpid());
    mj_saveModel(m, beside, NULL, 0);
    if (rename(beside, path) != 0) {
        log_warn("libero", "cannot keep the compiled model as '%s'", path);
        (void)unlink(beside);
    }
}

enum status model_compile(const mjModel **out, const char *text, const struct xml_node *root,
                          bool keep, const char *what)
{
    char path[PATH_MAX];

    if (!keep)
        return compile(out, text, what);
    if (cache_path(path, text, root) != ST_OK) {
        log_warn("libero", "compiled models are not kept: %s", error_last()->text);
        return compile(out, text, what);
    }
    *out = load(path);
    if (*out)
        return ST_OK;
    TRY(compile(out, text, what));
    save(path, *out);
    return ST_OK;
}
