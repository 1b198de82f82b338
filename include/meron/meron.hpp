// SPDX-License-Identifier: Apache-2.0
// meron/meron.hpp: the C interface as C++17: objects that release themselves, errors as exceptions,
// typed views. Header-only; link with libmeron.
//
//     #include <meron/meron.hpp>
//
//     meron::Context context;                          // `meron run -n 2 program` has two ranks
//     meron::Param weight = context.param("weight", {1024, 1024});
//     meron::Unit unit = context.unit("layer", weight);
//     meron::Update update = meron::update(unit);      // every rank writes its shard
//     for (float& x : update.view(weight).as<float>()) x = 1;
//     update.publish();
//     meron::Gather full = meron::gather(unit);        // the full tensor, without a copy
//     for (float x : full.view(weight).as<const float>()) ...
//
// Common rules, besides those of meron/meron.h:
//
//   - Every object owns one handle, moves and does not copy. Its destructor releases the handle:
//     it never blocks, and may run on any thread, in any order, also after its context was closed.
//     A moved-from or default-constructed object holds the null handle; calls on it throw
//     MERON_E_HANDLE.
//   - A call that fails throws only meron::Error; running out of memory is MERON_E_NO_MEMORY, not
//     std::bad_alloc. Destructors never throw.
//   - A View or Span points into memory of the library and owns nothing. The function that returns
//     it specifies how long it is valid.
//   - Const member functions may be called from several threads at once. Moving from an object, or
//     destroying it, while another thread uses it is a race, as for any C++ object.
//   - Constructors and functions named `..._begin` return at once. The name without `_begin` begins
//     and waits.
//
// Every object has handle() for calls of the C interface, detach() to return the handle and drop
// it, and a constructor that takes ownership of a handle.
#ifndef MERON_MERON_HPP
#define MERON_MERON_HPP

#include "meron/cpp/base.hpp"
#include "meron/cpp/checkpoint.hpp"
#include "meron/cpp/context.hpp"
#include "meron/cpp/device.hpp"
#include "meron/cpp/dtype.hpp"
#include "meron/cpp/error.hpp"
#include "meron/cpp/future.hpp"
#include "meron/cpp/gather.hpp"
#include "meron/cpp/group.hpp"
#include "meron/cpp/io.hpp"
#include "meron/cpp/optimizer.hpp"
#include "meron/cpp/param.hpp"
#include "meron/cpp/plan.hpp"
#include "meron/cpp/reduce.hpp"
#include "meron/cpp/rules.hpp"
#include "meron/cpp/schedule.hpp"
#include "meron/cpp/transport.hpp"
#include "meron/meron.h"

#endif  // MERON_MERON_HPP
