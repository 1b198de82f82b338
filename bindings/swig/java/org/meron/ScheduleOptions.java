// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

import org.meron.abi.Abi;
import org.meron.abi.meron_schedule_options;

/** Options of a schedule: limits in elements, and the memory of views. */
public final class ScheduleOptions {
    private long prefetchElements;
    private long maxLiveElements;
    private long maxReuseElements;
    private long persistElements;
    private long persistTotalElements;
    private Tier tier;
    private long stream;

    /** The library's defaults. */
    public ScheduleOptions() {
        final meron_schedule_options initial = Abi.meron_schedule_options_init();
        prefetchElements = initial.getPrefetch_elements();
        maxLiveElements = initial.getMax_live_elements();
        maxReuseElements = initial.getMax_reuse_elements();
        persistElements = initial.getPersist_elements();
        persistTotalElements = initial.getPersist_total_elements();
        tier = Tier.values()[initial.getTier()];
        initial.delete();
    }

    /** Gathers are prefetched for the next uses within this many elements; 0: no prefetch. */
    public ScheduleOptions prefetchElements(long value) {
        prefetchElements = ContextOptions.notNegative("prefetchElements", value);
        return this;
    }

    /** Limit of prefetched and kept units, never of the unit in use; default 1e9. */
    public ScheduleOptions maxLiveElements(long value) {
        maxLiveElements = ContextOptions.notNegative("maxLiveElements", value);
        return this;
    }

    /**
     * A unit stays full if its next recorded use is within this many elements of other units'
     * uses; default 1e9.
     */
    public ScheduleOptions maxReuseElements(long value) {
        maxReuseElements = ContextOptions.notNegative("maxReuseElements", value);
        return this;
    }

    /**
     * A unit of at most this many elements stays full from its first use until the schedule
     * drops its units.
     */
    public ScheduleOptions persistElements(long value) {
        persistElements = ContextOptions.notNegative("persistElements", value);
        return this;
    }

    /** Limit for all such units together, in their order at the creation; by default no limit. */
    public ScheduleOptions persistTotalElements(long value) {
        persistTotalElements = ContextOptions.notNegative("persistTotalElements", value);
        return this;
    }

    /** Memory of views. */
    public ScheduleOptions tier(Tier value) {
        tier = Arguments.required(value, "value");
        return this;
    }

    /**
     * For views on the device: this stream waits for an entered unit, and the unit's memory is
     * released after the stream's queued work. It must live as long as the schedule.
     */
    public ScheduleOptions stream(long value) {
        stream = value;
        return this;
    }

    Tier tier() {
        return tier;
    }

    long scheduleCreate(long[] units) {
        return Abi.meron_schedule_create(
                units,
                prefetchElements,
                maxLiveElements,
                maxReuseElements,
                persistElements,
                persistTotalElements,
                tier.ordinal(),
                stream);
    }
}
