# The library of the Python package: libsimstream_c is envs, wire and the flat interface of capi/,
# without networks and learning, so that it needs neither BLAS nor HDF5. The component `python` is
# what goes into the wheel: the library with everything that it loads beside it, the task models and
# the licences. scikit-build-core (python/pyproject.toml) sets SKBUILD.
add_library(simstream_c SHARED)
foreach(module envclient framestack intake fleet)
    target_sources(simstream_c PRIVATE ${CMAKE_SOURCE_DIR}/rollout/${module}.c)
endforeach()
target_include_directories(simstream_c PRIVATE ${CMAKE_SOURCE_DIR})
foreach(folder common scenes envserver capi)
    target_sources(simstream_c PRIVATE $<TARGET_OBJECTS:${folder}>)
endforeach()
file(WRITE ${CMAKE_BINARY_DIR}/generated/simstream_c.map "{ global: ss_*; local: *; };\n")
target_link_libraries(simstream_c PRIVATE simstream_deps)
# an rpath that holds for the libraries' own needs too; nothing but ss_* is visible
target_link_options(simstream_c PRIVATE -Wl,--as-needed -Wl,--disable-new-dtags
                    -Wl,--version-script=${CMAKE_BINARY_DIR}/generated/simstream_c.map)
set_target_properties(simstream_c PROPERTIES LINKER_LANGUAGE C INSTALL_RPATH $ORIGIN
                      BUILD_RPATH_USE_ORIGIN OFF)

if(SKBUILD)
    install(TARGETS simstream_c RUNTIME_DEPENDENCY_SET python_libraries
            LIBRARY DESTINATION simstream/lib COMPONENT python)
    get_filename_component(mujoco_folder ${mujoco_library} DIRECTORY)
    install(RUNTIME_DEPENDENCY_SET python_libraries COMPONENT python DESTINATION simstream/lib
            DIRECTORIES ${mujoco_folder}
            PRE_EXCLUDE_REGEXES "^lib(c|m|dl|rt|pthread|gcc_s|stdc\\+\\+)\\.so" "^ld-linux"
            POST_EXCLUDE_REGEXES "^/lib(64)?/.*/lib(c|m|dl|rt|pthread)\\.so")
    install(DIRECTORY ${SIMSTREAM_ASSET_DIR}/ DESTINATION simstream/share/simstream/gym
            COMPONENT python FILES_MATCHING PATTERN *.xml)
    install(FILES ${gym_licence} DESTINATION simstream/share/simstream/gym COMPONENT python)
    install(FILES scenes/libero/libero.tables DESTINATION simstream/share/simstream/libero
            COMPONENT python)
    install(DIRECTORY scenes/libero/tabletop/ DESTINATION simstream/share/simstream/tabletop
            COMPONENT python)
    install(FILES ${mujoco_licences} DESTINATION simstream/share/simstream/licences/mujoco
            COMPONENT python)
    install(FILES LICENSE DESTINATION simstream/share/simstream/licences COMPONENT python)
    foreach(package libnng1 libcjson1 libmbedcrypto7) # Debian's; an own copy has its own place
        if(EXISTS /usr/share/doc/${package}/copyright)
            install(FILES /usr/share/doc/${package}/copyright RENAME ${package} COMPONENT python
                    DESTINATION simstream/share/simstream/licences)
        endif()
    endforeach()
endif()

if(COMMAND simstream_test AND NOT SIMSTREAM_SANITIZED)
    set(python_environment PYTHONPATH=${CMAKE_SOURCE_DIR}/python/src
        SIMSTREAM_LIBRARY=$<TARGET_FILE:simstream_c>
        SIMSTREAM_PROGRAM=$<$<TARGET_EXISTS:simstream_program>:$<TARGET_FILE:simstream_program>>)
    set(python ${SIMSTREAM_VENV}/bin/python)
    if(NOT EXISTS ${python})
        set(python ${CMAKE_SOURCE_DIR}/scripts/no_venv.sh)
    endif()
    simstream_test(python.package python 900 ${CMAKE_COMMAND} -E env ${python_environment}
                   ${python} ${CMAKE_SOURCE_DIR}/tests/python/run_tests.py)
endif()
