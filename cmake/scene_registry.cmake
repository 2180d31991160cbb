# simstream_scene_registry(OUT_FILE): write the C table of all tasks, from scenes/gym/*.c.
#
# Each file but gym.c defines `const struct scene_task task_STEM`; adding a file adds the task. The
# suites of scenes/libero/suites.c follow. The table is sorted by name and ends with NULL.
function(simstream_scene_registry out)
    file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/scenes/gym/*.c)
    list(FILTER files EXCLUDE REGEX "/gym\\.c$")
    list(SORT files)
    set(externs "")
    set(entries "")
    set(stems "")
    foreach(file ${files})
        get_filename_component(stem ${file} NAME_WE)
        list(APPEND stems ${stem})
    endforeach()
    foreach(stem ${stems} libero_10 libero_90 libero_goal libero_object libero_spatial tabletop)
        string(APPEND externs "extern const struct scene_task task_${stem};\n")
        string(APPEND entries "    &task_${stem},\n")
    endforeach()
    file(CONFIGURE OUTPUT ${out} @ONLY CONTENT
"// Generated from scenes/gym/*.c and scenes/libero/suites.c.
#include \"scenes/scene.h\"

@externs@
extern const struct scene_task *const scene_registry[];
const struct scene_task *const scene_registry[] = {
@entries@    NULL,
};
")
endfunction()
