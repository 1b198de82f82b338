#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_messages must find names of C in messages, and nothing else."""

from __future__ import annotations

import unittest
from pathlib import Path

import check_messages  # beside this file

NAMES = check_messages.interface_names(Path(__file__).resolve().parents[2])


def found(line: str, native: bool = True) -> list[str]:
    return [word for _, word in check_messages.messages_with_names(line, NAMES, native)]


class CheckMessages(unittest.TestCase):
    def test_names_of_c_in_messages_are_found(self) -> None:
        for word in (
            "meron_optimizer_reload",
            "meron_view",
            "MERON_GATHER_INTO",
            "MERON_E_STATE",
            "boundary 1",
            "timeout_ns",
            "model_head_bytes()",
        ):
            self.assertEqual(
                found(f'return Error(x, fmt::format("do not {word}: {{}}", n));'), [word]
            )

    def test_names_of_c_in_messages_of_bindings_are_found(self) -> None:
        self.assertEqual(
            found('raise f"call meron_future_wait first"', False), ["meron_future_wait"]
        )
        self.assertEqual(found('raise f"call zero_grad() first"', False), [])

    def test_code_is_no_message(self) -> None:
        for line in (
            'new("meron_view *")',
            'new("struct meron_view *", value)',
            'lookup("meron_future_wait")',
            'dlsym(library, "meron_backend_query of it")',
            '// "call meron_future_wait"',
            '"set MERON_STORE to a directory"',
        ):
            self.assertEqual(found(line), [], line)


if __name__ == "__main__":
    unittest.main()
