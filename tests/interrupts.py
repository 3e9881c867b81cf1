# SPDX-License-Identifier: Apache-2.0
"""The interrupts that the kernel counts (proc(5): interrupts)."""


def taken_by(cpu):
    """{row, "LOC" or "36": how many that CPU has taken}"""
    with open("/proc/interrupts", encoding="ascii") as file:
        column = file.readline().split().index(f"CPU{cpu}")
        rows = {words[0].rstrip(":"): words[1:] for words in map(str.split, file)}
    return {row: int(words[column]) for row, words in rows.items()
            if len(words) > column and words[column].isdigit()}
