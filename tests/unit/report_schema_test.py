#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reports against the schema that the tree publishes, and the schema against broken reports.

  report_schema_test.py REPORT_SAMPLE_PROGRAM SCHEMA
"""
import copy
import json
import subprocess
import sys
import unittest

import jsonschema

sample_program, schema_path = sys.argv[1:3]


def report(mode):
    written = subprocess.run([sample_program, mode], check=True, capture_output=True)
    return json.loads(written.stdout.decode("utf-8"))


class Schema(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(schema_path, encoding="utf-8") as file:
            schema = json.load(file)
        jsonschema.Draft202012Validator.check_schema(schema)
        cls.validator = jsonschema.Draft202012Validator(schema)

    def assert_valid(self, document):
        errors = [f"{'/'.join(map(str, e.absolute_path))}: {e.message}"
                  for e in self.validator.iter_errors(document)]
        self.assertEqual(errors, [])

    def test_reports_are_valid(self):
        for mode in ("full", "empty", "no-session"):
            with self.subTest(mode):
                self.assert_valid(report(mode))

    def test_every_cause_and_member_is_in_the_sample(self):
        document = report("full")
        self.assertEqual({gap["verdict"]["cause"] for gap in document["gaps"]},
                         set(self.validator.schema["$defs"]["cause"]["enum"]))
        details = self.validator.schema["$defs"]["detail"]["properties"]
        used = {key for gap in document["gaps"] for key in gap["verdict"]["detail"]}
        self.assertEqual(used, set(details))
        evidence = self.validator.schema["$defs"]["gap"]["properties"]["evidence"]["properties"]
        used = {key for gap in document["gaps"] for key in gap["evidence"]}
        self.assertEqual(set(evidence) - used, {"polls"})

    def test_broken_reports_are_refused(self):
        good = report("full")

        def gap(document):
            return document["gaps"][0]

        changes = {
            "schema of another version": lambda d: d.update(schema="pollgap.report/2"),
            "no gaps": lambda d: d.pop("gaps"),
            "unknown top-level member": lambda d: d.update(extra=1),
            "negative duration": lambda d: gap(d).update(duration_ns=-1),
            "fractional duration": lambda d: gap(d).update(duration_ns=1.5),
            "unknown cause": lambda d: gap(d)["verdict"].update(cause="gremlins"),
            "unknown kind": lambda d: gap(d).update(kind="pause"),
            "share above one": lambda d: gap(d)["verdict"].update(share=1.01),
            "address as a number": lambda d: gap(d).update(cq=4096),
            "local time": lambda d: gap(d).update(start="2025-01-31T23:59:59+01:00"),
            "no segments": lambda d: gap(d).update(segments=[]),
            "unknown detail": lambda d: gap(d)["segments"][0]["detail"].update(guess="x"),
            "task without pid": lambda d: gap(d)["verdict"]["detail"]["task"].pop("pid"),
            "no coverage warnings": lambda d: d["coverage"].pop("warnings"),
            "cause summary without ledger": lambda d: d["summary"]["by_cause"]["nmi"].pop("ledger_ns"),
        }
        for name, change in changes.items():
            with self.subTest(name):
                document = copy.deepcopy(good)
                change(document)
                self.assertTrue(list(self.validator.iter_errors(document)), "accepted")

    def test_ledgers_sum_exactly(self):
        for gap in report("full")["gaps"]:
            offset = 0
            for segment in gap["segments"]:
                self.assertEqual(segment["offset_ns"], offset)
                offset += segment["duration_ns"]
            self.assertEqual(offset, gap["duration_ns"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
