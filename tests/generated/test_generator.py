# SPDX-License-Identifier: Apache-2.0
"""The generator understands what the headers do, and refuses what they must not do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import comments
import docs
import headers
import lint
import notes
from model import Api, CType

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def api() -> Api:
    return headers.read(ROOT / "include")[0]


def offences(tmp_path: Path, header: str, old: str, new: str) -> str:
    """What the lint, or the reader, says of the headers after a change."""
    include = tmp_path / "include"
    shutil.copytree(ROOT / "include", include)
    path = include / "meron" / header
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    try:
        return "\n".join(lint.check(*headers.read(include)))
    except headers.HeaderError as error:
        return str(error)


BARRIER = "Begins a barrier: the future ends when every rank of the group has begun it."


@pytest.mark.parametrize(
    ("header", "old", "new", "message"),
    [
        (
            "context.h",
            " * Blocks: never. Threads: any. Errors: as meron_context_rank.",
            " * Threads: any. Errors: as meron_context_rank.",
            "meron_context_world_size: its doc block lacks 'Blocks:'",
        ),
        (
            "context.h",
            " * Blocks: never. Threads: any. Errors: as meron_context_rank.",
            " * Blocks: never. Errors: as meron_context_rank.",
            "lacks 'Threads:'",
        ),
        (
            "context.h",
            " * Blocks: never. Threads: any. Errors: as meron_context_rank.",
            " * Blocks: never. Threads: any.",
            "lacks 'Errors:'",
        ),
        (
            "context.h",
            " * Blocks: never. Threads: any. Errors: as meron_context_rank.",
            " * Threads: any. Blocks: never. Errors: as meron_context_rank.",
            "the fields stand in the order",
        ),
        ("group.h", BARRIER, BARRIER + "\n * @param gruop  wrong", "@param gruop: no such"),
        ("group.h", BARRIER, BARRIER + " See meron_gone.", "speaks of meron_gone"),
        ("group.h", BARRIER, BARRIER + " Or MERON_E_GONE.", "speaks of MERON_E_GONE"),
        (
            "param.h",
            "typedef struct {\n  uint64_t id;\n} meron_param;",
            "typedef struct {\n  uint32_t index;\n} meron_param;",
            "meron_param: a handle type has exactly one field, uint64_t id",
        ),
        (
            "group.h",
            "MERON_API MERON_NODISCARD meron_status meron_group_abort",
            "MERON_API meron_status meron_group_abort",
            "meron_group_abort: returns meron_status, so it must be MERON_NODISCARD",
        ),
        (
            "group.h",
            "  MERON_REDUCE_OP_SUM = 0,\n",
            "  MERON_SUM = 0,\n",
            "meron_reduce_op: the name of MERON_SUM does not begin with MERON_REDUCE_OP_",
        ),
        (
            "plan.h",
            "typedef struct {\n  uint64_t id;\n} meron_plan;",
            "typedef struct {\n  uint64_t id;\n} meron_plan;\nint meron_more[3];",
            "no rule for",
        ),
        (
            "plan.h",
            "/* A plan. A value; 0 is null. */\n",
            "",
            "meron_plan: has no comment",
        ),
    ],
)
def test_offences_are_found(tmp_path: Path, header: str, old: str, new: str, message: str) -> None:
    assert message in offences(tmp_path, header, old, new)


def test_the_headers_have_none() -> None:
    assert lint.check(*headers.read(ROOT / "include")) == []


def test_api_json_is_enough(api: Api) -> None:
    text = api.to_json()
    assert Api.from_json(text) == api
    assert Api.from_json(text).to_json() == text


def test_api_json_has_a_line_per_item(api: Api) -> None:
    lines = api.to_json().splitlines()
    for item in api.functions + api.structs + api.enums:
        assert sum(line.startswith(f'{{"name": "{item.name}", ') for line in lines) == 1


def test_functions_have_what_bindings_need(api: Api) -> None:
    functions = {function.name: function for function in api.functions}
    assert len(functions) == len(api.functions)

    wait = functions["meron_future_wait"]
    assert wait.may_block
    assert wait.nodiscard
    assert [(p.name, p.type, p.role) for p in wait.params] == [
        ("future", "meron_future", "in"),
        ("timeout_ns", "int64_t", "in"),
        ("err", "meron_error **", "error"),
    ]
    assert "MERON_E_TIMEOUT" in wait.error_codes

    assert functions["meron_future_poll"].error_codes == wait.error_codes, "by 'as'"
    assert functions["meron_reduce_begin"].may_block, "through 'as meron_gradient_view'"
    for name in ("meron_future_poll", "meron_future_release", "meron_version"):
        assert not functions[name].may_block, name

    version = functions["meron_version"]
    assert (version.returns, version.params) == ("uint32_t", [])
    text = functions["meron_error_message"]
    assert text.returns == "const char *"
    assert text.ownership.startswith("borrowed")


def test_initial_values(api: Api) -> None:
    structs = {struct.name: struct for struct in api.structs}
    init = structs["meron_optimizer_options"].init
    assert init is not None
    assert init.macro == "MERON_OPTIMIZER_OPTIONS_INIT"
    assert init.values["struct_size"] == "sizeof"
    assert init.values["kind"] == "MERON_OPTIMIZER_ADAMW"
    assert init.values["epsilon"] == 1e-8
    assert [each.macro for each in structs["meron_optimizer_options"].inits] == [
        f"MERON_{rule}_INIT" for rule in ("ADAMW", "ADAM", "ADAGRAD", "LION", "SGD")
    ]
    assert structs["meron_param_info"].init is not None
    assert structs["meron_param_info"].init.values["shape"] is None
    context = structs["meron_context_options"]
    assert context.sized
    assert context.init is not None
    assert context.init.values["rank"] == -1
    assert context.init.values["plan"] is None


def test_types_come_apart() -> None:
    assert CType.parse("const char **") == CType("char", True, 2, None)
    assert CType.parse("int64_t[16]") == CType("int64_t", False, 0, 16)
    assert CType.parse("struct S *") == CType("struct S", False, 1, None)
    for spelling, declared in (
        ("const char **", "const char **x"),
        ("int64_t[16]", "int64_t x[16]"),
        ("meron_unit", "meron_unit x"),
    ):
        assert CType.parse(spelling).declare("x") == declared
    with pytest.raises(ValueError):
        CType.parse("char *const")


def test_doc_blocks_come_apart() -> None:
    block = docs.parse(
        "Does a thing. And says\nmore about it, e.g. this.\n"
        "@param out    receives it,\n               in full.\n"
        "Returns MERON_OK.\n"
        "Ownership: yours. Blocks:\nnever. Threads: any. Errors: A,\nB."
    )
    assert block.brief == "Does a thing."
    assert block.text == "And says more about it, e.g. this. Returns MERON_OK."
    assert block.params == {"out": "receives it, in full."}
    assert block.fields == {
        "Ownership": "yours.",
        "Blocks": "never.",
        "Threads": "any.",
        "Errors": "A, B.",
    }


def test_what_can_wait() -> None:
    blocks = {
        "a": "never.",
        "b": "never on peers; computes.",
        "c": "never, unless it is far ahead.",
        "d": "on peers.",
        "e": "as meron_f.",
        "meron_f": "on peers.",
        "g": "never on peers; at most until others have left.",
    }
    waiting = [name for name in blocks if docs.may_block(name, blocks)]
    assert waiting == ["c", "d", "e", "meron_f", "g"]


def test_comments_find_their_declarations() -> None:
    source = """/* SPDX-License-Identifier: X */
/* meron/x.h: what it is. More. */
/* not of the next: a line lies between */

typedef int a;
/* of b,
 * on two lines */
typedef struct {
  int x; /* of x */
  /* of y */
  int y;
  int z; /* of z,
            still */
} b; /* of b too */
/* of C */
#define C 1 /* of C too */
#define WITHOUT
enum {
  E = 1, /* one */
  F = 2,
  G = 3 /* three */
};
"""
    pieces = comments.pieces(source)
    assert [piece.doc for piece in pieces] == [
        "",
        "of b,\non two lines of b too",
        "of C of C too",
        "",
    ]
    assert comments.member_docs(pieces[1].text, ";") == ["of x", "of y", "of z, still"]
    assert comments.member_docs(pieces[3].text, ",") == ["one", "", "three"]
    assert comments.header_doc(source) == "meron/x.h: what it is. More."


@pytest.mark.parametrize(
    ("function", "note", "message"),
    [
        ("meron_context_opened", {}, "no such function"),
        ("meron_context_open", {"nullable": ["option"]}, "option is no pointer parameter"),
        ("meron_group_create", {"nullable": ["count"]}, "count is no pointer parameter"),
        ("meron_group_abort", {}, "the doc of reason speaks of NULL"),
    ],
)
def test_annotations_that_do_not_fit_are_refused(
    api: Api, tmp_path: Path, function: str, note: dict, message: str
) -> None:
    path = tmp_path / "annotations.json"
    annotations = json.loads((ROOT / "capi" / "annotations.json").read_text())
    annotations["functions"][function] = note
    path.write_text(json.dumps(annotations))
    with pytest.raises(notes.AnnotationError, match=message):
        notes.apply(api, path)


def test_annotations_say_what_types_cannot(api: Api) -> None:
    notes.apply(api, ROOT / "capi" / "annotations.json")
    functions = {function.name: function for function in api.functions}
    params = {param.name: param for param in functions["meron_broadcast_begin"].params}
    assert params["data"].memory == "host"
    assert params["err"].nullable
    assert not params["out"].nullable
    assert all(function.since == "0.2" for function in api.functions)


def refused_rules(tmp_path: Path, old: str, new: str) -> str:
    """What the annotations of the rules say of the header after a change."""
    include = tmp_path / "include"
    shutil.copytree(ROOT / "include", include)
    path = include / "meron" / "optimizer.h"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(notes.AnnotationError) as error:
        notes.apply(headers.read(include)[0], ROOT / "capi" / "annotations.json")
    return str(error.value)


SGD = "MERON_OPTIMIZER_SGD, 1e-3, 0.0, 0.999, 1e-8, 0.0, 0.0,"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("#define MERON_OPTIMIZER_SGD_INIT", "#define MERON_MOMENTUM_INIT", "INIT macros"),
        (
            SGD,
            SGD.replace("MERON_OPTIMIZER_SGD", "MERON_OPTIMIZER_ADAM"),
            "MERON_OPTIMIZER_SGD_INIT with kind MERON_OPTIMIZER_SGD",
        ),
        (SGD, SGD.replace("0.999", "0.99"), "beta2 among the fields of MERON_OPTIMIZER_SGD"),
    ],
)
def test_rules_without_defaults_of_their_own_are_refused(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert message in refused_rules(tmp_path, old, new)


def test_a_rule_has_the_numbers_of_its_macro(api: Api) -> None:
    notes.apply(api, ROOT / "capi" / "annotations.json")
    numbers = {
        value.names["java"]: {field.name: field.default for field in value.fields}
        for value in api.value_types
        if value.rule
    }
    assert numbers["Sgd"]["momentum"] == 0.0
    assert numbers["Lion"]["learning_rate"] == 1e-4
    assert "beta2" not in numbers["Sgd"]
