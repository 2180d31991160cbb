// render.h - camera pictures of a world: colour, depth and segmentation, as MuJoCo's own classic
// renderer draws them, from one of two backends that are chosen by name:
//   rays  a CPU renderer; needs no display, no driver, no device. What the rays of a perspective
//         view meet first is found triangle by triangle; mirrors, shadows, transparent things and
//         orthographic views by rays through Embree's trees. It draws no lines (such as rangefinder
//         rays), no fog and no haze, and refuses models with flexes or skins
//   egl   MuJoCo's OpenGL renderer in an off-screen EGL context
//
// Three objects:
//   render_shared  what all envs of a task model have in common: meshes, ray trees, textures
//   render_worker  what one thread needs to draw: buffers, the abstract scene, a GL context
//   render_camera  which view, how large, which way up: a plain value
//
// Threads: a render_shared is made and freed by any thread and only read in between, by any number
// of workers at once. A worker is created, used and destroyed by ONE thread, and frames of
// different workers take no common lock. The caller keeps the worker apart, not the envs: one
// worker draws all envs that its thread steps. A render_shared outlives its workers, a task model
// its render_shared.
#ifndef ENVSERVER_RENDER_H
#define ENVSERVER_RENDER_H

#include "common/base/status.h"

#include <mujoco/mujoco.h>
#include <stdint.h>

#define RENDER_SIZE_MAX 4096 // pixels, either side

enum render_orient {
    RENDER_OPENGL,  // row 0 is the bottom row (robosuite, LIBERO)
    RENDER_UPRIGHT, // row 0 is the top row (Gymnasium, image files)
    RENDER_ROT180,  // img[::-1, ::-1] of the opengl picture: upright, left and right exchanged
};

enum render_fallback {
    RENDER_OR_FAIL, // the named backend or an error
    RENDER_OR_RAYS, // rays (with a warning in the log) where egl cannot start, or hangs later
};

struct render_config {
    const char *backend;           // "rays" or "egl"; borrowed for the call only
    int samples;                   // per pixel, 1 or 4
    bool fast;                     // leave out mirrors and shadows
    bool forget;                   // rays: draw all of each frame anew, even what stands still
    uint32_t geom_groups;          // bit g: geoms of group g (0..5) are drawn
    uint32_t site_groups;          // bit g: sites of group g (0..5) are drawn
    int max_geom;                  // drawable things, 0 = enough for the model
    enum render_fallback fallback; // egl only, like the rest below
    int egl_device;                // index in EGL's device list, -1 = not chosen this way
    int cuda_device;               // CUDA ordinal of the EGL device, -1 = not chosen this way
    int64_t watchdog_ns;           // a frame or a context that takes longer is a failure, 0 = never
};

// rays, 4 samples, groups 0..2 of geoms and of sites as MuJoCo has it, no EGL device named (the
// first that works), 30 s of watchdog, fail rather than fall back.
void render_config_default(struct render_config *cfg);

// A view. `mjv` is MuJoCo's abstract camera: fixed, free or tracking a body.
struct render_camera {
    mjvCamera mjv;
    int width, height; // pixels
    enum render_orient orient;
};

// Read "VIEW[:WIDTHxHEIGHT][:ORIENT]" for model `m`; what is missing keeps its value in `cam`.
//   VIEW    the name of a fixed camera; "#N" its number; "free" or "track=BODY" with any of
//           ",distance=M" ",azimuth=DEG" ",elevation=DEG" ",lookat=X/Y/Z" after it
//           (the free view starts as MuJoCo's default free camera, the tracking one too)
//   ORIENT  opengl, upright or rot180
// ST_INVAL with a text that names the part and what there is.
NODISCARD enum status render_camera_parse(struct render_camera *cam, const mjModel *m,
                                          const char *text);

// "WIDTHxHEIGHT" alone.
NODISCARD enum status render_size_parse(struct render_camera *cam, const char *text);

// Name -> orientation, and back. ST_INVAL lists the names.
NODISCARD enum status render_orient_parse(enum render_orient *out, const char *name);
const char *render_orient_name(enum render_orient orient);

// Where a frame goes; NULL = that plane is not wanted. Rows are `*_stride` bytes apart, 0 = packed.
// Memory is the caller's (a row of the batch block); nothing outside width x height is written.
struct render_out {
    uint8_t *rgb; // (height, width, 3)
    float *depth; // (height, width) metres along the view axis at the pixel centre, of everything
                  // that is drawn, transparent or not; the far plane where there is nothing
    int32_t *seg; // (height, width, 2) MuJoCo object id and type (mjtObj), -1 -1 = nothing
    size_t rgb_stride, depth_stride, seg_stride;
};

struct render_shared;
struct render_worker;

// Upload model `m` (borrowed until destroy). The config is copied. ST_INVAL: bad option, or a model
// that cannot be drawn; ST_MISSING: no such device or driver.
NODISCARD enum status render_shared_create(struct render_shared **out, const mjModel *m,
                                           const struct render_config *cfg);
void render_shared_destroy(struct render_shared *shared); // NULL is fine

NODISCARD enum status render_worker_create(struct render_worker **out,
                                           struct render_shared *shared);
void render_worker_destroy(struct render_worker *worker); // NULL is fine; same thread as create

// The backend in use after a possible fallback, which may happen later too: "rays" or "egl".
const char *render_worker_backend(const struct render_worker *worker);

// Draw world `d` as it is (no kinematics is recomputed) with `m`, the env's own view of the task
// model: meshes and textures are those of the render_shared, all else (poses, sizes, colours,
// lights, cameras) is read from `m`. `d` is written only in its scratch stack. Blocks until the
// frame is in `out`; nothing is written there on failure. ST_INVAL: `m` is not a view of the shared
// model, or the camera does not fit; ST_ENGINE: MuJoCo reported an error; ST_TIMEOUT: watchdog.
NODISCARD enum status render_frame(struct render_worker *worker, const mjModel *m, mjData *d,
                                   const struct render_camera *cam, const struct render_out *out);

// One of several frames; the arguments of render_frame. The worlds may be the same or different.
struct render_view {
    const mjModel *m;
    mjData *d;
    const struct render_camera *cam;
    const struct render_out *out;
};

// render_frame for each of `n` views, in order. Two are under way at once where the backend can:
// egl reads one back while it draws the next, so two cameras of an env cost one wait. After a
// failure the first *done views are complete and nothing was written for the others; `done` may be
// NULL.
NODISCARD enum status render_frames(struct render_worker *worker, const struct render_view *views,
                                    int n, int *done);

// ------------------------------------------------------------------------------------------------
// For the backends only.

// A frame as a backend makes it: packed, row 0 at the bottom; planes that are not wanted are NULL.
// render.c owns the memory and turns it into the caller's orientation.
struct render_image {
    int width, height;
    bool still;     // the view stands still while the world moves
    uint8_t *rgb;   // (height, width, 3)
    float *depth;   // (height, width), as in render_out
    int32_t *segid; // (height, width) index into scn->geoms, -1 = nothing
};

#define RENDER_IN_FLIGHT 2 // frames of a worker that may be under way

// A backend draws an mjvScene: render.c has filled in geoms, lights and camera for this frame, and
// the backend may write into it as mjr_render does. mjv and mjr calls that can raise an engine
// error run inside ENGINE_TRY (scenes/engine.h).
//
// `submit` begins the frame of `slot` (0 to RENDER_IN_FLIGHT - 1) and `collect` waits until it is
// in `img`; both get the same scene and image, and each successful submit is followed by its
// collect, in order. A backend that draws in `submit` has no `collect`.
struct render_backend {
    const char *name;
    enum status (*shared_create)(void **out, const mjModel *m, const struct render_config *cfg);
    void (*shared_destroy)(void *shared);
    enum status (*worker_create)(void **out, void *shared);
    void (*worker_destroy)(void *worker);
    enum status (*submit)(void *worker, int slot, const mjModel *m, mjvScene *scn,
                          const struct render_image *img);
    enum status (*collect)(void *worker, int slot, const mjvScene *scn,
                           const struct render_image *img); // may be NULL
};

extern const struct render_backend render_backend_rays;
extern const struct render_backend render_backend_egl;

#endif
