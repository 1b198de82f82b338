// SPDX-License-Identifier: Apache-2.0
package org.meron;

import org.meron.abi.Abi;
import org.meron.abi.meron_schedule_options;

/** How far a schedule looks ahead and what it keeps, in elements; and where its views are. */
public final class ScheduleOptions {
    private long prefetch;
    private long maxLive;
    private long maxReuse;
    private long persist;
    private long persistTotal = -1; // as the library's unsigned number: no limit
    GatherPlace place = GatherPlace.HOST;
    private long stream;

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

    /** Where views are; by default in the host's memory. */
    public ScheduleOptions place(GatherPlace value) {
        place = value;
        return this;
    }

    /**
     * For views on the device: the stream that waits for a unit that is entered, and behind whose work so
     * far its memory goes back. It lives as long as the schedule.
     *
     * @param value the address of a stream of the context's device (a cudaStream_t); 0: its default one
     */
    public ScheduleOptions stream(long value) {
        stream = value;
        return this;
    }

    long create(long[] units) {
        return Abi.meron_schedule_create(
                units, prefetch, maxLive, maxReuse, persist, persistTotal, place.code(), stream);
    }

    private static long checked(String name, long value) {
        if (value >= 0) return value;
        throw new MeronException(Status.ARGUMENT, name + " is " + value + ": give 0 or more");
    }
}
