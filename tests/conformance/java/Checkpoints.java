// SPDX-License-Identifier: Apache-2.0
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.meron.Checkpoint;
import org.meron.CheckpointTensor;
import org.meron.Dtype;
import org.meron.ExportOptions;
import org.meron.LoadOptions;
import org.meron.Operation;
import org.meron.Optimizer;
import org.meron.SaveOptions;
import org.meron.SaveProgress;
import org.meron.Unit;
import org.meron.WriteOptions;

/** The operations on checkpoints. */
final class Checkpoints {
    private Checkpoints() {}

    /** Executes the statement and returns true if this class has its operation. */
    static boolean execute(Session session, Table.Statement statement) throws IOException {
        switch (statement.operation) {
            case "save": save(session, statement); return true;
            case "wait_copied": awaitCopied(session, statement); return true;
            case "save_progress": saveProgress(session, statement); return true;
            case "load": load(session, statement); return true;
            case "checkpoint_open":
                session.keep(statement.name, Checkpoint.open(
                        folder(session, statement), statement.get("checkpoint")));
                return true;
            case "checkpoint_is": checkpointIs(found(session, statement), statement); return true;
            case "checkpoint_text":
                Values.has(text(found(session, statement), statement.wanted("text")), statement);
                return true;
            case "checkpoint_read": read(session, statement); return true;
            case "checkpoint_list": list(session, statement); return true;
            case "checkpoint_remove":
                Checkpoint.remove(folder(session, statement), statement.name);
                return true;
            case "checkpoint_write": write(session, statement); return true;
            case "export_model": export(session, statement); return true;
            default: return false;
        }
    }

    private static Checkpoint found(Session session, Table.Statement statement) {
        return session.find(Checkpoint.class, statement.name);
    }

    /** A folder of the case, which goes with rank 0's session. */
    private static Path folder(Session session, Table.Statement statement) throws IOException {
        final Path path = Path.of(System.getProperty("java.io.tmpdir"), "meron-" + session.job + "-"
                + session.title + "-" + session.plan + "-" + statement.wanted("folder"));
        if (session.rank == 0 && session.folders.add(path)) Session.remove(path);
        return path;
    }

    private static boolean flag(Table.Statement statement, String key) {
        return "1".equals(statement.get(key));
    }

    private static Optimizer[] optimizers(Session session, Table.Statement statement) {
        final List<Optimizer> out = new ArrayList<>();
        for (String name : statement.list("optimizers")) {
            out.add(session.find(Optimizer.class, name));
        }
        return out.toArray(new Optimizer[0]);
    }

    private static Unit[] units(Session session, Table.Statement statement) {
        final List<Unit> out = new ArrayList<>();
        for (String name : statement.list("units")) out.add(session.find(Unit.class, name));
        return out.toArray(new Unit[0]);
    }

    /** The tensor that `tensor=` gives: this rank's part of it, or nothing. */
    private static CheckpointTensor[] given(Session session, Table.Statement statement) {
        final String name = statement.get("tensor");
        final boolean split = flag(statement, "split");
        if (name == null || (session.rank != 0 && !split)) return new CheckpointTensor[0];
        final int count = Integer.parseInt(statement.wanted("count"));
        final int from = split ? count * session.rank / session.world : 0;
        final int to = split ? count * (session.rank + 1) / session.world : count;
        final Dtype dtype = Operations.dtype(statement.wanted("dtype"));
        final ByteBuffer all = session.values.buffer(statement.wanted("with"), dtype, count);
        all.position(from * dtype.bytes()).limit(to * dtype.bytes());
        final ByteBuffer part = all.slice().order(ByteOrder.nativeOrder());
        final CheckpointTensor tensor =
                new CheckpointTensor(name, dtype.name(), part, count).partFrom(from);
        if (statement.get("kind") != null) tensor.kind(statement.get("kind"));
        return new CheckpointTensor[] {tensor};
    }

    private static void save(Session session, Table.Statement statement) throws IOException {
        final SaveOptions options = new SaveOptions()
                .step((long) statement.number("step", 0))
                .keep((long) statement.number("keep", 0))
                .extra(statement.get("extra"))
                .mapping(statement.get("mapping"))
                .valuesOnly(flag(statement, "values_only"))
                .skipFrozen(flag(statement, "skip_frozen"))
                .perNode(flag(statement, "per_node"))
                .overwrite(flag(statement, "overwrite"))
                .tensors(given(session, statement));
        if (statement.get("units") != null) options.units(units(session, statement));
        final Operation saving = session.context().saveBegin(folder(session, statement),
                statement.name, options, optimizers(session, statement));
        if (statement.get("future") != null) {
            session.keep(statement.get("future"), saving);
        } else {
            saving.finish();
        }
    }

    private static void awaitCopied(Session session, Table.Statement statement) {
        boolean copied = true;
        if (statement.get("timeout") == null) {
            session.context().awaitCopied();
        } else {
            copied = session.context().awaitCopied(
                    Operations.seconds(statement.number("timeout", 0)));
        }
        Operations.ended(statement, copied);
    }

    private static void saveProgress(Session session, Table.Statement statement) {
        final SaveProgress progress = session.context().saveProgress();
        if (statement.get("saving") != null) {
            Values.equal("saving", progress.saving, flag(statement, "saving"));
        }
        Values.check(Math.max(progress.copied, progress.written) <= progress.total,
                "more is done than there is");
        if (flag(statement, "done")) {
            Values.check(progress.total > 0, "nothing was to be written");
            Values.equal("copied", progress.copied, progress.total);
            Values.equal("written", progress.written, progress.total);
        }
    }

    private static void load(Session session, Table.Statement statement) throws IOException {
        final LoadOptions options = new LoadOptions()
                .lenient(flag(statement, "lenient"))
                .valuesOnly(flag(statement, "values_only"))
                .rank0Only(flag(statement, "rank0_only"))
                .perNode(flag(statement, "per_node"))
                .mapping(statement.get("mapping"))
                .claimed(statement.list("claimed").toArray(new String[0]));
        if (statement.get("units") != null) options.units(units(session, statement));
        session.keep(statement.name, session.context().load(folder(session, statement),
                statement.get("checkpoint"), options, optimizers(session, statement)));
    }

    private static void checkpointIs(Checkpoint checkpoint, Table.Statement statement) {
        expect(statement, "step", checkpoint.step());
        expect(statement, "world", checkpoint.world());
        expect(statement, "missing", checkpoint.missing().size());
        expect(statement, "unexpected", checkpoint.unexpected().size());
    }

    private static void expect(Table.Statement statement, String key, long found) {
        if (statement.get(key) != null) {
            Values.equal(key, found, (long) statement.number(key, 0));
        }
    }

    private static String text(Checkpoint checkpoint, String kind) {
        switch (kind) {
            case "path": return checkpoint.path().toString();
            case "extra": return checkpoint.extra();
            case "missing": return String.join("\n", checkpoint.missing());
            case "unexpected": return String.join("\n", checkpoint.unexpected());
            case "manifest": return checkpoint.manifest();
            default: throw new Table.Malformed("unknown text " + kind);
        }
    }

    private static void read(Session session, Table.Statement statement) {
        final Dtype dtype = Operations.dtype(statement.wanted("dtype"));
        final int count = Integer.parseInt(statement.wanted("count"));
        final long begin = (long) statement.number("begin", 0);
        final String kind = statement.get("kind") == null ? "values" : statement.get("kind");
        final ByteBuffer into = session.values.buffer("fill:0", dtype, count);
        found(session, statement).read(kind, statement.wanted("tensor"), begin, count, into);
        session.values.checkData(statement, into, dtype, begin);
    }

    private static void list(Session session, Table.Statement statement) throws IOException {
        final String list = Checkpoint.list(folder(session, statement));
        Values.has(list, statement);
        expect(statement, "count", list.split("\"step\"", -1).length - 1);
    }

    private static void write(Session session, Table.Statement statement) throws IOException {
        final WriteOptions options = new WriteOptions()
                .step((long) statement.number("step", 0))
                .extra(statement.get("extra"))
                .overwrite(flag(statement, "overwrite"));
        Checkpoint.write(folder(session, statement), statement.name, options,
                given(session, statement));
    }

    private static void export(Session session, Table.Statement statement) throws IOException {
        final ExportOptions options = new ExportOptions()
                .maxFileBytes((long) statement.number("max", 0))
                .mapping(statement.get("mapping"))
                .overwrite(flag(statement, "overwrite"))
                .tensors(given(session, statement));
        if (statement.get("to") != null) options.dtype(Operations.dtype(statement.get("to")));
        session.context().export(folder(session, statement), options);
    }
}
