// SPDX-License-Identifier: Apache-2.0
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import org.meron.DlpackTensor;
import org.meron.Gather;
import org.meron.GatherMode;
import org.meron.Gatherable;
import org.meron.Tier;
import org.meron.Param;
import org.meron.ReduceOp;
import org.meron.Unit;
import org.meron.View;

/** The operations on gathers. */
final class Gathers {
    private Gathers() {}

    /** Executes the statement and returns true if this class has its operation. */
    static boolean execute(Session session, Table.Statement statement) throws Exception {
        final String name = statement.name;
        switch (statement.operation) {
            case "gather":
            case "gather_begin": gather(session, statement); return true;
            case "wait_stream": session.find(Gather.class, name).waitStream(0); return true;
            case "release_on_stream":
                session.find(Gather.class, name).releaseOnStream(0);
                session.held(name).released = true;
                return true;
            case "full": {
                final View view = tensor(session, statement);
                session.values.checkData(statement, view.bytes(), view.dtype(), 0);
                if ("1".equals(statement.get("same"))) checkSame(session, view);
                return true;
            }
            case "overwrite":
                session.values.assign(tensor(session, statement), statement.wanted("with"));
                return true;
            case "dlpack": dlpack(session, statement); return true;
            default: return false;
        }
    }

    private static void gather(Session session, Table.Statement statement) {
        final GatherMode mode = GatherMode.valueOf(statement.get("mode", "view").toUpperCase());
        final Unit[] units = session.units(statement);
        Map<Gatherable, ByteBuffer> into = null;
        if (mode == GatherMode.INTO) {
            into = new LinkedHashMap<>();
            for (Unit unit : units) {
                final Gatherable[] all =
                        "flat".equals(statement.get("by")) ? unit.flats() : unit.params();
                for (Gatherable wanted : all) {
                    into.put(wanted, session.values.buffer(
                            "fill:-1", wanted.dtype(), Math.toIntExact(wanted.count())));
                }
            }
        }
        final Gather made = mode == GatherMode.VIEW
                ? session.context().gatherBegin(
                        Tier.valueOf(statement.get("tier", "device").toUpperCase()), units)
                : session.context().gatherBegin(mode, into, units);
        if (statement.operation.equals("gather")) {
            try {
                made.await();
            } catch (RuntimeException error) {
                made.close();
                throw error;
            }
        }
        session.keep(statement.name, made);
        if (mode == GatherMode.VIEW) session.views.add(made);
    }

    private static View tensor(Session session, Table.Statement statement) {
        final Gather gather = session.find(Gather.class, statement.name);
        final Param param = session.find(Param.class, statement.wanted("param"));
        final View view = gather.view(param);
        Values.equal("the dtype", view.dtype(), param.dtype());
        Values.equal("the elements", view.count(), param.count());
        Values.equal("writable", view.writable(), !session.views.contains(gather));
        return view;
    }

    private static void dlpack(Session session, Table.Statement statement) {
        final Param param = session.find(Param.class, statement.wanted("param"));
        final DlpackTensor tensor =
                session.find(Gather.class, statement.wanted("gather")).dlpack(param);
        session.keep(statement.name, tensor);
        Values.equal("the dtype", tensor.dtype(), param.dtype());
        Values.equal("the shape", Arrays.toString(tensor.shape()), Arrays.toString(param.shape()));
        Values.check(!tensor.view().writable(), "the tensor is not read-only");
        session.values.checkData(statement, tensor.view().bytes(), tensor.dtype(), 0);
    }

    /** Every rank of the world has these bytes: the sums of the CRC's halves are multiples of it. */
    private static void checkSame(Session session, View view) {
        final long crc = Values.crc(view.bytes());
        final float[] sums = {crc >> 16, crc & 0xffff};
        session.context().world().allReduce(sums, ReduceOp.SUM);
        Values.check(sums[0] == session.world * (crc >> 16)
                && sums[1] == session.world * (crc & 0xffff), "the ranks differ");
    }
}
