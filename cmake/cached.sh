#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cached.sh SOURCE_FOLDER CCACHE COMPILER...: compiles through ccache such that another clone finds
# the result. Paths in the source folder are hashed relative to the build folder, which is not hashed
# itself. No source depends on the time, or on macros that a precompiled header sees.
export CCACHE_BASEDIR="$1" CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
shift
for last; do :; done
case $last in
  # ccache takes an earlier precompiled header for an input of the next one.
  *cmake_pch.hxx.cxx) rm -f "${last%.cxx}.gch" ;;
esac
exec "$@"
