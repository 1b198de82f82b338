# SPDX-License-Identifier: Apache-2.0
# Run by CPack between installing into its staging folder and packing: what Debian's policy asks for
# and an installation by hand does without.

set(names_runtime "${CPACK_DEBIAN_RUNTIME_PACKAGE_NAME}")
set(names_development "${CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME}")
set(names_command "${CPACK_DEBIAN_COMMAND_PACKAGE_NAME}")

function(compress from to)
  execute_process(COMMAND gzip -9nc "${from}" OUTPUT_FILE "${to}" COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# The time is SOURCE_DATE_EPOCH's where that is set.
string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(version "${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}")
set(changelog "${CPACK_TEMPORARY_DIRECTORY}/changelog.Debian")
file(WRITE "${changelog}" "\
meron (${version}) unstable; urgency=medium

  * Packed by CPack from the source tree; see changelog.gz for what changed.

 -- ${CPACK_PACKAGE_CONTACT}  ${now}
")

# In a copyright file, lines of a licence begin with a blank, and empty ones have a dot.
file(READ "${CPACK_MERON_THIRD_PARTY}" third_party)
string(REPLACE "\n" "\n " third_party " ${third_party}")
string(REPLACE "\n \n" "\n .\n" third_party "${third_party}")
string(REPLACE "\n \n" "\n .\n" third_party "${third_party}")
string(STRIP "${third_party}" third_party)

foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  set(root "${CPACK_TEMPORARY_DIRECTORY}/${component}/usr")
  set(documents "${root}/share/doc/${names_${component}}")
  # Apache-2.0 is a licence that every Debian system has; a package names it.
  file(REMOVE_RECURSE "${root}/share/doc")
  file(WRITE "${documents}/copyright" "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Meron

Files: *
Copyright: 2026 The authors of Meron
License: Apache-2.0 and third-party

License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.

License: third-party
 ${third_party}
")
  compress("${CPACK_MERON_CHANGELOG}" "${documents}/changelog.gz")
  compress("${changelog}" "${documents}/changelog.Debian.gz")
endforeach()

set(command "${CPACK_TEMPORARY_DIRECTORY}/command/usr")
# The loader finds the library in its default folder.
file(RPATH_REMOVE FILE "${command}/bin/meron")
file(MAKE_DIRECTORY "${command}/share/man/man1")
compress("${CPACK_MERON_MANUAL}" "${command}/share/man/man1/meron.1.gz")
