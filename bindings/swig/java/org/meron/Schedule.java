// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.time.Duration;
import java.util.Arrays;
import org.meron.abi.Abi;
import org.meron.abi.meron_schedule_info;

/**
 * Units, and the order in which passes use them. Made by Context.schedule.
 *
 * <p>A pass records the order of its uses, and the next pass of its kind follows it: gathers are
 * prefetched, and units that are used again soon stay full. The calls alone determine the gathers, so
 * ranks that make the same calls stay in step. Let one thread at a time use it.
 *
 * <p>The index in the schedule's list identifies a unit.
 */
public final class Schedule extends ScheduleMethods {
    private final Context context;
    private final Unit[] units;
    private final boolean onHost; // whatever the device
    private final int[] uses;
    private final Loan[] loans;

    Schedule(Context context, ScheduleOptions options, Unit... units) {
        super(new Release(create(options, units), Abi::meron_schedule_release));
        this.context = context;
        this.units = units.clone();
        this.onHost = options.tier() == Tier.HOST;
        this.uses = new int[units.length];
        this.loans = new Loan[units.length];
        Arrays.setAll(loans, i -> new Loan());
    }

    @Override
    Context context() {
        return context;
    }

    private static long create(ScheduleOptions options, Unit... units) {
        try {
            return options.scheduleCreate(handles("units", units));
        } finally {
            java.lang.ref.Reference.reachabilityFence(units);
        }
    }

    /** The units that it is made of. */
    public Unit[] units() {
        return units.clone();
    }

    /** Starts a pass of kind 0. */
    public void startPass() {
        startPass(0);
    }

    /**
     * Starts a pass: the forward, and backward if there is one, of a micro-batch. Releases prefetched
     * units that were not used. Throws STATE if units are entered (see reset).
     *
     * @param kind 0 to 15; each has a recorded order of its own
     */
    public void startPass(int kind) {
        requireOpen();
        call(handle -> Abi.meron_schedule_start_pass(handle, kind));
    }

    /**
     * Enters a unit, and waits: it is full until it was left as often as it was entered. Collective over
     * the units' group where it is not full already. Throws STATE when the unit, or one that is begun
     * ahead, is being updated here; errors as Operation.await.
     */
    public void enter(int index) {
        enter(index, Abi.MERON_TIMEOUT_DEFAULT);
    }

    /**
     * Waits at most `timeout`. Returns false after the timeout: then the unit is not entered, and the
     * next enter of the unit continues the same use.
     */
    public boolean enter(int index, Duration timeout) {
        return enter(index, Operation.nanoseconds(timeout));
    }

    private boolean enter(int index, long timeout) {
        requireOpen();
        final boolean entered =
                call(handle -> Abi.meron_schedule_enter(handle, index, timeout)) == Abi.MERON_OK;
        synchronized (loans) {
            if (entered) ++uses[index];
        }
        return entered;
    }

    /** Leaves a unit once. Throws STATE when it is not entered. Never blocks. */
    public void leave(int index) {
        requireOpen();
        call(handle -> Abi.meron_schedule_leave(handle, index));
        synchronized (loans) {
            if (--uses[index] == 0) end(index);
        }
    }

    /**
     * The whole tensor of a param whose unit is entered, read-only; it throws once the unit was left. On a
     * device it is for work of the schedule's stream, and on a CUDA one has an address, and no buffers.
     * Throws STATE when the unit is not entered, ARGUMENT when the schedule does not have it.
     */
    public View view(Param param) {
        Arguments.required(param, "param");
        requireOpen();
        try {
            return call(handle -> {
                final org.meron.abi.meron_view view =
                        Abi.meron_schedule_view(handle, param.handle());
                synchronized (loans) {
                    return new View(context, this, loans[indexOf(param)], view,
                            context.reachable() || onHost);
                }
            });
        } finally {
            java.lang.ref.Reference.reachabilityFence(param);
        }
    }

    private int indexOf(Param param) {
        return Arrays.asList(units).indexOf(param.unit);
    }

    /** Forgets all uses and the pass, and gives everything back: after an exception in the trainer. */
    public void reset() {
        requireOpen();
        call(handle -> Abi.meron_schedule_reset(handle));
        endAll();
    }

    /** Units that are entered now. */
    public int entered() {
        return info(meron_schedule_info::getEntered).intValue();
    }

    /** Passes begun so far. */
    public long passes() {
        return info(meron_schedule_info::getPasses);
    }

    /** Units entered so far. */
    public long uses() {
        return info(meron_schedule_info::getUses);
    }

    /** Uses whose unit was full already. */
    public long ready() {
        return info(meron_schedule_info::getReady);
    }

    /** Uses met by a gather that was begun ahead. */
    public long ahead() {
        return info(meron_schedule_info::getAhead);
    }

    /** Uses that the recorded order did not have next. */
    public long deviations() {
        return info(meron_schedule_info::getDeviations);
    }

    /** Elements of the units that are full or on their way now. */
    public long liveElements() {
        return info(meron_schedule_info::getLive_elements);
    }

    /** The most there were. */
    public long peakLiveElements() {
        return info(meron_schedule_info::getPeak_live_elements);
    }

    /** Nanoseconds that uses have waited. */
    public long waitNanoseconds() {
        return info(meron_schedule_info::getWait_ns);
    }

    /** Gives everything back that it holds; views of it throw from now on. Never blocks. */
    @Override
    public void close() {
        endAll();
        super.close();
    }

    private void endAll() {
        synchronized (loans) {
            Arrays.fill(uses, 0);
            for (int i = 0; i < loans.length; ++i) end(i);
        }
    }

    private void end(int index) {
        loans[index].end("the unit was left: read its tensors before");
        loans[index] = new Loan();
    }

    private <T> T info(java.util.function.Function<meron_schedule_info, T> field) {
        requireOpen();
        final meron_schedule_info info = call(handle -> Abi.meron_schedule_get_info(handle));
        try {
            return field.apply(info);
        } finally {
            info.delete();
        }
    }
}
