# SPDX-License-Identifier: Apache-2.0
# cmake -DFILES=FILE[|FILE...] -P find_traps.cmake: fails where a file of PTX has a trap.
string(REPLACE "|" ";" FILES "${FILES}")
if(NOT FILES)
  message(FATAL_ERROR "there is no PTX to look at")
endif()
foreach(file IN LISTS FILES)
  file(STRINGS "${file}" traps REGEX "^[ \t]*(@[^ \t]+[ \t]+)?trap;")
  list(LENGTH traps count)
  if(count)
    message(SEND_ERROR "${file} has ${count} traps: nvcc found that something there cannot be")
  endif()
endforeach()
