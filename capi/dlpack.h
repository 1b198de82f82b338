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

}  // namespace meron::capi
