// model_cache.h - compile a composed document; models with pictures are kept on disk.
//
// The folder is $SIMSTREAM_CACHE_DIR, else $XDG_CACHE_HOME/simstream, else ~/.cache/simstream. A
// file's name is a hash of the document, the content of every file that it names and the engine's
// version, so that nothing stale is ever loaded.
//
// Threads: any; two processes may write the same file.
#ifndef SCENES_LIBERO_MODEL_CACHE_H
#define SCENES_LIBERO_MODEL_CACHE_H

#include "scenes/libero/xml.h"

#include <mujoco/mujoco.h>

// Compile `text`, which is the tree `root`; `what` names it in errors (ST_INVAL). With `keep` the
// compiled model comes from the cache or goes there; a cache that cannot be written is logged.
NODISCARD enum status model_compile(const mjModel **out, const char *text,
                                    const struct xml_node *root, bool keep, const char *what);

#endif
