// SPDX-License-Identifier: Apache-2.0
// meron/meron.hpp: the C interface as C++17: objects that release themselves, errors as exceptions,
// typed views. Header-only; link with libmeron. docs/start/cpp.md is a start, docs/bindings/cpp.md
// a list of all classes and functions, and meron/meron.h explains the words.
//
//     #include <cstdio>
//     #include <meron/meron.hpp>
//
//     int main() {
//       meron::Context context;  // `meron run -n 2 program` has two ranks
//       const meron::Param weight = context.param("weight", {1000});
//       const meron::Unit unit = context.unit("layer", weight);
//       const float sample = 2 * static_cast<float>(context.rank()) + 1;
//
//       meron::Update update = meron::update(unit);  // every rank writes its shard
//       for (float& x : update.view(weight).as<float>()) x = 0.5F;
//       update.publish();
//
//       meron::Sgd rule;
//       rule.learning_rate = 0.1;
//       const meron::Optimizer optimizer = meron::sgd(unit, rule);
//       float mean = 0;
//       for (int step = 0; step < 100; ++step) {
//         {
//           const meron::Gather full = meron::gather(unit);  // the full tensor, without a copy
//           const auto w = full.view(weight).as<float>();
//           const auto g = meron::gradient(weight).as<float>();
//           for (size_t i = 0; i < w.size(); ++i) g[i] += 2 * (w[i] - sample);
//           mean = w[0];
//         }  // releases the gather: a step needs that
//         meron::reduce(unit);
//         optimizer.step();
//       }
//       if (context.rank() == 0) std::printf("mean %.4f\n", static_cast<double>(mean));
//     }
//
// Common rules, besides those of meron/meron.h:
//
//   - Every object owns one handle, moves and does not copy. Its destructor releases the handle:
//     it never blocks, and may run on any thread, in any order, also after its context was closed.
//     A moved-from object holds the null handle, and so does a default-constructed one, except that
//     `Context context;` opens a context. Calls on the null handle throw MERON_E_HANDLE.
//   - A call that fails throws only meron::Error; running out of memory is MERON_E_NO_MEMORY, not
//     std::bad_alloc. Destructors never throw. If the program is compiled without exceptions
//     (-fno-exceptions), the call prints the error and aborts the process instead.
//   - A View or Span points into memory of the library and owns nothing. The function that returns
//     it specifies how long it is valid. A temporary does not have such functions: give the object
//     a name. Memory that is used after a call must have a name too.
//   - Const member functions may be called from several threads at once, and do not end the object:
//     what trains the model is const too. Moving from an object, or destroying it, while another
//     thread uses it is a race, as for any C++ object.
//   - Constructors and functions named `..._begin` return without waiting for the end (see "Rules"
//   of
//     meron/meron.h). The name without `_begin` begins and waits.
//   - Functions that the library calls (log, should_stop, Transport, DeviceAllocator) may only look
//     and release: see the rule of callbacks in meron/meron.h.
//   - All shared objects of a program that pass these objects to each other use one minor version
//   of
//     the headers: its number is in the (inline) namespace, so others do not link.
//
// Every object has handle() for calls of the C interface, and detach() to return the handle and
// drop it. `meron::Unit(meron::adopt, handle)` takes ownership of a handle. Two objects are == if
// they hold the same handle, and std::hash agrees.
#ifndef MERON_MERON_HPP
#define MERON_MERON_HPP

#include "meron/cpp/base.hpp"
#include "meron/cpp/checkpoint.hpp"
#include "meron/cpp/config.hpp"
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
#include "meron/cpp/shape.hpp"
#include "meron/cpp/span.hpp"
#include "meron/cpp/text.hpp"
#include "meron/cpp/transport.hpp"
#include "meron/meron.h"

#endif  // MERON_MERON_HPP
