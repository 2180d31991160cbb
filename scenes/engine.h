// engine.h - MuJoCo's errors and warnings: caught, so that they never end the process, print, or
// write MUJOCO_LOG.TXT into the working directory.
//
//   struct engine_trap trap;
//   if (ENGINE_TRY(&trap)) { mj_step(m, d); engine_end(&trap); }
//   else { ... trap.text says what the engine reported ... }
//
// Nothing between ENGINE_TRY and engine_end may own a resource: an error jumps out of the middle.
// After an error the mjData is usable again once mj_resetData was called.
//
// An error outside of a trap is a bug: it is logged and the process aborts. The first warning of
// each kind is logged at level warn, the next ones at level debug.
//
// Threads: any; a trap belongs to the thread that set it. Traps do not nest.
#ifndef SCENES_ENGINE_H
#define SCENES_ENGINE_H

#include <setjmp.h>
#include <stdbool.h>

struct engine_trap {
    jmp_buf env;
    char text[256];
};

// Install the handlers, once per process; scene_create does it.
void engine_init(void);

// True now, and false when the engine has reported an error since.
#define ENGINE_TRY(trap) (engine_begin(trap), setjmp((trap)->env) == 0)

void engine_begin(struct engine_trap *trap); // used by ENGINE_TRY
void engine_end(struct engine_trap *trap);

// Warnings of the engine so far, in all threads.
long long engine_warnings(void);

#endif
