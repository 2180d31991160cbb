#include "envserver/egl_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define EGL_VENDOR_NAME     0x3053
#define EGL_EXTENSION_NAMES 0x3055
#define EGL_DRM_FILE        0x3233 // EGL_EXT_device_drm
#define EGL_CUDA_ORDINAL    0x323a // EGL_NV_device_cuda
#define EGL_RENDERER_NAME   0x335f // EGL_EXT_device_query_name

#define LIBRARY "libEGL.so.1"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool loaded;
static struct egl_calls egl;
static struct gl_calls gl;

// A function pointer from an object pointer; POSIX wants it converted through memory.
typedef void *(*address_fn)(const char *name);

#define FILL(result, name, arguments)  \
    p = address(PREFIX #name);         \
    memcpy(&TABLE.name, &p, sizeof p); \
    if (!p && !missing)                \
        missing = PREFIX #name;
#define FILL_OPTIONAL(result, name, arguments) \
    p = address(PREFIX #name);                 \
    memcpy(&TABLE.name, &p, sizeof p);

// NULL, or the call that is absent.
static const char *fill_tables(address_fn address)
{
    const char *missing = NULL;
    void *p;

#define TABLE  egl
#define PREFIX "egl"
    EGL_CALLS(FILL, FILL_OPTIONAL)
#undef TABLE
#undef PREFIX
#define TABLE  gl
#define PREFIX "gl"
    GL_CALLS(FILL)
#undef TABLE
#undef PREFIX
    return missing;
}

// The library goes into the global scope, where MuJoCo's renderer looks for eglGetProcAddress.
static enum status load(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL), *p;
    const char *missing;
    address_fn address;

    if (!library)
        return FAIL(ST_MISSING,
                    "rendering by EGL needs " LIBRARY
                    ", which is not there: install libegl1 (and libegl-mesa0, or the graphics part "
                    "of the GPU's driver), or render with rays");
    p = dlsym(library, "eglGetProcAddress");
    if (!p)
        return FAIL(ST_MISSING, LIBRARY " has no eglGetProcAddress");
    memcpy(&address, &p, sizeof p);
    missing = fill_tables(address);
    if (missing)
        return FAIL(ST_MISSING, LIBRARY " has no %s: it is too old for rendering", missing);
    loaded = true;
    return ST_OK;
}

enum status egl_load(const struct egl_calls **out_egl, const struct gl_calls **out_gl)
{
    enum status st = ST_OK;

    pthread_mutex_lock(&lock);
    if (!loaded)
        st = load();
    pthread_mutex_unlock(&lock);
    if (st != ST_OK)
        return st;
    *out_egl = &egl;
    *out_gl = &gl;
    return ST_OK;
}

bool egl_lists(const char *extensions, const char *name)
{
    size_t n = strlen(name);
    const char *p;

    for (p = extensions; p && (p = strstr(p, name)); p += n)
        if ((p == extensions || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return true;
    return false;
}

static void describe_device(struct egl_device *d)
{
    const char *extensions = egl.QueryDeviceStringEXT(d->handle, EGL_EXTENSION_NAMES);
    const char *drm = NULL, *vendor = NULL, *renderer = NULL;
    intptr_t ordinal;

    if (egl_lists(extensions, "EGL_EXT_device_query_name")) {
        vendor = egl.QueryDeviceStringEXT(d->handle, EGL_VENDOR_NAME);
        renderer = egl.QueryDeviceStringEXT(d->handle, EGL_RENDERER_NAME);
    }
    if (egl_lists(extensions, "EGL_EXT_device_drm"))
        drm = egl.QueryDeviceStringEXT(d->handle, EGL_DRM_FILE);
    d->software = egl_lists(extensions, "EGL_MESA_device_software");
    d->cuda = -1;
    if (egl_lists(extensions, "EGL_NV_device_cuda") && egl.QueryDeviceAttribEXT &&
        egl.QueryDeviceAttribEXT(d->handle, EGL_CUDA_ORDINAL, &ordinal))
        d->cuda = (int)ordinal;
    if (!renderer)
        renderer = d->software    ? "Mesa software renderer"
                   : d->cuda >= 0 ? "NVIDIA device"
                                  : "unnamed device";
    snprintf(d->name, sizeof d->name, "%s%s%s%s%s", vendor ? vendor : "", vendor ? " " : "",
             renderer, drm ? " at " : "", drm ? drm : "");
}

enum status egl_devices(struct egl_device *out, int max, int *n)
{
    const struct egl_calls *e;
    const struct gl_calls *g;
    egl_handle handle[EGL_DEVICES_MAX];
    int32_t found = 0, i;

    TRY(egl_load(&e, &g));
    *n = 0;
    if (!e->QueryDevicesEXT || !e->QueryDeviceStringEXT ||
        !e->QueryDevicesEXT(EGL_DEVICES_MAX, handle, &found))
        return ST_OK;
    for (i = 0; i < found && i < max; i++) {
        out[i].handle = handle[i];
        describe_device(&out[i]);
        *n = i + 1;
    }
    return ST_OK;
}

void egl_describe(char *buf, size_t size)
{
    struct egl_device device[EGL_DEVICES_MAX];
    size_t used = 0;
    int i, n;

    if (egl_devices(device, EGL_DEVICES_MAX, &n) != ST_OK) {
        snprintf(buf, size, "%s", error_last()->text);
        return;
    }
    if (n == 0)
        snprintf(buf, size,
                 "EGL lists no device: install libegl-mesa0 and libgl1-mesa-dri, or the graphics "
                 "part of the GPU's driver with its file in /usr/share/glvnd/egl_vendor.d");
    for (i = 0; i < n && used < size; i++) {
        char cuda[32] = "";

        if (device[i].cuda >= 0)
            snprintf(cuda, sizeof cuda, " (CUDA %d)", device[i].cuda);
        used += (size_t)snprintf(buf + used, size - used, "%s%d: %s%s%s", i ? "; " : "", i,
                                 device[i].name, cuda, device[i].software ? " (software)" : "");
    }
}

const char *egl_error_name(int32_t code)
{
    static const char *const names[] = {
        "EGL_SUCCESS",       "EGL_NOT_INITIALIZED",     "EGL_BAD_ACCESS",
        "EGL_BAD_ALLOC",     "EGL_BAD_ATTRIBUTE",       "EGL_BAD_CONFIG",
        "EGL_BAD_CONTEXT",   "EGL_BAD_CURRENT_SURFACE", "EGL_BAD_DISPLAY",
        "EGL_BAD_MATCH",     "EGL_BAD_NATIVE_PIXMAP",   "EGL_BAD_NATIVE_WINDOW",
        "EGL_BAD_PARAMETER", "EGL_BAD_SURFACE",         "EGL_CONTEXT_LOST"};
    int i = (int)code - 0x3000;

    return i >= 0 && i < (int)(sizeof names / sizeof names[0]) ? names[i] : "unknown EGL error";
}

bool egl_is_software(const char *renderer)
{
    static const char *const words[] = {"llvmpipe", "softpipe", "swrast", "Software Rasterizer",
                                        "SwiftShader"};
    size_t i;

    for (i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strstr(renderer, words[i]))
            return true;
    return false;
}
