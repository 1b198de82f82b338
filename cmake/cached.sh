#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cached.sh SOURCE_FOLDER CCACHE COMPILER...: compiles through ccache such that another clone finds
# the result. Paths in the source folder are hashed relative to the build folder, which is not hashed
# itself. No source depends on the time, or on macros that a precompiled header sees.
export CCACHE_BASEDIR="$1" CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
export CCACHE_PCH_EXTSUM=1
shift
for last; do :; done
case $last in
  *cmake_pch.hxx.cxx) ;;
  *) exec "$@" ;;
esac

# GCC writes a precompiled header with other bytes each time. So ccache gets a checksum of the headers
# that it was made of, which the dependency file lists. An earlier precompiled header is removed first,
# because ccache would take it for an input.
header=${last%.cxx}.gch
rm -f "$header" "$header.sum"
"$@" || exit
[ -e "$header" ] || exit 0
for word; do
  [ "$previous" != -MF ] || dependencies=$word
  previous=$word
done
sed -e '1s/^[^:]*://' -e 's/\\$//' "$dependencies" | xargs cat >"$header.text" &&
  sha256sum <"$header.text" >"$header.sum"
rm "$header.text"
