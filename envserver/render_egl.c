// The EGL backend: MuJoCo's own mjr_render in the off-screen OpenGL context of the thread.
//
// A worker holds one mjrContext, the uploaded meshes and textures of its task model; all workers of
// a thread live in one OpenGL context. A picture is drawn, resolved from its samples and read into
// a pixel buffer, so that the read of one picture runs while the next is drawn. A software renderer
// has no transfer that could overlap and would do all its work inside of glReadPixels, where no
// deadline reaches, so there the picture is waited for first.
#include "envserver/egl_context.h"
#include "envserver/render.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/thread.h"
#include "scenes/engine.h"

#include <pthread.h>
#include <string.h>

#define START_SIDE 64 // pixels of the first framebuffer; it grows to the largest picture

struct egl_shared {
    const mjModel *m; // borrowed
    struct egl_choice choice;
    int samples;
    bool fast;
    int64_t watchdog_ns;
};

enum pass { PASS_COLOUR, PASS_IDS, N_PASS };

struct flight { // a picture on its way into a pixel buffer
    unsigned buffer;
    size_t bytes; // allocated
    gl_sync sync; // NULL = nothing is on its way
};

struct egl_worker {
    const struct egl_shared *shared;
    struct egl_context *gl;
    pthread_t thread;
    int max_side; // that the driver can draw
    bool made;    // `con` holds GL objects
    mjrContext con;
    struct flight flight[RENDER_IN_FLIGHT][N_PASS];
    int64_t deadline_ns; // of the present submit or collect
};

// --- shared -------------------------------------------------------------------------------------

static enum status egl_shared_create(void **out, const mjModel *m, const struct render_config *cfg)
{
    struct egl_choice choice = {cfg->egl_device, cfg->cuda_device};
    struct egl_about about;
    struct egl_shared *s;

    if (cfg->samples != 1 && cfg->samples != 4)
        return FAIL(ST_INVAL, "%d samples a pixel: 1 or 4 can be drawn", cfg->samples);
    TRY(egl_probe(&about, &choice, cfg->watchdog_ns));
    log_info("egl", "device %d: %s%s", about.device, about.renderer,
             about.software ? " (software: renders on the CPU)" : "");
    s = mem_alloc(1, sizeof *s);
    if (!s)
        return ST_NOMEM;
    s->m = m;
    s->choice = choice;
    s->samples = cfg->samples;
    s->fast = cfg->fast;
    s->watchdog_ns = cfg->watchdog_ns;
    *out = s;
    return ST_OK;
}

static void egl_shared_destroy(void *shared)
{
    mem_free(shared);
}

// --- worker -------------------------------------------------------------------------------------

static bool casts_shadow(const mjModel *m)
{
    int i;

    for (i = 0; i < m->nlight; i++)
        if (m->light_castshadow[i])
            return true;
    return false;
}

static void free_upload(struct egl_worker *w)
{
    if (!w->made)
        return;
    mjr_freeContext(&w->con);
    w->made = false;
}

static enum status check_framebuffer(struct egl_worker *w, unsigned name, const char *what)
{
    const struct gl_calls *gl = w->gl->gl;
    unsigned code;

    if (!name)
        return ST_OK;
    gl->BindFramebuffer(GL_FRAMEBUFFER, name);
    code = gl->CheckFramebufferStatus(GL_FRAMEBUFFER);
    if (code != GL_FRAMEBUFFER_COMPLETE)
        return FAIL(ST_IO, "the %s framebuffer of %s is incomplete (0x%x): %d x %d, %d samples",
                    what, w->gl->about.renderer, code, w->con.offWidth, w->con.offHeight,
                    w->con.offSamples);
    return ST_OK;
}

static enum status check_gl(struct egl_worker *w, const char *what)
{
    unsigned code = w->gl->gl->GetError();

    if (code != GL_NO_ERROR)
        return FAIL(ST_IO, "%s: OpenGL error 0x%x%s from %s", what, code,
                    code == 0x505 ? " (out of memory)" : "", w->gl->about.renderer);
    return ST_OK;
}

// Upload meshes and textures. Only sizes differ from what MuJoCo would take from the model: a
// framebuffer as large as the pictures, and a shadow map only where a light casts shadows.
static enum status upload(struct egl_worker *w, bool shadows, int width, int height)
{
    mjModel view = *w->shared->m;
    struct engine_trap trap;

    free_upload(w);
    view.vis.global.offwidth = width;
    view.vis.global.offheight = height;
    view.vis.quality.offsamples = w->shared->samples == 1 ? 0 : w->shared->samples;
    if (!shadows)
        view.vis.quality.shadowsize = 0;
    w->gl->gl->BindFramebuffer(GL_FRAMEBUFFER, 0);
    mjr_defaultContext(&w->con);
    w->made = true;
    if (!ENGINE_TRY(&trap))
        return FAIL(ST_ENGINE, "the model cannot be uploaded to %s: %s", w->gl->about.renderer,
                    trap.text);
    mjr_makeContext(&view, &w->con, mjFONTSCALE_150);
    mjr_setBuffer(mjFB_OFFSCREEN, &w->con);
    engine_end(&trap);
    if (w->con.currentBuffer != mjFB_OFFSCREEN)
        return FAIL(ST_MISSING, "%s has no off-screen framebuffer", w->gl->about.renderer);
    TRY(check_framebuffer(w, w->con.offFBO, "off-screen"));
    return check_framebuffer(w, w->con.offFBO_r, "resolving");
}

static void drop_sync(struct egl_worker *w, struct flight *f)
{
    if (f->sync)
        w->gl->gl->DeleteSync(f->sync);
    f->sync = NULL;
}

static void egl_worker_destroy(void *worker)
{
    struct egl_worker *w = worker;
    int i;

    if (w->gl && !w->gl->lost) {
        for (i = 0; i < RENDER_IN_FLIGHT * N_PASS; i++) {
            struct flight *f = &w->flight[i / N_PASS][i % N_PASS];

            drop_sync(w, f);
            if (f->buffer)
                w->gl->gl->DeleteBuffers(1, &f->buffer);
        }
        free_upload(w);
    }
    egl_context_put(w->gl);
    mem_free(w);
}

static enum status open_worker(struct egl_worker *w)
{
    bool shadows = casts_shadow(w->shared->m) && !w->shared->fast;
    int i, samples = 0;

    engine_init();
    TRY(egl_context_get(&w->gl, &w->shared->choice));
    w->gl->gl->GetIntegerv(GL_MAX_RENDERBUFFER_SIZE, &w->max_side);
    w->gl->gl->GetIntegerv(GL_MAX_SAMPLES, &samples);
    if (w->shared->samples > 1 && samples < w->shared->samples)
        return FAIL(ST_MISSING, "%s draws at most %d samples a pixel, not %d",
                    w->gl->about.renderer, samples, w->shared->samples);
    for (i = 0; i < RENDER_IN_FLIGHT * N_PASS; i++)
        w->gl->gl->GenBuffers(1, &w->flight[i / N_PASS][i % N_PASS].buffer);
    TRY(upload(w, shadows, START_SIDE, START_SIDE));
    return check_gl(w, "making a render context");
}

static enum status egl_worker_create(void **out, void *shared)
{
    struct egl_worker *w = mem_alloc(1, sizeof *w);
    enum status st;

    if (!w)
        return ST_NOMEM;
    w->shared = shared;
    w->thread = pthread_self();
    st = open_worker(w);
    if (st != ST_OK) {
        egl_worker_destroy(w);
        return st;
    }
    *out = w;
    return ST_OK;
}

// --- a frame ------------------------------------------------------------------------------------

static enum status hangs(struct egl_worker *w)
{
    w->gl->lost = true;
    return FAIL(ST_TIMEOUT,
                "%s did not finish a picture within %.3g s: the driver hangs; this thread renders "
                "no more",
                w->gl->about.renderer, (double)w->shared->watchdog_ns / (double)NS_PER_S);
}

// Wait until the commands before `sync` are done, or until the frame's deadline.
static enum status wait_sync(struct egl_worker *w, gl_sync sync)
{
    const struct gl_calls *gl = w->gl->gl;
    unsigned code;

    do {
        int64_t left = w->deadline_ns == WAIT_NEVER ? NS_PER_S : w->deadline_ns - clock_now_ns();

        code = gl->ClientWaitSync(sync, GL_SYNC_FLUSH_COMMANDS_BIT, left > 0 ? (uint64_t)left : 0);
        if (code == GL_TIMEOUT_EXPIRED && left <= 0)
            return hangs(w);
    } while (code == GL_TIMEOUT_EXPIRED);
    if (code == GL_WAIT_FAILED)
        return FAIL(ST_IO, "waiting for a picture of %s failed: OpenGL error 0x%x",
                    w->gl->about.renderer, gl->GetError());
    return ST_OK;
}

static enum status grow(struct egl_worker *w, int width, int height)
{
    struct engine_trap trap;

    if (!ENGINE_TRY(&trap))
        return FAIL(ST_ENGINE, "%s", trap.text);
    mjr_resizeOffscreen(width, height, &w->con);
    engine_end(&trap);
    TRY(check_framebuffer(w, w->con.offFBO, "off-screen"));
    return check_framebuffer(w, w->con.offFBO_r, "resolving");
}

// Make the framebuffer and the shadow map fit.
static enum status prepare(struct egl_worker *w, const mjModel *m, int width, int height)
{
    bool shadows = !w->shared->fast && w->con.shadowSize == 0 &&
                   w->shared->m->vis.quality.shadowsize > 0 && casts_shadow(m);
    int new_width = width > w->con.offWidth ? width : w->con.offWidth;
    int new_height = height > w->con.offHeight ? height : w->con.offHeight;

    if (width < 1 || height < 1 || width > w->max_side || height > w->max_side)
        return FAIL(ST_INVAL, "a picture of %d x %d: %s draws 1 to %d pixels a side", width, height,
                    w->gl->about.renderer, w->max_side);
    if (shadows)
        return upload(w, true, new_width, new_height);
    if (new_width > w->con.offWidth || new_height > w->con.offHeight)
        return grow(w, new_width, new_height);
    return ST_OK;
}

static enum status draw(struct egl_worker *w, mjvScene *scn, enum pass pass, int width, int height)
{
    static const int off_if_fast[] = {mjRND_SHADOW, mjRND_REFLECTION};
    mjtByte flags[mjNRNDFLAG];
    mjrRect viewport = {0, 0, width, height};
    struct engine_trap trap;
    size_t i;

    memcpy(flags, scn->flags, sizeof flags);
    if (w->shared->fast)
        for (i = 0; i < sizeof off_if_fast / sizeof off_if_fast[0]; i++)
            scn->flags[off_if_fast[i]] = 0;
    scn->flags[mjRND_SEGMENT] = scn->flags[mjRND_IDCOLOR] = pass == PASS_IDS;
    if (!ENGINE_TRY(&trap)) {
        memcpy(scn->flags, flags, sizeof flags);
        return FAIL(ST_ENGINE, "drawing failed: %s", trap.text);
    }
    mjr_setBuffer(mjFB_OFFSCREEN, &w->con);
    mjr_render(viewport, scn, &w->con);
    engine_end(&trap);
    memcpy(scn->flags, flags, sizeof flags);
    return ST_OK;
}

// The samples of each pixel become one, in the second framebuffer; then reads come from there.
static void resolve(struct egl_worker *w, enum pass pass, int width, int height)
{
    const struct gl_calls *gl = w->gl->gl;
    unsigned what = GL_COLOR_BUFFER_BIT | (pass == PASS_IDS ? GL_DEPTH_BUFFER_BIT : 0);

    gl->BindFramebuffer(GL_READ_FRAMEBUFFER, w->con.offFBO);
    gl->ReadBuffer(GL_COLOR_ATTACHMENT0);
    if (!w->con.offSamples)
        return;
    gl->BindFramebuffer(GL_DRAW_FRAMEBUFFER, w->con.offFBO_r);
    gl->DrawBuffer(GL_COLOR_ATTACHMENT0);
    gl->BlitFramebuffer(0, 0, width, height, 0, 0, width, height, what, GL_NEAREST);
    gl->BindFramebuffer(GL_READ_FRAMEBUFFER, w->con.offFBO_r);
    gl->ReadBuffer(GL_COLOR_ATTACHMENT0);
}

// Of the colours in a pixel buffer; the depths of PASS_IDS follow, aligned for floats.
static size_t colour_bytes(int width, int height)
{
    return ((size_t)width * (size_t)height * 3 + 15) & ~(size_t)15;
}

static void start_read(struct egl_worker *w, struct flight *f, enum pass pass, int width,
                       int height)
{
    const struct gl_calls *gl = w->gl->gl;
    size_t depth_at = colour_bytes(width, height), bytes = depth_at;

    if (pass == PASS_IDS)
        bytes += (size_t)width * (size_t)height * sizeof(float);
    gl->BindBuffer(GL_PIXEL_PACK_BUFFER, f->buffer);
    if (bytes > f->bytes) {
        gl->BufferData(GL_PIXEL_PACK_BUFFER, (intptr_t)bytes, NULL, GL_STREAM_READ);
        f->bytes = bytes;
    }
    gl->PixelStorei(GL_PACK_ALIGNMENT, 1);
    gl->ReadPixels(0, 0, width, height, GL_RGB, GL_UNSIGNED_BYTE, NULL);
    if (pass == PASS_IDS)
        gl->ReadPixels(0, 0, width, height, GL_DEPTH_COMPONENT, GL_FLOAT,
                       (void *)(uintptr_t)depth_at); // an offset into the buffer
    gl->BindBuffer(GL_PIXEL_PACK_BUFFER, 0);
}

static enum status submit(struct egl_worker *w, struct flight *f, mjvScene *scn, enum pass pass,
                          const struct render_image *img)
{
    const struct gl_calls *gl = w->gl->gl;

    TRY(draw(w, scn, pass, img->width, img->height));
    resolve(w, pass, img->width, img->height);
    if (w->gl->about.software) {
        gl_sync drawn = gl->FenceSync(GL_SYNC_GPU_COMMANDS_COMPLETE, 0);
        enum status st = wait_sync(w, drawn);

        if (st != ST_TIMEOUT)
            gl->DeleteSync(drawn);
        if (st != ST_OK)
            return st;
    }
    start_read(w, f, pass, img->width, img->height);
    drop_sync(w, f); // of a frame that failed half way
    f->sync = gl->FenceSync(GL_SYNC_GPU_COMMANDS_COMPLETE, 0);
    gl->Flush();
    return ST_OK;
}

// The segment that a colour stands for, if the scene has it.
static int32_t segment_of(const uint8_t *rgb, const mjvScene *scn)
{
    int32_t i = (int32_t)(rgb[0] | (unsigned)rgb[1] << 8 | (unsigned)rgb[2] << 16) - 1;

    return i < scn->ngeom && (i < 0 || scn->geoms[i].segid == i) ? i : -1;
}

// Metres from the depth buffer, which is 1 at the near plane and 0 at the far one.
static void copy_depth(float *out, const float *in, size_t n, const mjvScene *scn)
{
    double near = scn->camera[0].frustum_near, far = scn->camera[0].frustum_far;
    size_t i;

    if (scn->camera[0].orthographic)
        for (i = 0; i < n; i++)
            out[i] = (float)(far - (double)in[i] * (far - near));
    else
        for (i = 0; i < n; i++)
            out[i] = (float)(near * far / (near + (double)in[i] * (far - near)));
}

static void copy_out(const uint8_t *pixels, enum pass pass, const mjvScene *scn,
                     const struct render_image *img)
{
    size_t n = (size_t)img->width * (size_t)img->height, i;

    if (pass == PASS_COLOUR) {
        memcpy(img->rgb, pixels, 3 * n);
        return;
    }
    if (img->segid)
        for (i = 0; i < n; i++)
            img->segid[i] = segment_of(pixels + 3 * i, scn);
    if (img->depth)
        copy_depth(img->depth, (const float *)(pixels + colour_bytes(img->width, img->height)), n,
                   scn);
}

static enum status collect(struct egl_worker *w, struct flight *f, enum pass pass,
                           const mjvScene *scn, const struct render_image *img)
{
    const struct gl_calls *gl = w->gl->gl;
    const uint8_t *pixels;

    TRY(wait_sync(w, f->sync));
    drop_sync(w, f);
    TRY(check_gl(w, "drawing a picture"));
    gl->BindBuffer(GL_PIXEL_PACK_BUFFER, f->buffer);
    pixels = gl->MapBuffer(GL_PIXEL_PACK_BUFFER, GL_READ_ONLY);
    if (pixels)
        copy_out(pixels, pass, scn, img);
    if (pixels)
        gl->UnmapBuffer(GL_PIXEL_PACK_BUFFER);
    gl->BindBuffer(GL_PIXEL_PACK_BUFFER, 0);
    return pixels ? ST_OK : FAIL(ST_IO, "%s does not give its picture", w->gl->about.renderer);
}

static enum status check_thread(struct egl_worker *w)
{
    int64_t watchdog_ns = w->shared->watchdog_ns;

    if (!pthread_equal(w->thread, pthread_self()))
        return FAIL(ST_INVAL, "a render worker was used by another thread than its own");
    if (w->gl->lost)
        return FAIL(ST_TIMEOUT, "the OpenGL context of this thread hangs: render in another one");
    w->deadline_ns = deadline_after(watchdog_ns > 0 ? watchdog_ns : WAIT_NEVER);
    return ST_OK;
}

static enum status egl_submit(void *worker, int slot, const mjModel *m, mjvScene *scn,
                              const struct render_image *img)
{
    struct egl_worker *w = worker;
    struct flight *f = w->flight[slot];

    TRY(check_thread(w));
    TRY(prepare(w, m, img->width, img->height));
    if (img->rgb)
        TRY(submit(w, &f[PASS_COLOUR], scn, PASS_COLOUR, img));
    if (img->depth || img->segid)
        TRY(submit(w, &f[PASS_IDS], scn, PASS_IDS, img));
    return ST_OK;
}

static enum status egl_collect(void *worker, int slot, const mjvScene *scn,
                               const struct render_image *img)
{
    struct egl_worker *w = worker;
    struct flight *f = w->flight[slot];

    TRY(check_thread(w));
    if (img->rgb)
        TRY(collect(w, &f[PASS_COLOUR], PASS_COLOUR, scn, img));
    if (img->depth || img->segid)
        TRY(collect(w, &f[PASS_IDS], PASS_IDS, scn, img));
    return ST_OK;
}

const struct render_backend render_backend_egl = {
    .name = "egl",
    .shared_create = egl_shared_create,
    .shared_destroy = egl_shared_destroy,
    .worker_create = egl_worker_create,
    .worker_destroy = egl_worker_destroy,
    .submit = egl_submit,
    .collect = egl_collect,
};
