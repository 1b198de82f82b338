// SPDX-License-Identifier: Apache-2.0
// meron/cpp/config.hpp: what all headers of this layer share.
#ifndef MERON_CPP_CONFIG_HPP
#define MERON_CPP_CONFIG_HPP

#if (defined(_MSVC_LANG) ? _MSVC_LANG : __cplusplus) < 201703L
#error "The C++ interface of Meron needs C++17: compile with -std=c++17 or newer."
#endif

#include "meron/base.h"

// 1 with exceptions. Without them (-fno-exceptions), a call that fails prints its error to stderr
// and aborts the process.
#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
#define MERON_CPP_EXCEPTIONS 1
#define MERON_CPP_SUFFIX
#else
#define MERON_CPP_EXCEPTIONS 0
#define MERON_CPP_SUFFIX _no_exceptions
#endif

// The inline namespace of all names, such as v0_2. Before 1.0 a minor version may change a class,
// so parts of a program that were compiled with different minor versions have different classes,
// and a call from one to the other does not link. So do parts with and without exceptions.
#define MERON_CPP_JOIN_(major, minor, suffix) v##major##_##minor##suffix
#define MERON_CPP_JOIN(major, minor, suffix) MERON_CPP_JOIN_(major, minor, suffix)
#define MERON_CPP_NAMESPACE \
  MERON_CPP_JOIN(MERON_VERSION_MAJOR, MERON_VERSION_MINOR, MERON_CPP_SUFFIX)

// Of what all shared objects of a process have in common, also under -fvisibility=hidden.
#if defined(__GNUC__)
#define MERON_CPP_SHARED __attribute__((visibility("default")))
#else
#define MERON_CPP_SHARED
#endif

namespace meron {
inline namespace MERON_CPP_NAMESPACE {

// The first argument of constructors that take ownership of a handle, or a text, of the C
// interface: `meron::Future future(meron::adopt, handle)`.
struct Adopt {
  explicit Adopt() = default;
};
inline constexpr Adopt adopt{};

}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

#endif  // MERON_CPP_CONFIG_HPP
