// SPDX-License-Identifier: Apache-2.0
import java.lang.reflect.Array;
import java.lang.reflect.Executable;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import org.meron.Checkpoint;
import org.meron.CheckpointTensor;
import org.meron.Context;
import org.meron.DeviceArray;
import org.meron.Dtype;
import org.meron.ExportOptions;
import org.meron.Gather;
import org.meron.Io;
import org.meron.IoOptions;
import org.meron.LoadOptions;
import org.meron.Optimizer;
import org.meron.Param;
import org.meron.Pending;
import org.meron.Plan;
import org.meron.ReduceOptions;
import org.meron.SaveOptions;
import org.meron.Schedule;
import org.meron.ScheduleOptions;
import org.meron.Unit;
import org.meron.Update;

/** Calls every public method with null in each place: what is refused, is refused by name. */
final class NullArguments {
    /** Parameters, as Class.method and place, for which null has a meaning. */
    private static final Set<String> MEANT = Set.of("Checkpoint.open 1", "Context.gatherBegin 1",
            "Context.load 1", "Context.param 4", "ExportOptions.dtype 0", "ExportOptions.mapping 0",
            "Group.abort 0", "LoadOptions.mapping 0", "SaveOptions.extra 0",
            "SaveOptions.mapping 0", "CheckpointTensor.kind 0");

    private final List<Object> objects = new ArrayList<>();
    private int refused;

    static void refused() throws Exception {
        new NullArguments().run();
    }

    private void run() throws Exception {
        try (Context context = Suite.alone("zero3"); Io io = new Io()) {
            final Param weight = context.param("w", Dtype.F32, 8);
            final Unit unit = context.unit("u", weight);
            final Unit other = context.unit("v", context.param("x", Dtype.F32, 8));
            final Optimizer optimizer = context.adamw(unit);
            final Schedule schedule = context.schedule(other);
            try (Gather full = unit.gather(); Update update = other.update();
                    Plan plan = Plan.preset("zero3")) {
                objects.addAll(List.of(context, context.world(), weight, unit, unit.flats()[0],
                        optimizer, schedule, full, full.view(weight), update, plan, io,
                        context.world().barrierBegin(), new ReduceOptions(), new SaveOptions(),
                        new LoadOptions(), new ExportOptions(), new ScheduleOptions(),
                        new IoOptions()));
                for (Object object : objects) {
                    for (Method method : object.getClass().getMethods()) callWithNulls(object, method);
                }
                for (Class<?> type : new Class<?>[] {Checkpoint.class, Plan.class, Pending.class}) {
                    for (Method method : type.getMethods()) {
                        if (Modifier.isStatic(method.getModifiers())) callWithNulls(null, method);
                    }
                }
                for (Class<?> type : new Class<?>[] {CheckpointTensor.class, DeviceArray.class}) {
                    for (Executable constructor : type.getConstructors()) {
                        callWithNulls(null, constructor);
                    }
                }
                update.publish();
            }
        }
        Suite.check(refused > 100, "only " + refused + " parameters were looked at");
    }

    private void callWithNulls(Object object, Executable called) throws Exception {
        if (called.getDeclaringClass() == Object.class) return;
        final Class<?>[] types = called.getParameterTypes();
        for (int i = 0; i < types.length; ++i) {
            final String name = called.getDeclaringClass().getSimpleName().replace("Methods", "")
                    + "." + called.getName() + " " + i;
            if (types[i].isPrimitive() || MEANT.contains(name)) continue;
            final Object[] given = new Object[types.length];
            for (int k = 0; k < types.length; ++k) given[k] = k == i ? null : some(types[k]);
            refusedByName(name, called, object, given);
            if (types[i].isArray() && !types[i].getComponentType().isPrimitive()) {
                given[i] = Array.newInstance(types[i].getComponentType(), 1);
                refusedByName(name, called, object, given);
            }
        }
    }

    private void refusedByName(String name, Executable called, Object object, Object[] given)
            throws Exception {
        try {
            if (called instanceof Method) ((Method) called).invoke(object, given);
            else ((java.lang.reflect.Constructor<?>) called).newInstance(given);
        } catch (InvocationTargetException thrown) {
            final String text = "" + thrown.getCause().getMessage();
            if (thrown.getCause() instanceof NullPointerException
                    && text.matches("[\\w .]+(\\[0\\])? must not be null")) {
                ++refused;
                return;
            }
            throw new AssertionError(name + ": " + thrown.getCause(), thrown.getCause());
        }
        throw new AssertionError(name + " may be null");
    }

    private static ByteBuffer memory() {
        return ByteBuffer.allocateDirect(64).order(ByteOrder.nativeOrder());
    }

    /** A value of a type that the method would take. */
    private Object some(Class<?> type) throws Exception {
        if (type == int.class) return 0;
        if (type == long.class) return 0L;
        if (type == double.class) return 1.0;
        if (type == float.class) return 1f;
        if (type == boolean.class) return false;
        if (type == String.class) return "F32";
        if (type == Path.class) return Path.of("/nowhere/meron");
        if (type == Duration.class) return Duration.ZERO;
        if (type == Map.class) return Map.of();
        if (type == Consumer.class) return (Consumer<Object>) ignored -> { };
        if (type == Buffer.class || type == FloatBuffer.class) return Floats.direct(new float[8]);
        if (type == IntBuffer.class) return memory().asIntBuffer();
        if (type == LongBuffer.class) return memory().asLongBuffer();
        if (type == DoubleBuffer.class) return memory().asDoubleBuffer();
        if (type.isEnum()) return type.getEnumConstants()[0];
        if (type.isArray() && type.getComponentType().isPrimitive()) {
            return Array.newInstance(type.getComponentType(), 8);
        }
        if (type.isArray()) return Array.newInstance(type.getComponentType(), 0);
        for (Object object : objects) {
            if (type.isInstance(object)) return object;
        }
        return type.getConstructor().newInstance(); // options
    }
}
