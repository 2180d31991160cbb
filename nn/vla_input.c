#include "nn/vla_input.h"

#include <math.h>
#include <string.h>

#define ORIENTS 3 // opengl, upright, rot180

static bool in_range(double x)
{
    return isfinite(x) && fabs(x) < 1e30;
}

enum status vla_input_check(const struct vla_input *in)
{
    int i;

    if (in->n_camera < 1 || in->n_camera > VLA_CAMERAS_MAX)
        return FAIL(ST_INVAL, "a policy with %d cameras, expected 1 to %d", in->n_camera,
                    VLA_CAMERAS_MAX);
    for (i = 0; i < in->n_camera; i++)
        if (in->camera[i].orient >= ORIENTS || !in->camera[i].picture[0] ||
            !memchr(in->camera[i].picture, 0, sizeof in->camera[i].picture))
            return FAIL(ST_INVAL, "camera %d of a policy has no name, or no known orientation", i);
    if (in->n_action < 1 || in->n_action > SPEC_ACT_MAX)
        return FAIL(ST_INVAL, "a policy with actions of %d numbers, expected 1 to %d", in->n_action,
                    SPEC_ACT_MAX);
    for (i = 0; i < VLA_STATE; i++)
        if (!in_range(in->state_mean[i]) || !(in->state_std[i] > 0) || !in_range(in->state_std[i]))
            return FAIL(ST_INVAL, "state_mean or state_std of number %d is out of range", i);
    for (i = 0; i < in->n_action; i++)
        if (!in_range(in->action_low[i]) || !in_range(in->action_high[i]) ||
            !(in->action_low[i] < in->action_high[i]))
            return FAIL(ST_INVAL, "action_low and action_high of number %d are %g and %g", i,
                        in->action_low[i], in->action_high[i]);
    return ST_OK;
}

static bool same(const double *a, const double *b, int n)
{
    for (int i = 0; i < n; i++)
        if (a[i] != b[i])
            return false;
    return true;
}

bool vla_input_equal(const struct vla_input *a, const struct vla_input *b)
{
    if (a->n_camera != b->n_camera || a->n_action != b->n_action)
        return false;
    for (int i = 0; i < a->n_camera; i++)
        if (a->camera[i].orient != b->camera[i].orient ||
            strcmp(a->camera[i].picture, b->camera[i].picture) != 0)
            return false;
    return same(a->state_mean, b->state_mean, VLA_STATE) &&
           same(a->state_std, b->state_std, VLA_STATE) &&
           same(a->action_low, b->action_low, a->n_action) &&
           same(a->action_high, b->action_high, a->n_action);
}

void vla_input_turn_choose(double turn[3])
{
    double angle = sqrt(turn[0] * turn[0] + turn[1] * turn[1] + turn[2] * turn[2]);

    if (turn[0] >= 0 || angle == 0)
        return;
    for (int i = 0; i < 3; i++) // the other way round about the opposite axis
        turn[i] *= 1 - 2 * M_PI / angle;
}

void vla_input_turn(const double quat[4], double out[3])
{
    double w = fmin(fmax(quat[3], -1), 1), den = sqrt(1 - w * w);

    for (int i = 0; i < 3; i++)
        out[i] = den == 0 ? 0 : quat[i] * 2 * acos(w) / den;
    vla_input_turn_choose(out);
}

void vla_input_state(const struct vla_input *in, const double state[VLA_STATE], float *out)
{
    for (int i = 0; i < VLA_STATE; i++)
        out[i] = (float)(((double)(float)state[i] - in->state_mean[i]) / in->state_std[i]);
}

void vla_input_scale(const struct vla_input *in, const float *action, float *out)
{
    for (int i = 0; i < in->n_action; i++) {
        double low = in->action_low[i], span = in->action_high[i] - low;

        out[i] = (float)fmin(fmax(2 * (action[i] - low) / span - 1, -1), 1);
    }
}

void vla_input_unscale(const struct vla_input *in, const float *scaled, float *out)
{
    for (int i = 0; i < in->n_action; i++) {
        double low = in->action_low[i], span = in->action_high[i] - low;

        out[i] = (float)((scaled[i] + 1) / 2 * span + low);
    }
}

// ------------------------------------------------------------------ pictures

enum status vla_shrink_init(struct vla_shrink *s, int side, int64_t height, int64_t width,
                            uint32_t from_orient, uint32_t to_orient)
{
    // against opengl, whose row 0 is the bottom: is it turned over?
    static const bool rows[ORIENTS] = {false, true, true}, columns[ORIENTS] = {false, false, true};

    if (height != width || height < side || height % side != 0)
        return FAIL(ST_INVAL,
                    "pictures of %lld by %lld, expected squares of a multiple of %d pixels",
                    (long long)width, (long long)height, side);
    if (from_orient >= ORIENTS || to_orient >= ORIENTS)
        return FAIL(ST_INVAL, "pictures of an unknown orientation");
    *s = (struct vla_shrink){
        .side = side,
        .factor = (int)(height / side),
        .flip_rows = rows[from_orient] != rows[to_orient],
        .flip_columns = columns[from_orient] != columns[to_orient],
    };
    return ST_OK;
}

// The mean of a block of `factor` by `factor` pixels, to the nearest.
static uint8_t block_mean(const uint8_t *p, int factor, size_t row_bytes)
{
    unsigned sum = 0, n = (unsigned)(factor * factor);

    for (int r = 0; r < factor; r++)
        for (int c = 0; c < factor; c++)
            sum += p[(size_t)r * row_bytes + 3 * (size_t)c];
    return (uint8_t)((sum + n / 2) / n);
}

void vla_shrink(const struct vla_shrink *s, const uint8_t *picture, uint8_t *out)
{
    size_t row_bytes = 3 * (size_t)s->side * (size_t)s->factor;

    if (s->factor == 1 && !s->flip_rows && !s->flip_columns) {
        memcpy(out, picture, row_bytes * (size_t)s->side);
        return;
    }
    for (int r = 0; r < s->side; r++) {
        int from_r = s->flip_rows ? s->side - 1 - r : r;

        for (int c = 0; c < s->side; c++, out += 3) {
            int from_c = s->flip_columns ? s->side - 1 - c : c;
            const uint8_t *p = picture + (size_t)(from_r * s->factor) * row_bytes +
                               3 * (size_t)(from_c * s->factor);

            for (int k = 0; k < 3; k++)
                out[k] = block_mean(p + k, s->factor, row_bytes);
        }
    }
}

// ------------------------------------------------------------------ a server's rows

static enum status find_field(const struct spec *spec, const char *name, int n, int *offset)
{
    const struct spec_field *f = spec_field_find(spec, name);

    if (!f || f->n != n)
        return FAIL(ST_INVAL, "the policy sees the robot's state, of which %s does not give '%s'",
                    spec->task, name);
    *offset = f->offset;
    return ST_OK;
}

static enum status find_picture(struct vla_view *v, int k, int side, const struct spec *spec)
{
    const struct vla_camera *camera = &v->in->camera[k];
    const struct spec_picture *p = spec_picture_find(spec, camera->picture);
    static const char suffix[] = "_image";
    int n = (int)(strlen(camera->picture) - (sizeof suffix - 1));
    char list[512];

    if (!p || p->plane != SPEC_RGB)
        return FAIL(ST_INVAL,
                    "the policy sees '%s', the pictures of %s are: %s (keyword arguments such as "
                    "'{\"cameras\": \"%.*s:%dx%d,...\"}')",
                    camera->picture, spec->task, spec_picture_list(spec, list, sizeof list),
                    n > 0 ? n : 0, camera->picture, side, side);
    v->camera[k].offset = p->offset;
    if (vla_shrink_init(&v->camera[k].shrink, side, p->height, p->width, p->orient,
                        camera->orient) != ST_OK)
        return error_prefix("'%s' of %s", camera->picture, spec->task);
    return ST_OK;
}

enum status vla_view_init(struct vla_view *v, const struct vla_input *in, int side,
                          const struct spec *spec)
{
    memset(v, 0, sizeof *v);
    v->in = in;
    if (spec->n_act != in->n_action)
        return FAIL(ST_INVAL, "the policy's actions have %d numbers, those of %s %d", in->n_action,
                    spec->task, spec->n_act);
    TRY(find_field(spec, "robot0_eef_pos", 3, &v->pos));
    TRY(find_field(spec, "robot0_eef_quat", 4, &v->quat));
    TRY(find_field(spec, "robot0_gripper_qpos", 2, &v->gripper));
    for (int i = 0; i < in->n_camera; i++)
        TRY(find_picture(v, i, side, spec));
    return ST_OK;
}

void vla_view_state(const struct vla_view *v, const double *obs, double state[VLA_STATE])
{
    memcpy(state, obs + v->pos, 3 * sizeof state[0]);
    vla_input_turn(obs + v->quat, state + 3);
    memcpy(state + 6, obs + v->gripper, 2 * sizeof state[0]);
}

void vla_view_picture(const struct vla_view *v, int camera, const uint8_t *block, uint8_t *out)
{
    vla_shrink(&v->camera[camera].shrink, block + v->camera[camera].offset, out);
}
