// SPDX-License-Identifier: Apache-2.0
import java.time.Duration;
import org.meron.Tier;
import org.meron.Param;
import org.meron.Schedule;
import org.meron.ScheduleOptions;
import org.meron.View;

/** The operations on schedules. */
final class Schedules {
    private Schedules() {}

    /** Executes the statement and returns true if this class has its operation. */
    static boolean execute(Session session, Table.Statement statement) {
        switch (statement.operation) {
            case "schedule": schedule(session, statement); return true;
            case "pass": found(session, statement).startPass((int) statement.number("kind", 0));
                return true;
            case "enter": enter(session, statement); return true;
            case "leave": found(session, statement).leave(index(statement)); return true;
            case "used": used(session, statement); return true;
            case "reset": found(session, statement).reset(); return true;
            case "schedule_is": scheduleIs(found(session, statement), statement); return true;
            default: return false;
        }
    }

    private static Schedule found(Session session, Table.Statement statement) {
        return session.find(Schedule.class, statement.name);
    }

    private static int index(Table.Statement statement) {
        return (int) statement.number("index", 0);
    }

    private static void schedule(Session session, Table.Statement statement) {
        final ScheduleOptions options = new ScheduleOptions();
        if (statement.get("prefetch") != null) {
            options.prefetchElements((long) statement.number("prefetch", 0));
        }
        if (statement.get("live") != null) {
            options.maxLiveElements((long) statement.number("live", 0));
        }
        if (statement.get("reuse") != null) {
            options.maxReuseElements((long) statement.number("reuse", 0));
        }
        if (statement.get("persist") != null) {
            options.persistElements((long) statement.number("persist", 0));
        }
        if (statement.get("persist_total") != null) {
            options.persistTotalElements((long) statement.number("persist_total", 0));
        }
        if ("device".equals(statement.get("tier"))) options.tier(Tier.DEVICE);
        session.keep(statement.name,
                session.context().schedule(options, session.units(statement)));
    }

    private static void enter(Session session, Table.Statement statement) {
        final Schedule schedule = found(session, statement);
        boolean entered = true;
        if (statement.get("timeout") == null) {
            schedule.enter(index(statement));
        } else {
            entered = schedule.enter(index(statement),
                    Duration.ofNanos((long) (statement.number("timeout", 0) * 1e9)));
        }
        Values.equal("entered", entered, !"1".equals(statement.get("pending")));
    }

    private static void used(Session session, Table.Statement statement) {
        final Param param = session.find(Param.class, statement.wanted("param"));
        final View view = found(session, statement).view(param);
        Values.equal("the dtype", view.dtype(), param.dtype());
        Values.equal("the elements", view.count(), param.count());
        Values.check(!view.writable(), "the view is writable");
        session.values.checkData(statement, view.bytes(), view.dtype(), 0);
    }

    private static void scheduleIs(Schedule schedule, Table.Statement statement) {
        expect(statement, "entered", schedule.entered());
        expect(statement, "units", schedule.units().length);
        expect(statement, "passes", schedule.passes());
        expect(statement, "uses", schedule.uses());
        expect(statement, "ahead", schedule.ahead());
        expect(statement, "deviations", schedule.deviations());
        expect(statement, "live_elements", schedule.liveElements());
        expect(statement, "peak_live_elements", schedule.peakLiveElements());
    }

    private static void expect(Table.Statement statement, String key, long found) {
        if (statement.get(key) != null) {
            Values.equal(key, found, (long) statement.number(key, 0));
        }
    }
}
