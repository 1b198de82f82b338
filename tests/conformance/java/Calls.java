// SPDX-License-Identifier: Apache-2.0
// Generated from capi/api.json by tools/generate/generate.py: do not edit.
import org.meron.Context;
import org.meron.Io;
import org.meron.Optimizer;
import org.meron.Plan;
import org.meron.Schedule;
import org.meron.Unit;

/** The operation "call". ../README.md defines it. */
final class Calls {
    private Calls() {}

    /** Executes the statement and returns true if this class has its operation. */
    static boolean execute(Session session, Table.Statement statement) {
        if (!statement.operation.equals("call")) return false;
        final String name = statement.name.isEmpty() ? session.currentName : statement.name;
        switch (statement.wanted("function")) {
            case "meron_context_plan_json":
                Values.has(session.find(Context.class, name).planJson(), statement);
                return true;
            case "meron_context_event_fd":
                equal(session.find(Context.class, name).eventFd(), statement);
                return true;
            case "meron_checkpoint_cancel_save":
                session.find(Context.class, name).cancelSave();
                return true;
            case "meron_plan_json":
                Values.has(session.find(Plan.class, name).json(), statement);
                return true;
            case "meron_plan_table":
                Values.has(session.find(Plan.class, name).table(), statement);
                return true;
            case "meron_barrier_begin":
                Operations.finishOrKeep(session, statement,
                        session.group(statement.name).barrierBegin());
                return true;
            case "meron_reduce_consume":
                session.find(Unit.class, name).consume();
                return true;
            case "meron_reduce_scale_feedback":
                session.find(Unit.class, name).scaleFeedback(statement.number("factor", 0));
                return true;
            case "meron_optimizer_set_max_norm":
                session.find(Optimizer.class, name).maxNorm(statement.number("max_norm", 0));
                return true;
            case "meron_schedule_drop":
                session.find(Schedule.class, name).drop();
                return true;
            case "meron_io_describe":
                Values.has(session.find(Io.class, name).describe(), statement);
                return true;
            default:
                throw new Table.Malformed("there is no call of " + statement.get("function"));
        }
    }

    private static void equal(double found, Table.Statement statement) {
        Values.equal("the result", found, statement.number("is", found));
    }
}
