// The few calls of NVIDIA's driver that are needed are declared here, as NVIDIA defines them;
// neither its headers nor its libraries are needed to build. Opened libraries stay open: drivers do
// not like to be unloaded.
#include "cli/devices.h"

#include "common/base/thread.h"
#include "envserver/egl_context.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define PROBE_NS (20 * NS_PER_S) // a driver may hang

// dlsym gives an object pointer; POSIX wants it converted through memory.
static void symbol(void *library, const char *name, void *fn)
{
    void *p = dlsym(library, name);

    memcpy(fn, &p, sizeof p);
}

static void ask_device(struct device *d, int index)
{
    struct egl_choice choice = {index, -1};
    struct egl_about about = {0};

    d->works = egl_probe(&about, &choice, PROBE_NS) == ST_OK;
    if (d->works)
        snprintf(d->renderer, sizeof d->renderer, "%s, OpenGL %s", about.renderer, about.version);
    else
        snprintf(d->renderer, sizeof d->renderer, "does not start: %.200s", error_last()->text);
    d->software = d->software || (d->works && about.software);
}

void devices_egl(struct devices *out)
{
    struct egl_device found[DEVICES_MAX];
    int i, n = 0, hardware = 0;

    memset(out, 0, sizeof *out);
    if (egl_devices(found, DEVICES_MAX, &n) != ST_OK || n == 0) {
        egl_describe(out->detail, sizeof out->detail);
        snprintf(
            out->advice, sizeof out->advice,
            "apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri (or the graphics part of the "
            "GPU's driver)");
        return;
    }
    for (i = 0; i < n; i++) {
        struct device *d = &out->device[out->n++];

        snprintf(d->name, sizeof d->name, "%s", found[i].name);
        d->software = found[i].software;
        d->cuda = found[i].cuda;
        ask_device(d, i);
        out->usable += d->works;
        hardware += d->works && !d->software;
    }
    snprintf(out->detail, sizeof out->detail, "%d in the list, %d that render on hardware", n,
             hardware);
}

struct cuda {
    int (*init)(unsigned flags);
    int (*version)(int *out);
    int (*count)(int *out);
    int (*get)(int *device, int ordinal);
    int (*name)(char *buf, int size, int device);
    int (*memory)(size_t *bytes, int device);
    int (*error)(int code, const char **text);
};

static bool load_cuda(struct cuda *c, void *library)
{
    symbol(library, "cuInit", &c->init);
    symbol(library, "cuDriverGetVersion", &c->version);
    symbol(library, "cuDeviceGetCount", &c->count);
    symbol(library, "cuDeviceGet", &c->get);
    symbol(library, "cuDeviceGetName", &c->name);
    symbol(library, "cuDeviceTotalMem_v2", &c->memory);
    symbol(library, "cuGetErrorString", &c->error);
    return c->init && c->version && c->count && c->get && c->name && c->memory && c->error;
}

static void name_gpus(struct devices *out, const struct cuda *c, int n)
{
    char name[100];
    size_t bytes;
    int i, device;

    for (i = 0; i < n && i < DEVICES_MAX; i++) {
        if (c->get(&device, i) != 0 || c->name(name, sizeof name, device) != 0 ||
            c->memory(&bytes, device) != 0)
            continue;
        snprintf(out->device[out->n++].name, sizeof out->device[0].name, "%s, %.0f GiB", name,
                 (double)bytes / (1 << 30));
    }
}

void devices_gpu(struct devices *out)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const char *text = "unknown error";
    struct cuda c;
    int code, n = 0, version = 0;

    memset(out, 0, sizeof *out);
    if (!library) {
        snprintf(out->detail, sizeof out->detail, "no NVIDIA driver (libcuda.so.1 not found)");
        return;
    }
    if (!load_cuda(&c, library)) {
        snprintf(out->detail, sizeof out->detail, "libcuda.so.1 lacks calls that every driver has");
        return;
    }
    code = c.init(0);
    if (code == 0)
        code = c.version(&version);
    if (code == 0)
        code = c.count(&n);
    if (code != 0) {
        (void)c.error(code, &text);
        snprintf(out->detail, sizeof out->detail, "libcuda.so.1: %s (%d)",
                 text ? text : "unknown error", code);
        return;
    }
    name_gpus(out, &c, n);
    out->usable = out->n;
    snprintf(out->detail, sizeof out->detail, "%d, driver for CUDA %d.%d", out->n, version / 1000,
             version % 1000 / 10);
}
