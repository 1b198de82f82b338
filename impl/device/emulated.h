// SPDX-License-Identifier: Apache-2.0
// A device that is none: its memory is the host's, its streams are threads. It shows without a GPU
// whether device code keeps to the rules: its memory begins with garbage, streams run at the same
// time, copies of pinned memory go on after the call, and pointers of the host are told from its
// own.
#pragma once

#include "meron/backend.h"

namespace meron {

// What it is like is read from the variable MERON_EMULATED_DEVICE when a device is opened, as
// comma-separated KEY=NUMBER:
//   count    of devices (1)
//   memory   bytes that each has (1 GiB)
//   delay    microseconds that every copy and fill takes longer (0)
//   break    the copy or fill, counted from 1 over all devices of the process since the variable
//            changed, with which the device fails for good (0: none)
const meron_device_table& emulated_device_table();

}  // namespace meron
