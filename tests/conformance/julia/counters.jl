# SPDX-License-Identifier: Apache-2.0
# Generated from capi/api.json by tools/generate/generate.py: do not edit.
# Counters that only grow. Other figures can shrink.
const GROWING = (
    :gather_mapped_bytes,
    :gather_copied_bytes,
    :reduce_bytes,
    :collective_bytes,
    :operations,
    :wait_ns,
    :inter_node_gather_bytes,
    :inter_node_reduce_bytes,
    :nvme_read_bytes,
    :nvme_written_bytes,
    :device_up_bytes,
    :device_down_bytes,
)
