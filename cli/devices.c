// The few calls and constants that are needed are declared here, as Khronos and NVIDIA define them;
// neither headers nor libraries of either are needed to build. Opened libraries stay open: drivers
// do not like to be unloaded.
#include "cli/devices.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EGL_VENDOR_NAME     0x3053
#define EGL_EXTENSION_NAMES 0x3055
#define EGL_DRM_FILE        0x3233 // EGL_EXT_device_drm
#define EGL_RENDERER_NAME   0x335f // EGL_EXT_device_query_name

typedef void *(*get_address_fn)(const char *name);
typedef unsigned (*query_devices_fn)(int32_t max, void **devices, int32_t *n);
typedef const char *(*device_string_fn)(void *device, int32_t name);
typedef const char *(*query_string_fn)(void *display, int32_t name);

// dlsym gives an object pointer; POSIX wants it converted through memory.
static void symbol(void *library, const char *name, void *fn)
{
    void *p = dlsym(library, name);

    memcpy(fn, &p, sizeof p);
}

static bool lists(const char *extensions, const char *name)
{
    size_t n = strlen(name);
    const char *p;

    for (p = extensions; p && (p = strstr(p, name)); p += n)
        if ((p == extensions || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return true;
    return false;
}

static void name_egl_device(struct device *d, void *device, device_string_fn get)
{
    const char *extensions = get(device, EGL_EXTENSION_NAMES);
    const char *drm = NULL, *vendor = NULL, *renderer = NULL;

    if (lists(extensions, "EGL_EXT_device_query_name")) {
        vendor = get(device, EGL_VENDOR_NAME);
        renderer = get(device, EGL_RENDERER_NAME);
    }
    if (lists(extensions, "EGL_EXT_device_drm"))
        drm = get(device, EGL_DRM_FILE);
    d->software = lists(extensions, "EGL_MESA_device_software");
    if (renderer)
        snprintf(d->name, sizeof d->name, "%s%s%s%s%s", vendor ? vendor : "", vendor ? " " : "",
                 renderer, drm ? " at " : "", drm ? drm : "");
    else if (drm)
        snprintf(d->name, sizeof d->name, "device at %s", drm);
    else
        snprintf(d->name, sizeof d->name, "%s",
                 d->software                               ? "Mesa software renderer"
                 : lists(extensions, "EGL_NV_device_cuda") ? "NVIDIA device"
                                                           : "unnamed device");
}

static bool query_egl(struct devices *out, void *library)
{
    query_devices_fn query = NULL;
    device_string_fn get = NULL;
    get_address_fn address = NULL;
    void *found[DEVICES_MAX], *p;
    int32_t i, n = 0;

    symbol(library, "eglGetProcAddress", &address);
    if (!address)
        return false;
    p = address("eglQueryDevicesEXT");
    memcpy(&query, &p, sizeof p);
    p = address("eglQueryDeviceStringEXT");
    memcpy(&get, &p, sizeof p);
    if (!query || !get || !query(DEVICES_MAX, found, &n))
        return false;
    for (i = 0; i < n && i < DEVICES_MAX; i++)
        name_egl_device(&out->device[out->n++], found[i], get);
    return true;
}

void devices_egl(struct devices *out)
{
    void *library = dlopen("libEGL.so.1", RTLD_NOW | RTLD_LOCAL);
    int i, hardware = 0;

    memset(out, 0, sizeof *out);
    if (!library) {
        snprintf(out->detail, sizeof out->detail, "libEGL.so.1 not found");
        snprintf(out->advice, sizeof out->advice,
                 "apt-get install libegl1 libegl-mesa0 (or the GPU vendor's driver)");
        return;
    }
    if (!query_egl(out, library) || out->n == 0) {
        snprintf(out->detail, sizeof out->detail, "libEGL.so.1 lists no device");
        snprintf(out->advice, sizeof out->advice,
                 "apt-get install libegl-mesa0 libgl1-mesa-dri (or the GPU vendor's driver)");
        return;
    }
    for (i = 0; i < out->n; i++)
        hardware += !out->device[i].software;
    snprintf(out->detail, sizeof out->detail, "%d hardware, %d software", hardware,
             out->n - hardware);
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
    snprintf(out->detail, sizeof out->detail, "%d, driver for CUDA %d.%d", out->n, version / 1000,
             version % 1000 / 10);
}
