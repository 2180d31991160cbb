// eval_film.h - draws the films of an evaluation (evaluation/film.h): plays the actions of an
// episode in a world of its own and writes DIR/eval_episode_17.mp4.
//
// Threads: all by one, also the evaluation's calls.
#ifndef CLI_EVAL_FILM_H
#define CLI_EVAL_FILM_H

#include "evaluation/film.h"

struct scene;
struct camera_man;

struct eval_film_config {
    const struct scene *scene; // borrowed; compiled with what one sees of it
    const char *dir;           // made when it is needed
    const char *camera;        // see render_camera_parse; "" = agentview, else the model's first
                               // camera, else free; 256x256, upright, unless it says otherwise
    int backend;               // of EVAL_FILM_BACKENDS
    enum film_which which;
    int64_t episodes;
    uint64_t seed;
};

#define EVAL_FILM_BACKENDS "rays|egl"

// *film is for the evaluation; both are freed by eval_film_end.
NODISCARD enum status eval_film_begin(struct camera_man **out, struct film **film,
                                      const struct eval_film_config *cfg);
void eval_film_end(struct camera_man *c, struct film *film); // NULL is fine

#endif
