// SPDX-License-Identifier: Apache-2.0
package org.meron;

import org.meron.abi.Abi;
import org.meron.abi.meron_schedule_options;

/** How far a schedule looks ahead, and what it keeps. All in elements. */
public final class ScheduleOptions {
    private long prefetch;
    private long maxLive;
    private long maxReuse;
    private long persist;
    private long persistTotal = -1; // as the library's unsigned number: no limit

    /** The library's defaults. */
    public ScheduleOptions() {
        final meron_schedule_options initial = Abi.meron_schedule_options_init();
        prefetch = initial.getPrefetch_elements();
        maxLive = initial.getMax_live_elements();
        maxReuse = initial.getMax_reuse_elements();
        persist = initial.getPersist_elements();
        initial.delete();
    }

    /** Gathers are begun ahead for the uses that come within so many elements of uses; 0: none. */
    public ScheduleOptions prefetchElements(long value) {
        prefetch = checked("prefetchElements", value);
        return this;
    }

    /** Limits what is begun ahead or kept, never what is needed now. */
    public ScheduleOptions maxLiveElements(long value) {
        maxLive = checked("maxLiveElements", value);
        return this;
    }

    /** A unit whose next recorded use comes within so many elements of other uses is kept full. */
    public ScheduleOptions maxReuseElements(long value) {
        maxReuse = checked("maxReuseElements", value);
        return this;
    }

    /** A unit of at most so many elements stays full from its first use until Schedule.drop. */
    public ScheduleOptions persistElements(long value) {
        persist = checked("persistElements", value);
        return this;
    }

    /** Of all such units together, in the order given. By default there is no limit. */
    public ScheduleOptions persistTotalElements(long value) {
        persistTotal = checked("persistTotalElements", value);
        return this;
    }

    long create(long[] units) {
        return Abi.meron_schedule_create(
                units, prefetch, maxLive, maxReuse, persist, persistTotal);
    }

    private static long checked(String name, long value) {
        if (value >= 0) return value;
        throw new MeronException(Status.ARGUMENT, name + " is " + value + ": give 0 or more");
    }
}
