# cmake --install: bin/simstream, lib/libsimstream.so with MuJoCo beside it, the public headers under
# include/simstream with their folders, share/simstream/gym/*.xml, and what find_package(simstream)
# and pkg-config need. The result can be moved: all paths inside it are relative.
include(CMakePackageConfigHelpers)
set(package_dir lib/cmake/simstream)

install(TARGETS simstream EXPORT simstream LIBRARY DESTINATION lib)
if(TARGET simstream_program)
    install(TARGETS simstream_program RUNTIME DESTINATION bin)
endif()

# The public headers: the in-process pool, the client of an env server, and what they build on.
file(GLOB headers RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS
     common/base/*.h common/wire/*.h envserver/pool.h rollout/envclient.h)
foreach(header ${headers})
    get_filename_component(folder ${header} DIRECTORY)
    install(FILES ${header} DESTINATION include/simstream/${folder})
endforeach()

# MuJoCo, the task models, and their licences.
file(GLOB mujoco_licences ${MUJOCO_DIR}/../*.dist-info/licenses/* ${MUJOCO_DIR}/LICENSE*
     ${MUJOCO_DIR}/THIRD_PARTY*)
file(GLOB gym_licence ${DEPS_DIR}/gymnasium-${gymnasium_version}/*.dist-info/licenses/LICENSE)
install(FILES ${mujoco_library} DESTINATION lib)
install(FILES ${mujoco_licences} DESTINATION share/simstream/licences/mujoco)
install(DIRECTORY ${SIMSTREAM_ASSET_DIR}/ DESTINATION share/simstream/gym FILES_MATCHING PATTERN *.xml)
install(FILES scenes/libero/libero.tables DESTINATION share/simstream/libero)
install(DIRECTORY scenes/libero/tabletop/ DESTINATION share/simstream/tabletop)
install(FILES ${gym_licence} DESTINATION share/simstream/gym)
install(FILES LICENSE DESTINATION share/simstream/licences)

install(EXPORT simstream NAMESPACE simstream:: FILE simstreamConfig.cmake DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/simstreamConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
configure_file(cmake/simstream.pc.in generated/simstream.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/generated/simstreamConfigVersion.cmake DESTINATION ${package_dir})
install(FILES ${CMAKE_BINARY_DIR}/generated/simstream.pc DESTINATION lib/pkgconfig)
