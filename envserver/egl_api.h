// egl_api.h - libEGL, opened at run time, and the OpenGL calls that MuJoCo's own renderer leaves to
// us. The few types and constants are declared here as Khronos and NVIDIA define them: neither
// headers nor libraries of theirs are needed to build, and a machine without EGL starts the
// program. An opened library stays open: drivers do not like to be unloaded.
//
// Threads: egl_load from any; the tables are read-only afterwards.
#ifndef ENVSERVER_EGL_API_H
#define ENVSERVER_EGL_API_H

#include "common/base/status.h"

#include <stdint.h>

#define EGL_DEVICES_MAX 32

typedef void *egl_handle; // EGLDisplay, EGLContext, EGLConfig, EGLDeviceEXT
typedef void *gl_sync;

enum {
    EGL_NONE = 0x3038,
    EGL_EXTENSIONS = 0x3055,
    EGL_OPENGL_API = 0x30a2,
    EGL_PLATFORM_DEVICE = 0x313f,
    EGL_PLATFORM_SURFACELESS = 0x31dd,

    GL_NO_ERROR = 0,
    GL_UNSIGNED_BYTE = 0x1401,
    GL_FLOAT = 0x1406,
    GL_DEPTH_COMPONENT = 0x1902,
    GL_RGB = 0x1907,
    GL_RGBA = 0x1908,
    GL_NEAREST = 0x2600,
    GL_VENDOR = 0x1f00,
    GL_RENDERER = 0x1f01,
    GL_VERSION = 0x1f02,
    GL_DEPTH_BUFFER_BIT = 0x100,
    GL_COLOR_BUFFER_BIT = 0x4000,
    GL_PACK_ALIGNMENT = 0x0d05,
    GL_PIXEL_PACK_BUFFER = 0x88eb,
    GL_STREAM_READ = 0x88e1,
    GL_READ_ONLY = 0x88b8,
    GL_READ_FRAMEBUFFER = 0x8ca8,
    GL_DRAW_FRAMEBUFFER = 0x8ca9,
    GL_FRAMEBUFFER = 0x8d40,
    GL_COLOR_ATTACHMENT0 = 0x8ce0,
    GL_FRAMEBUFFER_COMPLETE = 0x8cd5,
    GL_MAX_RENDERBUFFER_SIZE = 0x84e8,
    GL_MAX_SAMPLES = 0x8d57,
    GL_SYNC_GPU_COMMANDS_COMPLETE = 0x9117,
    GL_SYNC_FLUSH_COMMANDS_BIT = 1,
    GL_TIMEOUT_EXPIRED = 0x911b,
    GL_WAIT_FAILED = 0x911d,
};

// X(RESULT, NAME, ARGUMENTS), by eglGetProcAddress; OPTIONAL ones may be absent.
#define EGL_CALLS(X, OPTIONAL)                                                                   \
    X(const char *, QueryString, (egl_handle display, int32_t name))                             \
    X(int32_t, GetError, (void))                                                                 \
    X(unsigned, Initialize, (egl_handle display, int32_t * major, int32_t * minor))              \
    X(unsigned, BindAPI, (unsigned api))                                                         \
    X(unsigned, ChooseConfig,                                                                    \
      (egl_handle display, const int32_t *attributes, egl_handle *out, int32_t max, int32_t *n)) \
    X(egl_handle, CreateContext,                                                                 \
      (egl_handle display, egl_handle config, egl_handle share, const int32_t *attributes))      \
    X(unsigned, DestroyContext, (egl_handle display, egl_handle context))                        \
    X(unsigned, MakeCurrent,                                                                     \
      (egl_handle display, egl_handle draw, egl_handle read, egl_handle context))                \
    X(egl_handle, GetCurrentContext, (void))                                                     \
    X(unsigned, ReleaseThread, (void))                                                           \
    OPTIONAL(egl_handle, GetPlatformDisplayEXT,                                                  \
             (unsigned platform, void *native, const int32_t *attributes))                       \
    OPTIONAL(unsigned, QueryDevicesEXT, (int32_t max, egl_handle * out, int32_t * n))            \
    OPTIONAL(const char *, QueryDeviceStringEXT, (egl_handle device, int32_t name))              \
    OPTIONAL(unsigned, QueryDeviceAttribEXT, (egl_handle device, int32_t name, intptr_t * out))

#define GL_CALLS(X)                                                                               \
    X(const uint8_t *, GetString, (unsigned name))                                                \
    X(unsigned, GetError, (void))                                                                 \
    X(void, GetIntegerv, (unsigned name, int32_t *out))                                           \
    X(void, Flush, (void))                                                                        \
    X(void, PixelStorei, (unsigned name, int32_t value))                                          \
    X(void, ReadBuffer, (unsigned buffer))                                                        \
    X(void, DrawBuffer, (unsigned buffer))                                                        \
    X(void, ReadPixels,                                                                           \
      (int32_t x, int32_t y, int32_t w, int32_t h, unsigned format, unsigned type, void *out))    \
    X(void, BindFramebuffer, (unsigned target, unsigned name))                                    \
    X(unsigned, CheckFramebufferStatus, (unsigned target))                                        \
    X(void, BlitFramebuffer,                                                                      \
      (int32_t sx0, int32_t sy0, int32_t sx1, int32_t sy1, int32_t dx0, int32_t dy0, int32_t dx1, \
       int32_t dy1, unsigned mask, unsigned filter))                                              \
    X(void, GenBuffers, (int32_t n, unsigned *out))                                               \
    X(void, DeleteBuffers, (int32_t n, const unsigned *names))                                    \
    X(void, BindBuffer, (unsigned target, unsigned name))                                         \
    X(void, BufferData, (unsigned target, intptr_t size, const void *data, unsigned usage))       \
    X(void *, MapBuffer, (unsigned target, unsigned access))                                      \
    X(uint8_t, UnmapBuffer, (unsigned target))                                                    \
    X(gl_sync, FenceSync, (unsigned condition, unsigned flags))                                   \
    X(unsigned, ClientWaitSync, (gl_sync sync, unsigned flags, uint64_t timeout_ns))              \
    X(void, DeleteSync, (gl_sync sync))

#define EGL_MEMBER(result, name, arguments) result(*name) arguments;
struct egl_calls {
    EGL_CALLS(EGL_MEMBER, EGL_MEMBER)
};
struct gl_calls {
    GL_CALLS(EGL_MEMBER)
};
#undef EGL_MEMBER

struct egl_device {
    egl_handle handle;
    char name[160];
    bool software; // Mesa says that it renders on the CPU
    int cuda;      // CUDA ordinal, -1 = none
};

// Everything above, once per process. ST_MISSING names the file or call that is absent and what to
// install; a later call tries again.
NODISCARD enum status egl_load(const struct egl_calls **egl, const struct gl_calls **gl);

// The devices now, at most `max`; their number goes to *n. 0 where the library cannot list any.
NODISCARD enum status egl_devices(struct egl_device *out, int max, int *n);

// The devices as text, "0: NAME (CUDA 1); 1: NAME (software)", or why there is none.
void egl_describe(char *buf, size_t size);

// Is `name` one of the words of `extensions` (which may be NULL)?
bool egl_lists(const char *extensions, const char *name);

// Name of an EGL error code.
const char *egl_error_name(int32_t code);

// Does this GL_RENDERER text name a renderer that runs on the CPU?
bool egl_is_software(const char *renderer);

#endif
