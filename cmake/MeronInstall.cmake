# SPDX-License-Identifier: Apache-2.0
# install(): the headers, the library, the command, and what pkg-config and find_package(Meron) read.
#
# `cmake --install` installs all of seven components: `runtime`, the library that programs load;
# `development`, headers and files for compilers; `command`, the command `meron`; and the modules that
# the library loads: `mpi` for the transport over MPI, `cuda` for GPUs, `nccl` for collectives between
# them, `emulated` for a device in host memory. The command and the modules are OPTIONAL: each is
# installed if it was built, so that `cmake --build --target meron` is enough for an installation.

include(CMakePackageConfigHelpers)

install(DIRECTORY include/meron DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

if(TARGET meron)
  install(TARGETS meron EXPORT MeronTargets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
                  NAMELINK_COMPONENT development
          INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(FILES LICENSE LICENSE-third-party.txt DESTINATION ${CMAKE_INSTALL_DOCDIR}
          COMPONENT runtime)

  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Meron)
  install(EXPORT MeronTargets NAMESPACE Meron:: DESTINATION ${package_dir} COMPONENT development)
  configure_package_config_file(cmake/MeronConfig.cmake.in MeronConfig.cmake
                                INSTALL_DESTINATION ${package_dir})
  # Before 1.0 a minor version may change the ABI.
  write_basic_package_version_file(MeronConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/MeronConfig.cmake
                ${PROJECT_BINARY_DIR}/MeronConfigVersion.cmake
          DESTINATION ${package_dir} COMPONENT development)

  # pkg-config wants paths relative to its own file, so that an installed tree can be moved.
  file(RELATIVE_PATH meron_pc_to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(REGEX REPLACE "/$" "" meron_pc_to_prefix "${meron_pc_to_prefix}")
  configure_file(cmake/meron.pc.in meron.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/meron.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
          COMPONENT development)
endif()

if(TARGET meron_cli)
  install(TARGETS meron_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command OPTIONAL)
endif()

foreach(module mpi cuda nccl emulated)
  if(TARGET meron AND TARGET meron_${module})
    install(TARGETS meron_${module} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${module}
                                            OPTIONAL)
  endif()
endforeach()

if(TARGET meron AND TARGET meron_cli AND PROJECT_IS_TOP_LEVEL)
  include(MeronDebian)
endif()
