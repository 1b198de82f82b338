// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "engine/engine.h"
#include "meron/gather.h"

namespace meron::capi {

// A gathered tensor for other libraries, by DLPack (https://dmlc.github.io/dlpack, version 1.0). It
// has a lease of its own. The caller holds the context's lock.
Result<DLManagedTensorVersioned*> export_dlpack(const std::shared_ptr<Context>& context,
                                                const std::shared_ptr<GatherOperation>& gather,
                                                const std::shared_ptr<Param>& param);

// This rank's shard of a reduced gradient, writable, of the host. It counts as a loan of the
// gradient until its deleter is called. The caller holds the turn and the lock.
Result<DLManagedTensorVersioned*> export_reduced(const std::shared_ptr<Context>& context,
                                                 const std::shared_ptr<Param>& param,
                                                 const Context::ReducedGradient& reduced);

}  // namespace meron::capi
