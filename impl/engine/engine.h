// SPDX-License-Identifier: Apache-2.0
// The engine as the C ABI sees it. capi/ includes this folder only: what it needs of the layers
// below is listed here, and nothing else of them is its business.
#pragma once

#include "base/callback.h"             // IWYU pragma: export
#include "base/dtype.h"                // IWYU pragma: export
#include "base/handles.h"              // IWYU pragma: export
#include "base/result.h"               // IWYU pragma: export
#include "base/status_name.h"          // IWYU pragma: export
#include "call_log/flight_record.h"    // IWYU pragma: export
#include "engine/blame.h"              // IWYU pragma: export
#include "engine/checkpoint_folder.h"  // IWYU pragma: export
#include "engine/context.h"            // IWYU pragma: export
#include "engine/opened_checkpoint.h"  // IWYU pragma: export
#include "engine/system_info.h"        // IWYU pragma: export
#include "engine/unit_schedule.h"      // IWYU pragma: export
#include "gradient/gradient.h"         // IWYU pragma: export
#include "os/fork_guard.h"             // IWYU pragma: export
#include "plan/model_desc.h"           // IWYU pragma: export
#include "plan/plan_json.h"            // IWYU pragma: export
#include "plan/predict.h"              // IWYU pragma: export
#include "plan/table.h"                // IWYU pragma: export
#include "saving/given.h"              // IWYU pragma: export
#include "saving/write.h"              // IWYU pragma: export
