# SPDX-License-Identifier: Apache-2.0
# What CPack makes Debian packages from (`tools/package deb` runs it): one package per component of
# MeronInstall.cmake. It packs what is built, and builds nothing.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME meron)
if(NOT CPACK_PACKAGE_CONTACT)
  set(CPACK_PACKAGE_CONTACT "Whoever built it <root@localhost>")
endif()
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "parameters, gradients and optimizer states cut over ranks")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime development command)
set(CPACK_COMPONENT_DEVELOPMENT_DEPENDS runtime)
set(CPACK_COMPONENT_COMMAND_DEPENDS runtime)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/capi)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)

# A shared library's package is named after its soname, so that two may be installed at a time.
set(soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libmeron${soversion})
# The dependency of packages that link with the library, and the trigger that renews the loader's cache.
file(WRITE ${PROJECT_BINARY_DIR}/debian/shlibs
     "libmeron ${soversion} libmeron${soversion} (>= ${PROJECT_VERSION})\n")
file(WRITE ${PROJECT_BINARY_DIR}/debian/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/debian/shlibs
                                               ${PROJECT_BINARY_DIR}/debian/triggers)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libmeron-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME meron)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION science)
set(about "Meron trains models whose parameters, gradients and optimizer states are cut\n\
over ranks, and shows any rank the whole tensor on demand.")
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "${about}\nThis package has the library.")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
    "${about}\nThis package has the headers for C and C++, and what CMake and pkg-config read.")
set(CPACK_COMPONENT_COMMAND_DESCRIPTION
    "${about}\nThis package has the command that starts ranks, and explains plans and hosts.")

set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/debian/finish.cmake)
set(CPACK_MERON_MANUAL ${PROJECT_SOURCE_DIR}/cmake/debian/meron.1)
set(CPACK_MERON_CHANGELOG ${PROJECT_SOURCE_DIR}/CHANGELOG.md)
set(CPACK_MERON_THIRD_PARTY ${PROJECT_SOURCE_DIR}/LICENSE-third-party.txt)
include(CPack)
