# SPDX-License-Identifier: Apache-2.0

"""
    Meron.version()

The library's version.
"""
version() = VersionNumber(unsafe_string(LibMeron.meron_version_string()))

"""
    Meron.system_info()

Describes this host and this build, as JSON text: CPU features and kernels in use, transports with
the reason if one is unavailable, memory, huge pages, /dev/shm, memlock limit, io_uring.
"""
system_info() = take_string(LibMeron.meron_system_info)
