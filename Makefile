# simstream - the everyday commands; CMakePresets.json and scripts/ do the work.
#
#   make                        set up and build build/simstream
#   make demo                   ... and train and evaluate a policy with it
#   make demo-vla               ... a policy that sees and reads: demonstrations, then reinforcement
#   make test                   ... and run every check; about 20 minutes on two cores
#   make libero-data            fetch LIBERO's tasks and assets (750 MB; prints their terms first)
#   make MUJOCO_VERSION=4.0.0   the same with another MuJoCo of deps.txt
#   make MUJOCO_DIR=/opt/mujoco the same with an own copy of MuJoCo
#
# Everything made lies under build/. As root, missing Debian packages are installed.
MUJOCO_VERSION ?=
MUJOCO_DIR ?=
export MUJOCO_VERSION MUJOCO_DIR

.PHONY: build help setup test demo demo-vla lint format libero-data bench clean
build:  ; @scripts/build.sh release
help:   ; @sed -n 's/^# \{0,1\}//p' Makefile
setup:  ; @scripts/setup.sh test
test:   ; @scripts/test.sh
demo:   ; @scripts/demo.sh
demo-vla: ; @scripts/demo_vla.sh
lint:   ; @scripts/lint.sh
format: ; @scripts/lint.sh fix
libero-data: ; @scripts/libero_data.sh
bench:  ; @dir=$$(scripts/build.sh release) && $$dir/simstream bench
clean:  ; rm -rf build
