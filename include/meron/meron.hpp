// SPDX-License-Identifier: Apache-2.0
// meron/meron.hpp: the C interface as C++17: objects that release themselves, errors as exceptions,
// typed views. Header-only; link with libmeron.
//
//     #include <meron/meron.hpp>
//
//     meron::Context context;                          // `meron run -n 2 program` has two ranks
//     meron::Param weight = context.param("weight", {1024, 1024});
//     meron::Unit unit = context.unit("layer", weight);
//     meron::Update update = meron::update(unit);      // every rank writes its part
//     for (float& x : update.view(weight).as<float>()) x = 1;
//     update.publish();
//     meron::Gather full = meron::gather(unit);        // the whole tensor, without a copy
//     for (float x : full.view(weight).as<const float>()) ...
//
// Rules that hold everywhere, besides those of meron/meron.h:
//
//   - Every object owns one handle, moves and does not copy, and gives the handle back when it
//   dies:
//     never blocking, on any thread, in any order, also after its context was closed. One that was
//     moved from or default-constructed holds the null handle; calls on it throw MERON_E_HANDLE.
//   - A call that fails throws meron::Error and nothing else; running out of memory is
//     MERON_E_NO_MEMORY, not std::bad_alloc. Destructors never throw.
//   - A View or Span points into memory of the library and owns nothing. The function that hands it
//     out says how long it lives.
//   - Const member functions may be called from several threads at once. Moving from an object, or
//     destroying it, while another thread uses it is a race, as for any C++ object.
//   - Constructors and functions named `..._begin` return at once; the name without `_begin` is
//     begin and wait in one.
//
// Every object has handle() for calls of the C interface, detach() to take the handle out, and a
// constructor from a handle that takes it over.
#ifndef MERON_MERON_HPP
#define MERON_MERON_HPP

#include "meron/cpp/base.hpp"
#include "meron/cpp/checkpoint.hpp"
#include "meron/cpp/context.hpp"
#include "meron/cpp/device.hpp"
#include "meron/cpp/dtype.hpp"
#include "meron/cpp/error.hpp"
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
