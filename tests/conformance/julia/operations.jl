# SPDX-License-Identifier: Apache-2.0
# The operations on the library, plans, contexts, groups and futures. ../README.md defines them.

const DEADLINE = 20.0 # of a context's operations, in seconds
const ARENA_RESERVE = 64 << 20
# Loops that poll sleep for PAUSE seconds, ATTEMPTS times at most.
const PAUSE = 0.001
const ATTEMPTS = round(Int, DEADLINE / PAUSE)

# Julia's own sleep needs a thread that serves timers, and all others may be in a wait for this rank.
function pause(seconds = PAUSE)
    due = time_ns() + round(UInt64, seconds * 1e9)
    while time_ns() < due
        Libc.systemsleep(PAUSE)
        GC.safepoint() # the collector waits for a thread that sleeps
    end
end

const OPERATIONS = Dict{String,Function}()
operation(function_, name) = OPERATIONS[name] = function_

# Waits for a future, gives it away (`none`), or keeps it under the name that `future=` gives.
function finish_or_keep(session, statement, future)
    get(statement, "future", "") == "none" && return release(future)
    has(statement, "future") && return keep!(session, wanted(statement, "future"), future)
    wait(future)
    release(future)
end

# ---- Library and plans -----------------------------------------------------------------------------

operation("library") do session, statement
    number_ = LibMeron.meron_version()
    check_equal("the version", VersionNumber(number_ >> 16, (number_ >> 8) & 255, number_ & 255), Meron.version())
    check_equal("the package's version", LibMeron.VERSION_TEXT, string(Meron.version()))
    sizes = [Int(LibMeron.meron_dtype_size(code)) for code in 0:2]
    check_equal("sizes", sizes, [4, 2, 2])
    names = map(Meron.status_name, [0, -100, -300, -402])
    check_equal("the names", names, ["MERON_OK", "MERON_E_ARGUMENT", "MERON_E_TIMEOUT", "MERON_E_INTERNAL"])
end

operation("system") do session, statement
    check_has(Meron.system_info(), statement)
end

operation("plan") do session, statement
    made = has(statement, "preset") ? Plan(wanted(statement, "preset")) :
           Meron.parse_plan(wanted(statement, "json"))
    keep!(session, statement.name, made)
end

operation("plan_json") do session, statement
    plan = find(session, Plan, statement.name)
    check_has(Meron.json(plan), statement)
    check(Meron.parse_plan(Meron.json(plan)) == plan, "the plan read back is another one")
end

operation("plan_same") do session, statement
    one, other = find(session, Plan, statement.name), find(session, Plan, wanted(statement, "other"))
    check_equal("the plan", Meron.json(one), Meron.json(other))
end

operation("plan_predict") do session, statement
    check_has(
        Meron.predict(
            find(session, Plan, statement.name), wanted(statement, "model");
            ranks = whole(statement, "ranks", 1),
            micro_batches = whole(statement, "micro_batches", 1),
            gathers_per_micro_batch = whole(statement, "gathers", 2),
            ranks_per_node = whole(statement, "node", 0),
            optimizer_states = whole(statement, "states", 2),
            table = get(statement, "table", "0") == "1"),
        statement)
end

# ---- Contexts --------------------------------------------------------------------------------------

operation("open") do session, statement
    setup = session.setup
    name = isempty(statement.name) ? "ctx" : statement.name
    job = get(statement, "job", "$(setup.job).$(session.case).$(session.plan).$name")
    transport = get(statement, "transport", setup.transport)
    transport == "custom" && (transport = join_post(job, setup.rank, setup.world))
    context = Meron.open(;
        rank = whole(statement, "rank", setup.rank),
        world_size = whole(statement, "world", setup.world),
        transport = transport,
        plan = has(statement, "plan") ? find(session, Plan, wanted(statement, "plan")) : session.plan,
        job = job,
        token = get(statement, "token", nothing),
        timeout = number(statement, "timeout", DEADLINE),
        host_memory_limit = has(statement, "limit") ? whole(statement, "limit", 0) : nothing,
        should_stop = has(statement, "stoppable") ? (() -> session.stop) : nothing,
        device = get(statement, "device", nothing),
        arena_reserve = ARENA_RESERVE,
        threads = 1,
    )
    keep!(session, name, context)
    session.current = name
end

operation("open_version") do session, statement
    transport = session.setup.transport
    GC.@preserve transport begin
        options = Meron.changed(
            Meron.initial(LibMeron.meron_context_options, LibMeron.meron_context_options_init);
            transport = pointer(transport),
            header_version = whole(statement, "minor", 0) << 8)
        Meron.receive(LibMeron.meron_context, LibMeron.meron_context_open, Ref(options))
    end
end

operation("use") do session, statement
    session.current = statement.name
end

operation("close") do session, statement
    object = held(session, isempty(statement.name) ? session.current : statement.name)
    # Julia's own close may be called twice.
    object.released ? release_raw(object.item, object.handle) : close(object.item)
    object.released = true
end

operation("context") do session, statement
    current, setup = context(session), session.setup
    check_equal("the context", (current.rank, current.world_size, current.transport),
        (setup.rank, setup.world, setup.transport))
end

operation("progress") do session, statement
    Meron.progress(context(session))
end

operation("stop") do session, statement
    session.stop = statement.name == "1"
end

operation("mark") do session, statement
    session.marked[session.current] = Meron.stats(context(session))
end

function check_counted(session, expected)
    now = Meron.stats(context(session))
    before = get(session.marked, session.current, nothing)
    for (name, value) in expected
        found = getfield(now, name)
        name in GROWING && before !== nothing && (found -= getfield(before, name))
        check_equal(name, found, value)
    end
end

operation("counted") do session, statement
    check_counted(session,
        [Symbol(name) => parse(Int, value) for (name, value) in statement.arguments if name != "on"])
end

operation("predicted") do session, statement
    prediction = Meron.predict(context(session);
        micro_batches = whole(statement, "micro_batches", 1),
        gathers_per_micro_batch = whole(statement, "gathers", 2))
    steps = whole(statement, "steps", 1)
    expected = [name => value * (name in GROWING ? steps : 1) for
                (name, value) in pairs(prediction) if name != :secondary_partition_bytes] # within the peak
    if session.setup.transport == "custom" # messages have memory of their own
        filter!(entry -> entry.first != :peak_bytes, expected)
        peak = Meron.stats(context(session)).peak_bytes
        check(peak >= prediction.peak_bytes, "the peak is below the prediction")
    end
    check_counted(session, expected)
end

operation("flight_record") do session, statement
    check_has(Meron.flight_record(context(session)), statement)
end

# ---- Groups ----------------------------------------------------------------------------------------

operation("group") do session, statement
    made = Group(context(session), parse.(Int, parts(statement, "ranks")))
    made === nothing || keep!(session, statement.name, made)
end

operation("group_is") do session, statement
    group, ranks = group_of(session, statement.name), parse.(Int, parts(statement, "ranks"))
    check_equal("the group's size", group.size, length(ranks))
    check_equal("the world's rank", ranks[group.rank+1], session.setup.rank)
end

operation("group_status") do session, statement
    group = group_of(session, statement.name)
    for attempt in 1:(get(statement, "until", "") == "broken" ? ATTEMPTS : 1)
        attempt == 1 || pause()
        error = Meron.status(group)
        error === nothing || throw(error)
    end
end

operation("abort") do session, statement
    Meron.abort(group_of(session, statement.name), wanted(statement, "reason"))
end

operation("barrier") do session, statement
    finish_or_keep(session, statement, barrier_begin(group_of(session, statement.name)))
end

collective_array(session, statement) = tensor_of(
    session.place, wanted(statement, "with"), DTYPES[wanted(statement, "dtype")],
    (whole(statement, "count", 0),))

operation("broadcast") do session, statement
    array = collective_array(session, statement)
    bcast!(array, group_of(session, statement.name); root = whole(statement, "root", 0))
    check_data(session.place, statement, array)
end

operation("all_reduce") do session, statement
    array = collective_array(session, statement)
    allreduce!(array, group_of(session, statement.name); op = Symbol(wanted(statement, "op")))
    check_data(session.place, statement, array)
end

# ---- Waiting and releasing -------------------------------------------------------------------------

check_ended(statement, ended) =
    check(ended != (get(statement, "pending", "0") == "1"), "ended: $ended")

timeout_of(statement) = has(statement, "timeout") ? number(statement, "timeout", 0.0) : nothing

operation("wait") do session, statement
    check_ended(statement, wait(held(session, statement.name).item; timeout = timeout_of(statement)))
end

operation("wait_any") do session, statement
    futures = [held(session, name).item for name in parts(statement, "futures")]
    found = wait_any(futures; timeout = timeout_of(statement))
    check_ended(statement, found !== nothing)
    has(statement, "is") && check_equal("the index", found, whole(statement, "is", 0) + 1)
end

operation("finish") do session, statement
    future = held(session, statement.name).item
    try
        wait(future)
    finally
        release(future)
    end
end

operation("poll") do session, statement
    item = held(session, statement.name).item
    ended = isready(item)
    for _ in 1:(get(statement, "pending", "0") == "1" ? 0 : ATTEMPTS)
        ended && break
        pause()
        ended = isready(item)
    end
    check_ended(statement, ended)
end

operation("release") do session, statement
    release_held(held(session, statement.name))
end

operation("sleep") do session, statement
    pause(number(statement, "s", 0.0))
end
