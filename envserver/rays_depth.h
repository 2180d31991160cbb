// rays_depth.h - the depth of a triangle to the last bit as OpenGL's software renderer has it.
//
// Parts of a model may share faces (a clear panel and the board that it is glued to). Which of them
// is seen is then a matter of how the renderer rounds, so it is rounded here in the same way:
// matrices, clipping at the borders of the picture, and the depth's plane in window coordinates are
// those of MuJoCo's mjr_render (render_gl3.c) on Mesa's llvmpipe (math/m_matrix.c,
// draw/draw_pipe_clip.c, llvmpipe/lp_state_setup.c, llvmpipe/lp_bld_interp.c), in float and in
// their order. It takes about a microsecond: for the few samples at which depths nearly tie.
//
// Threads: nothing is shared.
#ifndef ENVSERVER_RAYS_DEPTH_H
#define ENVSERVER_RAYS_DEPTH_H

#include <mujoco/mujoco.h>

// How OpenGL sees the world through a perspective camera.
struct rays_depth_view {
    float eye[4][4];  // world -> eye coordinates, row-major
    float clip[4][4]; // eye -> clip coordinates
    float half[2];    // of the picture, pixels
};

// The view of `cam`, as mjr_render makes it for a picture of width x height.
void rays_depth_camera(struct rays_depth_view *v, const mjvGLCamera *cam, int width, int height);

// Look from `pos` along -z of the axes `right`, `up`, `forward` instead, which are unit vectors.
void rays_depth_look(struct rays_depth_view *v, const double pos[3], const double right[3],
                     const double up[3], const double forward[3]);

// An instance in a view.
struct rays_depth_rows {
    float row[4][4]; // list -> clip coordinates
};

// `lin` (row-major) and `pos` take list coordinates to the world.
void rays_depth_rows(struct rays_depth_rows *rows, const struct rays_depth_view *v,
                     const float lin[9], const double pos[3]);

// Depth at window point (x, y), 1 near and 0 far, of the triangle `p` of an instance, with
// `samples` a pixel.
float rays_depth_at(const struct rays_depth_view *v, const struct rays_depth_rows *rows,
                    const float p[3][3], int samples, float x, float y);

#endif
