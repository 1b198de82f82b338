# SPDX-License-Identifier: Apache-2.0
# The operations on schedules.

found(session, statement) = find(session, Schedule, statement.name)
index_of(statement) = whole(statement, "index", 0) + 1

operation("schedule") do session, statement
    names = ("prefetch" => :prefetch_elements, "live" => :max_live_elements,
        "reuse" => :max_reuse_elements, "persist" => :persist_elements,
        "persist_total" => :persist_total_elements)
    options = [own => whole(statement, key, 0) for (key, own) in names if has(statement, key)]
    tier = Symbol(get(statement, "tier", "host"))
    keep!(session, statement.name, Schedule(units_of(session, statement); tier = tier, options...))
end

operation("pass") do session, statement
    start_pass!(found(session, statement), whole(statement, "kind", 0))
end

operation("enter") do session, statement
    entered = enter!(
        found(session, statement), index_of(statement); timeout = timeout_of(statement))
    check(entered != (get(statement, "pending", "0") == "1"), "entered: $entered")
end

operation("leave") do session, statement
    leave!(found(session, statement), index_of(statement))
end

operation("used") do session, statement
    param = find(session, Param, wanted(statement, "param"))
    array = found(session, statement)[param]
    check_equal("the dtype", eltype(array), eltype(param))
    check_equal("the size", size(array), size(param))
    check(!Meron.writable(array), "the view is writable")
    check_data(session.place, statement, array)
end

operation("reset") do session, statement
    reset!(found(session, statement))
end

operation("schedule_is") do session, statement
    known = Meron.info(found(session, statement))
    for key in (:entered, :units, :passes, :uses, :ahead, :deviations, :live_elements,
        :peak_live_elements)
        text = String(key)
        has(statement, text) && check_equal(text, known[key], whole(statement, text, 0))
    end
end
