#include "envserver/egl_context.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

// A display for each device, and one for the platform without devices, in the last place.
#define NO_DEVICE EGL_DEVICES_MAX

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static egl_handle displays[EGL_DEVICES_MAX + 1];
static _Thread_local struct egl_context *mine;
static _Thread_local bool thread_lost; // its context hangs and stays behind

static enum status no_device(enum status st, const char *what)
{
    char devices[256];

    egl_describe(devices, sizeof devices);
    return FAIL(st, "%s; EGL devices: %s", what, devices);
}

// `what` failed on device `index`, with EGL's own error.
static enum status refused(const struct egl_calls *egl, const char *what, int index)
{
    char text[200];

    snprintf(text, sizeof text, "%s failed on EGL device %d: %s", what, index,
             egl_error_name(egl->GetError()));
    return no_device(ST_MISSING, text);
}

// Where displays are shared: initialising one twice is harmless, but not at the same time.
static enum status open_display(struct egl_context *c, egl_handle device)
{
    egl_handle *slot = &displays[c->about.device < 0 ? NO_DEVICE : c->about.device];
    enum status st = ST_OK;
    int32_t major, minor;

    if (!c->egl->GetPlatformDisplayEXT)
        return FAIL(ST_MISSING, "this EGL library has no eglGetPlatformDisplayEXT");
    pthread_mutex_lock(&lock);
    if (!*slot) {
        egl_handle d = c->egl->GetPlatformDisplayEXT(
            c->about.device < 0 ? EGL_PLATFORM_SURFACELESS : EGL_PLATFORM_DEVICE, device, NULL);

        if (!d || !c->egl->Initialize(d, &major, &minor))
            st = refused(c->egl, d ? "eglInitialize" : "eglGetPlatformDisplayEXT", c->about.device);
        else
            *slot = d;
    }
    c->display = *slot;
    pthread_mutex_unlock(&lock);
    return st;
}

static enum status open_context(struct egl_context *c)
{
    static const int32_t wanted[] = {0x3024,  8, 0x3023, 8,
                                     0x3022,  8, 0x3021, 8, // red, green, blue, alpha
                                     0x3033,  1,            // surface type: pixel buffer
                                     0x3040,  8,            // renderable type: OpenGL
                                     EGL_NONE};
    egl_handle config;
    int32_t n = 0;

    if (!c->egl->BindAPI(EGL_OPENGL_API))
        return refused(c->egl, "eglBindAPI(EGL_OPENGL_API)", c->about.device);
    if (!c->egl->ChooseConfig(c->display, wanted, &config, 1, &n) || n < 1)
        return refused(c->egl, "eglChooseConfig for OpenGL with 8 bits a colour", c->about.device);
    c->handle = c->egl->CreateContext(c->display, config, NULL, NULL);
    if (!c->handle)
        return refused(c->egl, "eglCreateContext", c->about.device);
    if (!c->egl->MakeCurrent(c->display, NULL, NULL, c->handle))
        return refused(c->egl, "eglMakeCurrent without a surface", c->about.device);
    return ST_OK;
}

static void close_context(struct egl_context *c)
{
    if (!c->handle)
        return;
    c->egl->MakeCurrent(c->display, NULL, NULL, NULL);
    c->egl->DestroyContext(c->display, c->handle);
    c->handle = NULL;
}

// A driver that cannot reach its GPU may render on the CPU instead and say nothing.
static enum status check_renderer(struct egl_context *c, bool want_gpu)
{
    const char *renderer = (const char *)c->gl->GetString(GL_RENDERER);
    const char *version = (const char *)c->gl->GetString(GL_VERSION);
    char text[256];

    if (!renderer || !version)
        return no_device(ST_MISSING, "the GL driver does not say what it is");
    snprintf(c->about.renderer, sizeof c->about.renderer, "%s", renderer);
    snprintf(c->about.version, sizeof c->about.version, "%s", version);
    c->about.software = egl_is_software(renderer);
    if (!want_gpu || !c->about.software)
        return ST_OK;
    snprintf(text, sizeof text, "a GPU was asked for, but EGL device %d renders on the CPU: %s",
             c->about.device, c->about.renderer);
    return no_device(ST_MISSING, text);
}

// Device `index` of the list, -1 = the platform without devices.
static enum status try_device(struct egl_context *c, int index, const struct egl_device *device)
{
    enum status st;

    c->about.device = index;
    st = open_display(c, device ? device->handle : NULL);
    if (st == ST_OK)
        st = open_context(c);
    if (st == ST_OK)
        st = check_renderer(c, c->choice.cuda_device >= 0 || (device && !device->software));
    if (st != ST_OK)
        close_context(c);
    return st;
}

static enum status open_named(struct egl_context *c, const struct egl_device *device, int n)
{
    const struct egl_choice *want = &c->choice;
    int index = want->egl_device, i;
    char text[160];

    if (index >= n) {
        snprintf(text, sizeof text, "there is no EGL device %d", index);
        return no_device(ST_MISSING, text);
    }
    for (i = 0; i < n && index < 0; i++)
        if (device[i].cuda == want->cuda_device)
            index = i;
    if (index < 0) {
        snprintf(text, sizeof text, "no EGL device belongs to CUDA device %d", want->cuda_device);
        return no_device(ST_MISSING, text);
    }
    if (want->cuda_device >= 0 && device[index].cuda != want->cuda_device) {
        snprintf(text, sizeof text, "EGL device %d is not CUDA device %d", index,
                 want->cuda_device);
        return no_device(ST_INVAL, text);
    }
    return try_device(c, index, &device[index]);
}

// Hardware first, then software, then Mesa without a device list. The error of the first try stays.
static enum status open_any(struct egl_context *c, const struct egl_device *device, int n)
{
    struct error first = {0};
    int pass, i;

    for (pass = 0; pass < 2; pass++)
        for (i = 0; i < n; i++) {
            if (device[i].software != (pass == 1))
                continue;
            if (try_device(c, i, &device[i]) == ST_OK)
                return ST_OK;
            if (first.code == ST_OK)
                first = *error_last();
        }
    if (egl_lists(c->egl->QueryString(NULL, EGL_EXTENSIONS), "EGL_MESA_platform_surfaceless") &&
        try_device(c, -1, NULL) == ST_OK)
        return ST_OK;
    return first.code != ST_OK ? error_adopt(&first) : no_device(ST_MISSING, "EGL cannot start");
}

static enum status open_chosen(struct egl_context *c)
{
    struct egl_device device[EGL_DEVICES_MAX];
    bool named = c->choice.egl_device >= 0 || c->choice.cuda_device >= 0;
    int n;

    TRY(egl_load(&c->egl, &c->gl));
    if (c->egl->GetCurrentContext())
        return FAIL(ST_INVAL, "this thread has an OpenGL context of someone else");
    TRY(egl_devices(device, EGL_DEVICES_MAX, &n));
    TRY(named ? open_named(c, device, n) : open_any(c, device, n));
    c->gl->PixelStorei(GL_PACK_ALIGNMENT, 1);
    log_debug("egl", "EGL device %d: %s, OpenGL %s%s", c->about.device, c->about.renderer,
              c->about.version, c->about.software ? " (on the CPU)" : "");
    return ST_OK;
}

enum status egl_context_get(struct egl_context **out, const struct egl_choice *choice)
{
    struct egl_context *c = mine;
    enum status st;

    if (thread_lost || (c && c->lost))
        return FAIL(ST_TIMEOUT, "the OpenGL context of this thread hangs: render in another one");
    if (c) {
        if (c->choice.egl_device != choice->egl_device ||
            c->choice.cuda_device != choice->cuda_device)
            return FAIL(ST_INVAL, "this thread renders on EGL device %d already", c->about.device);
        c->users++;
        *out = c;
        return ST_OK;
    }
    c = mem_alloc(1, sizeof *c);
    if (!c)
        return ST_NOMEM;
    c->choice = *choice;
    st = open_chosen(c);
    if (st != ST_OK) {
        mem_free(c);
        return st;
    }
    c->users = 1;
    mine = *out = c;
    return ST_OK;
}

// A lost context stays behind: freeing it would wait for what does not come.
void egl_context_put(struct egl_context *c)
{
    if (!c || --c->users > 0)
        return;
    if (!c->lost) {
        close_context(c);
        c->egl->ReleaseThread();
    }
    thread_lost = c->lost;
    mine = NULL;
    mem_free(c);
}

// --- probe --------------------------------------------------------------------------------------

struct probe {
    pthread_mutex_t mtx;
    pthread_cond_t cond;
    struct egl_choice choice;
    struct egl_about about;
    struct error error;
    enum status st;
    bool done;
};

static void *run_probe(void *arg)
{
    struct probe *p = arg;
    struct egl_context *context = NULL;

    p->st = egl_context_get(&context, &p->choice);
    if (p->st == ST_OK)
        p->about = context->about;
    else
        p->error = *error_last();
    egl_context_put(context);
    pthread_mutex_lock(&p->mtx);
    p->done = true;
    pthread_cond_signal(&p->cond);
    pthread_mutex_unlock(&p->mtx);
    return NULL;
}

static bool wait_for_probe(struct probe *p, int64_t watchdog_ns)
{
    int64_t deadline = deadline_after(watchdog_ns > 0 ? watchdog_ns : WAIT_NEVER);
    bool done, in_time = true;

    pthread_mutex_lock(&p->mtx);
    while (!p->done && in_time)
        in_time = cond_wait_until(&p->cond, &p->mtx, deadline);
    done = p->done;
    pthread_mutex_unlock(&p->mtx);
    return done;
}

enum status egl_probe(struct egl_about *out, const struct egl_choice *choice, int64_t watchdog_ns)
{
    struct probe *p = mem_alloc(1, sizeof *p);
    enum status st;
    pthread_t thread;

    if (!p)
        return ST_NOMEM;
    p->choice = *choice;
    pthread_mutex_init(&p->mtx, NULL);
    cond_init(&p->cond);
    st = thread_start(&thread, "egl-probe", run_probe, p);
    if (st == ST_OK && !wait_for_probe(p, watchdog_ns)) {
        pthread_detach(thread); // it may still write into `p`
        return FAIL(ST_TIMEOUT, "the EGL driver did not start within %.3g s: it hangs",
                    (double)watchdog_ns / (double)NS_PER_S);
    }
    if (st == ST_OK) {
        pthread_join(thread, NULL);
        st = p->st == ST_OK ? ST_OK : error_adopt(&p->error);
        *out = st == ST_OK ? p->about : *out;
    }
    pthread_cond_destroy(&p->cond);
    pthread_mutex_destroy(&p->mtx);
    mem_free(p);
    return st;
}
