// render_world.h - a small world that the tests of the renderers look at.
#ifndef TESTS_RENDER_WORLD_H
#define TESTS_RENDER_WORLD_H

#include "tests/testing.h"

#include "envserver/render.h"

#define SIDE   24 // pixels of most pictures
#define PIXELS (SIDE * SIDE)

// A wall of one colour 2 m in front of the camera, which looks along +y, and in the upper left
// corner of its picture a box that reaches out of the wall by 0.5 m.
static const char scene_xml[] =
    "<mujoco><statistic extent='1'/><visual><map znear='.01' zfar='50'/>"
    "<headlight ambient='1 1 1' diffuse='0 0 0' specular='0 0 0'/></visual><worldbody>"
    "<camera name='front' pos='0 0 0' xyaxes='1 0 0 0 0 1' fovy='60'/>"
    "<geom name='wall' type='box' pos='0 2.5 0' size='1.5 .5 1.5' rgba='.2 .4 .6 1'/>"
    "<geom name='corner' type='box' pos='-.7 1.75 .7' size='.2 .25 .2' rgba='1 0 0 1'/>"
    "</worldbody></mujoco>";

struct toy_world {
    mjModel *m;
    mjData *d;
};

static inline struct toy_world world_make(const char *xml)
{
    char text[256] = "";
    mjSpec *spec = mj_parseXMLString(xml, NULL, text, sizeof text);
    struct toy_world w;

    if (!spec)
        fail_msg("%s", text);
    w.m = mj_compile(spec, NULL);
    assert_non_null(w.m);
    mj_deleteSpec(spec);
    w.d = mj_makeData(w.m);
    assert_non_null(w.d);
    mj_forward(w.m, w.d);
    return w;
}

static inline void world_free(struct toy_world *w)
{
    mj_deleteData(w->d);
    mj_deleteModel(w->m);
}

static inline struct render_camera front(int width, int height, enum render_orient orient)
{
    struct render_camera cam;

    memset(&cam, 0, sizeof cam);
    mjv_defaultCamera(&cam.mjv);
    cam.mjv.type = mjCAMERA_FIXED;
    cam.mjv.fixedcamid = 0;
    cam.width = width;
    cam.height = height;
    cam.orient = orient;
    return cam;
}

static inline void colour(const struct toy_world *w, int geom, float r, float g, float b)
{
    float *rgba = w->m->geom_rgba + 4 * geom;

    rgba[0] = r;
    rgba[1] = g;
    rgba[2] = b;
}

// Memory is not given back at once under a sanitizer.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool sanitized = true;
#elif defined(__has_feature)
static const bool sanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
static const bool sanitized = false;
#endif

#endif
