// SPDX-License-Identifier: Apache-2.0
import java.io.IOException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.LongConsumer;
import java.util.stream.Stream;
import org.meron.Checkpoint;
import org.meron.Context;
import org.meron.DlpackTensor;
import org.meron.Gather;
import org.meron.Group;
import org.meron.Io;
import org.meron.IoBuffer;
import org.meron.IoRequest;
import org.meron.MeronException;
import org.meron.Operation;
import org.meron.Optimizer;
import org.meron.Param;
import org.meron.Plan;
import org.meron.Schedule;
import org.meron.Stats;
import org.meron.Unit;
import org.meron.Update;
import org.meron.abi.Abi;

/** The objects of one case on one rank. */
final class Session {
    private static final Map<Class<?>, LongConsumer> RELEASE = Map.ofEntries(
            Map.entry(Plan.class, Abi::meron_plan_release),
            Map.entry(Group.class, Abi::meron_group_release),
            Map.entry(Param.class, Abi::meron_param_release),
            Map.entry(Unit.class, Abi::meron_unit_release),
            Map.entry(Update.class, Abi::meron_future_release),
            Map.entry(Gather.class, Abi::meron_future_release),
            Map.entry(Optimizer.class, Abi::meron_optimizer_release),
            Map.entry(Operation.class, Abi::meron_future_release),
            Map.entry(Schedule.class, Abi::meron_schedule_release),
            Map.entry(Checkpoint.class, Abi::meron_checkpoint_release),
            Map.entry(Io.class, Abi::meron_io_close),
            Map.entry(IoRequest.class, Abi::meron_future_release),
            Map.entry(IoBuffer.class, Abi::meron_io_buffer_release),
            Map.entry(Context.class, Abi::meron_context_close));

    /**
     * An object and its handle. The natural layer forgets the handle with the release, and finds no
     * fault in a second one: only the raw layer can release a released object.
     */
    final class Held {
        final AutoCloseable item;
        private final long handle;
        boolean released;

        Held(AutoCloseable item) {
            this.item = item;
            handle = handle(item);
        }

        void release() throws Exception {
            if (released || contextGone(item)) {
                RELEASE.get(item.getClass()).accept(handle);
            } else {
                item.close();
            }
            released = true;
        }
    }

    final int rank;
    final int world;
    final String transport;
    final String job;
    final String title;
    final String plan;
    final Values values;
    final Map<String, Stats> marked = new HashMap<>();
    final Set<Gather> views = new HashSet<>(); // gathers whose tensors must be read-only
    final Set<Path> files = new HashSet<>(); // of the case, to be removed
    final Set<Path> folders = new HashSet<>(); // likewise
    final Map<String, ByteBuffer> memories = new HashMap<>(); // of requests
    volatile boolean stop; // what should_stop answers
    String currentName = "ctx";
    private final LinkedHashMap<String, Held> objects = new LinkedHashMap<>();

    Session(int rank, int world, String transport, String job, String title, String plan) {
        this.rank = rank;
        this.world = world;
        this.transport = transport;
        this.job = job;
        this.title = title;
        this.plan = plan;
        values = new Values(rank, world);
    }

    /** A natural object's handle, which it keeps to itself. */
    static long handle(Object object) {
        try {
            Class<?> type = object.getClass();
            while (!type.getSimpleName().equals("Handle")) type = type.getSuperclass();
            final Method handle = type.getDeclaredMethod("handle");
            handle.setAccessible(true);
            return (long) handle.invoke(object);
        } catch (ReflectiveOperationException error) {
            throw new AssertionError(error);
        }
    }

    private boolean contextGone(AutoCloseable item) {
        final Held context = objects.get(currentName);
        return !(item instanceof Plan) && !(item instanceof Context)
                && !(item instanceof DlpackTensor) && !(item instanceof Io) && context != null
                && context.released;
    }

    void keep(String name, AutoCloseable item) {
        if (name == null || name.isEmpty()) throw new Table.Malformed("a name is missing");
        objects.remove(name);
        objects.put(name, new Held(item));
    }

    Held held(String name) {
        final Held found = objects.get(name);
        if (found == null) throw new Table.Malformed("there is no " + name);
        return found;
    }

    <T> T find(Class<T> kind, String name) {
        final AutoCloseable item = held(name).item;
        if (!kind.isInstance(item)) throw new Table.Malformed(name + " is of another kind");
        return kind.cast(item);
    }

    Context context() {
        return find(Context.class, currentName);
    }

    Group group(String name) {
        return name.isEmpty() || name.equals("world") ? context().world() : find(Group.class, name);
    }

    Unit[] units(Table.Statement statement) {
        final List<Unit> out = new ArrayList<>();
        for (String name : statement.list("units")) out.add(find(Unit.class, name));
        return out.toArray(new Unit[0]);
    }

    /** Releases what is left, newest first, and closes the contexts. */
    void end() throws Exception {
        final List<Held> left = new ArrayList<>(objects.values());
        for (int i = left.size(); i-- > 0; ) {
            try {
                left.get(i).item.close();
            } catch (MeronException ignored) {
                continue; // whatever went wrong has been said
            }
        }
        for (Path each : files) Files.deleteIfExists(each);
        for (Path each : folders) remove(each);
    }

    /** Removes a folder and what is in it. */
    static void remove(Path folder) throws IOException {
        if (!Files.exists(folder)) return;
        try (Stream<Path> all = Files.walk(folder)) {
            for (Path each : all.sorted(Comparator.reverseOrder()).toArray(Path[]::new)) {
                Files.delete(each);
            }
        }
    }
}
