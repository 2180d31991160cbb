# The libraries from outside, as one interface target `simstream_deps`, and MuJoCo's and Gymnasium's
# folders. Versions come from deps.txt; scripts/setup.sh has put the files there.

# simstream_dep_version(OUT REGEX): version of the first `sdk` row of deps.txt whose name matches.
function(simstream_dep_version out name)
    file(STRINGS ${CMAKE_SOURCE_DIR}/deps.txt rows REGEX "^sdk +${name} ")
    list(GET rows 0 row)
    string(REGEX REPLACE "^sdk +[a-z_]+ +([0-9.]+) .*" "\\1" version "${row}")
    set(${out} ${version} PARENT_SCOPE)
endfunction()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/deps.txt)

simstream_dep_version(mujoco_default mujoco)
simstream_dep_version(gymnasium_version gymnasium)
set(DEPS_DIR ${CMAKE_SOURCE_DIR}/build/deps)
set(MUJOCO_DIR ${DEPS_DIR}/mujoco-${mujoco_default}/mujoco CACHE PATH
    "folder with include/mujoco and libmujoco.so")
set(SIMSTREAM_ASSET_DIR ${DEPS_DIR}/gymnasium-${gymnasium_version}/gymnasium/envs/mujoco/assets)
if(NOT EXISTS ${SIMSTREAM_ASSET_DIR})
    message(FATAL_ERROR "no ${SIMSTREAM_ASSET_DIR}: run `make setup` first")
endif()

# MuJoCo: the newest library in the folder, or in its lib/ as the release archives have it.
file(GLOB mujoco_library ${MUJOCO_DIR}/libmujoco.so* ${MUJOCO_DIR}/lib/libmujoco.so*)
if(NOT mujoco_library OR NOT EXISTS ${MUJOCO_DIR}/include/mujoco/mujoco.h)
    message(FATAL_ERROR "MUJOCO_DIR=${MUJOCO_DIR} lacks include/mujoco/mujoco.h or libmujoco.so*")
endif()
list(GET mujoco_library -1 mujoco_library)
file(REAL_PATH ${mujoco_library} mujoco_library)
add_library(mujoco SHARED IMPORTED)
set_target_properties(mujoco PROPERTIES IMPORTED_LOCATION ${mujoco_library}
                                        INTERFACE_INCLUDE_DIRECTORIES ${MUJOCO_DIR}/include)
message(STATUS "MuJoCo: ${mujoco_library}")

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(CJSON REQUIRED IMPORTED_TARGET libcjson)
pkg_check_modules(OPENBLAS REQUIRED IMPORTED_TARGET openblas)
pkg_check_modules(HDF5 REQUIRED IMPORTED_TARGET hdf5)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(EXPAT REQUIRED IMPORTED_TARGET expat)
pkg_check_modules(PNG REQUIRED IMPORTED_TARGET libpng)
pkg_check_modules(JPEG REQUIRED IMPORTED_TARGET libturbojpeg)
pkg_check_modules(MSGPACK REQUIRED IMPORTED_TARGET msgpack)
pkg_check_modules(ZMQ IMPORTED_TARGET libzmq) # without it GR00T's protocol is left out
pkg_check_modules(AV REQUIRED libavcodec libavformat libswscale) # headers; opened at run time
find_path(NNG_INCLUDE nng/nng.h REQUIRED)
find_library(NNG_LIBRARY nng REQUIRED)
find_path(MBEDTLS_INCLUDE mbedtls/md.h REQUIRED)
find_library(MBEDCRYPTO_LIBRARY mbedcrypto REQUIRED)
find_path(EMBREE_INCLUDE embree3/rtcore.h REQUIRED)
find_library(EMBREE_LIBRARY embree3 REQUIRED)

add_library(simstream_deps INTERFACE)
target_include_directories(simstream_deps SYSTEM INTERFACE ${NNG_INCLUDE} ${MBEDTLS_INCLUDE}
                           ${EMBREE_INCLUDE} ${AV_INCLUDE_DIRS})
target_link_libraries(simstream_deps INTERFACE
    mujoco PkgConfig::CJSON PkgConfig::OPENBLAS PkgConfig::HDF5 PkgConfig::EXPAT PkgConfig::ZLIB
    PkgConfig::PNG PkgConfig::JPEG PkgConfig::MSGPACK ${EMBREE_LIBRARY} ${NNG_LIBRARY} ${MBEDCRYPTO_LIBRARY}
    Threads::Threads ${CMAKE_DL_LIBS} m)

if(ZMQ_FOUND)
    target_link_libraries(simstream_deps INTERFACE PkgConfig::ZMQ)
    target_compile_definitions(simstream_deps INTERFACE SIMSTREAM_ZMQ)
endif()

# The commit, for `simstream --version`; configure again when it changes.
execute_process(COMMAND git describe --always --dirty WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
                OUTPUT_VARIABLE SIMSTREAM_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT SIMSTREAM_COMMIT)
    set(SIMSTREAM_COMMIT unknown)
endif()
if(EXISTS ${CMAKE_SOURCE_DIR}/.git/logs/HEAD)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
                 ${CMAKE_SOURCE_DIR}/.git/logs/HEAD)
endif()
