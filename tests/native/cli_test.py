#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command line as a user meets it: exit codes, one-line errors, and what goes to which stream.
Cases that need a process to attach to are in robustness_test.py.

  cli_test.py --pollgap PROGRAM --capture-writer PROGRAM --schema FILE [CASE...]
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import jsonschema

SEEDS = range(1, 9)
programs = None


def no_such_pid():
    with open("/proc/sys/kernel/pid_max", encoding="ascii") as limit:
        pid = int(limit.read()) - 1
    assert not os.path.exists(f"/proc/{pid}")
    return pid


class CommandLine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(programs.schema, encoding="utf-8") as file:
            cls.schema = jsonschema.Draft202012Validator(json.load(file))

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="pollgap-cli.")
        self.addCleanup(shutil.rmtree, self.directory)

    def path(self, name):
        return os.path.join(self.directory, name)

    def run_pollgap(self, *arguments, **options):
        command = [str(word) for word in (programs.pollgap, *arguments)]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120,
                              **options)

    def assert_refused(self, ended, status, *words):
        """That exit code, nothing on standard output, and one line that has the words."""
        self.assertEqual(ended.returncode, status, ended.stderr)
        self.assertEqual(ended.stdout, "")
        self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)
        self.assertTrue(ended.stderr.startswith("pollgap: "), ended.stderr)
        for word in words:
            self.assertIn(str(word), ended.stderr)

    def capture(self, name="events.pgc", seed=1, records=400):
        path = self.path(name)
        subprocess.run([programs.capture_writer, path, str(seed), str(records)], check=True)
        return path

    def replayed(self, capture, name="report.json"):
        ended = self.run_pollgap("replay", capture, "--output", self.path(name))
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        with open(self.path(name), encoding="utf-8") as file:
            return json.load(file)

    # ---- usage ----

    def test_usage_errors(self):
        for arguments, word in [
                ([], "no command"), (["frobnicate"], "frobnicate"), (["attach"], "--pid"),
                (["attach", "--pid", "many"], "many"), (["attach", "--pid", "0"], "0"),
                (["attach", "--pid", "1", "--threshold", "5"], "'5'"),
                (["attach", "--pid", "1", "--threshold", "1parsec"], "parsec"),
                (["attach", "--pid", "1", "--duration", "0s"], "0s"),
                (["attach", "--pid", "1", "--format", "xml"], "xml"),
                (["attach", "--pid", "1", "--timing", "guess"], "guess"),
                (["attach", "--pid", "1", "--observe-rate", "5"], "5"),
                (["attach", "--pid", "1", "--overhead-budget", "0.01"], "'0.01'"),
                (["attach", "--pid", "1", "--overhead-budget", "101%"], "'101%'"),
                (["attach", "--pid", "1", "--frob"], "--frob"), (["sites"], "--pid"),
                (["report"], "FILE"), (["replay"], "FILE"), (["report", "x", "--gap", "one"], "one"),
                (["doctor", "--pid", "-4"], "-4")]:
            with self.subTest(arguments):
                self.assert_refused(self.run_pollgap(*arguments), 2, word, "--help")

    def test_what_cannot_be_observed(self):
        for options, word in [
                (["--observe-rate", "1000"], "--threshold 4.00 ms"),
                (["--threshold", "100us"], "--observe-rate 5000"),
                (["--poll-site", "/bin/true:poll"], "--poll-site")]:
            with self.subTest(options):
                ended = self.run_pollgap("attach", "--pid", "1", "--timing", "observe", *options)
                self.assert_refused(ended, 2, word)

    def test_help_and_version(self):
        for arguments in (["--help"], ["attach", "--help"], ["--version"]):
            ended = self.run_pollgap(*arguments)
            self.assertEqual((ended.returncode, ended.stderr), (0, ""))
            self.assertIn("pollgap" if len(arguments) == 1 else "--threshold", ended.stdout)

    # ---- processes ----

    def test_no_such_process(self):
        for command in ("attach", "sites"):
            with self.subTest(command):
                pid = no_such_pid()
                self.assert_refused(self.run_pollgap(command, "--pid", pid), 3, pid)

    def test_no_privilege(self):
        os.chmod(self.directory, 0o755)
        program = shutil.copy(programs.pollgap, self.path("pollgap"))
        for command in ("attach", "sites"):
            with self.subTest(command):
                ended = subprocess.run(
                    ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
                     "--inh-caps=-all", program, command, "--pid", str(os.getpid())],
                    check=False, capture_output=True, text=True, timeout=60)
                self.assert_refused(ended, 4, "CAP_")

    def test_no_verbs_in_the_process(self):
        with subprocess.Popen(["sleep", "60"]) as sleeper:
            self.addCleanup(sleeper.kill)
            for command in ("attach", "sites"):
                with self.subTest(command):
                    ended = self.run_pollgap(command, "--pid", sleeper.pid)
                    self.assert_refused(ended, 6, sleeper.pid, "--poll-site")
            sleeper.kill()

    def test_output_that_cannot_be_written_is_told_first(self):
        missing = self.path("no/such/directory/file")
        for option in ("--output", "--capture"):
            with self.subTest(option):
                ended = self.run_pollgap("attach", "--pid", os.getpid(), option, missing)
                self.assert_refused(ended, 1, missing)

    def test_earlier_files_survive_a_session_that_does_not_begin(self):
        for option in ("--output", "--capture"):
            earlier = self.path("earlier")
            with open(earlier, "w", encoding="ascii") as file:
                file.write("earlier")
            ended = self.run_pollgap("attach", "--pid", no_such_pid(), option, earlier)
            self.assert_refused(ended, 3)
            with open(earlier, encoding="ascii") as file:
                self.assertEqual(file.read(), "earlier")
            self.assertEqual(os.listdir(self.directory), ["earlier"], "no temporary file is left")

    # ---- replay ----

    def test_replayed_reports_hold_to_the_schema(self):
        for seed in SEEDS:
            with self.subTest(seed=seed):
                report = self.replayed(self.capture(seed=seed))
                errors = [f"{list(e.absolute_path)}: {e.message}" for e in self.schema.iter_errors(report)]
                self.assertEqual(errors, [])
                self.assertTrue(report["gaps"])
                self.assertEqual(sum(c["ledger_ns"] for c in report["summary"]["by_cause"].values()),
                                 sum(gap["duration_ns"] for gap in report["gaps"]))

    def test_replay_is_repeatable(self):
        capture = self.capture()
        self.replayed(capture, "a.json")
        self.replayed(capture, "b.json")
        with open(self.path("a.json"), "rb") as a, open(self.path("b.json"), "rb") as b:
            self.assertEqual(a.read(), b.read())

    def test_replay_prints_gaps_then_summary(self):
        capture = self.capture()
        gaps = self.replayed(capture)["gaps"]
        text = self.run_pollgap("replay", capture).stdout
        self.assertNotIn("\x1b", text, "no colors but for a terminal")
        lines = text.splitlines()
        self.assertTrue(lines[0].startswith("start (UTC)"))
        self.assertEqual(lines[1 + len(gaps)], "")
        self.assertIn(f"{len(gaps)} gaps", text)

    def test_jsonl_is_json_and_nothing_else(self):
        capture = self.capture()
        report = self.replayed(capture)
        ended = self.run_pollgap("replay", capture, "--format", "jsonl", "--output", self.path("r.json"))
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        objects = [json.loads(line) for line in ended.stdout.splitlines()]
        self.assertEqual([o["type"] for o in objects], ["gap"] * len(report["gaps"]) + ["summary"])
        self.assertEqual(objects[-1]["summary"], report["summary"])
        for told, reported in zip(objects, report["gaps"]):
            self.assertEqual({k: v for k, v in told.items() if k != "type"}, reported)

    def test_damaged_captures(self):
        with open(self.capture(records=4000), "rb") as file:
            whole = file.read()
        middle = len(whole) // 2
        damaged = {"truncated": whole[:middle],
                   "without an end": whole[:-8],
                   "flipped": whole[:middle] + bytes(b ^ 0x5A for b in whole[middle:middle + 40]) +
                              whole[middle + 40:]}
        for name, contents in damaged.items():
            with self.subTest(name):
                path, output = self.path("damaged.pgc"), self.path("damaged.json")
                with open(path, "wb") as file:
                    file.write(contents)
                ended = self.run_pollgap("replay", path, "--output", output)
                self.assertEqual(ended.returncode, 1, ended.stderr)
                self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)
                self.assertIn(path, ended.stderr)
                with open(output, encoding="utf-8") as file:
                    report = json.load(file)  # of what could be read
                self.assertEqual(list(self.schema.iter_errors(report)), [])
                self.assertIn(path, " ".join(report["coverage"]["warnings"]))

    def test_files_that_are_no_captures(self):
        path = self.path("x.pgc")
        for contents in (b"", b"{}", os.urandom(4096), b"PGCAP\0\0\0"):
            with open(path, "wb") as file:
                file.write(contents)
            self.assert_refused(self.run_pollgap("replay", path, "--output", self.path("r.json")), 1, path)
        self.assert_refused(self.run_pollgap("replay", self.path("none")), 1, "none")
        self.assert_refused(self.run_pollgap("replay", self.directory), 1, self.directory)

    def test_full_disk_keeps_the_earlier_report(self):
        capture = self.capture()
        disk = self.path("disk")
        os.mkdir(disk)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=True)
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        output = os.path.join(disk, "report.json")
        with open(output, "wb") as file:
            file.write(b"earlier")
        with open(os.path.join(disk, "ballast"), "wb", buffering=0) as file:
            with self.assertRaises(OSError):
                while file.write(bytes(4096)):
                    pass
        ended = self.run_pollgap("replay", capture, "--output", output)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("space", ended.stderr)
        with open(output, "rb") as file:
            self.assertEqual(file.read(), b"earlier")
        self.assertEqual(sorted(os.listdir(disk)), ["ballast", "report.json"])

    def test_file_size_limit_is_an_error_not_a_signal(self):
        capture = self.capture()
        ended = subprocess.run(["prlimit", "--fsize=4096", programs.pollgap, "replay", capture, "--output",
                                self.path("r.json")], check=False, capture_output=True, text=True)
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertIn("r.json", ended.stderr)
        self.assertFalse(os.path.exists(self.path("r.json")))

    def test_output_that_is_lost_is_an_error(self):
        with open("/dev/full", "wb") as full:
            ended = subprocess.run([programs.pollgap, "replay", self.capture(), "--output",
                                    self.path("r.json")], check=False, stdout=full,
                                   stderr=subprocess.PIPE, text=True)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("standard output", ended.stderr)
        with open(self.path("r.json"), encoding="utf-8") as file:
            json.load(file)  # the report is whole nevertheless

    # ---- report ----

    def test_report_shows_what_replay_showed(self):
        capture = self.capture()
        shown = self.run_pollgap("replay", capture, "--output", self.path("r.json"))
        ended = self.run_pollgap("report", self.path("r.json"))
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertEqual(ended.stdout + f"\nReport: {self.path('r.json')}\n", shown.stdout)

    def test_report_of_one_gap(self):
        gap = self.replayed(self.capture())["gaps"][-1]
        ended = self.run_pollgap("report", self.path("report.json"), "--gap", gap["id"])
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertTrue(ended.stdout.startswith(f"Gap {gap['id']}: {gap['kind']}"))
        self.assertIn(f"{gap['duration_ns']} ns", ended.stdout)
        ended = self.run_pollgap("report", self.path("report.json"), "--gap", 10**6)
        self.assert_refused(ended, 1, "no gap 1000000")

    def test_report_as_html_and_trace(self):
        gaps = self.replayed(self.capture())["gaps"]
        html, trace = self.path("r.html"), self.path("r.trace")
        ended = self.run_pollgap("report", self.path("report.json"), "--html", html, "--trace", trace)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        with open(html, encoding="utf-8") as file:
            page = file.read()
        self.assertEqual(page.count("<details id="), len(gaps))
        with open(trace, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        self.assertEqual(sum(event.get("cat") == "gap" for event in events), len(gaps))
        missing = self.path("no/r.html")
        self.assert_refused(self.run_pollgap("report", self.path("report.json"), "--html", missing), 1,
                            missing)

    def test_files_that_are_no_reports(self):
        self.replayed(self.capture())
        with open(self.path("report.json"), "rb") as file:
            good = file.read()
        path = self.path("bad.json")
        for contents in (b"", b"{", b"[]", b"{}", b"\xff\xfe", good[:len(good) // 2],
                         good.replace(b"pollgap.report/1", b"pollgap.report/9"),
                         good.replace(b'"verdict"', b'"verdikt"', 1)):
            with open(path, "wb") as file:
                file.write(contents)
            with self.subTest(contents[:40]):
                self.assert_refused(self.run_pollgap("report", path, "--gap", "1"), 1, path)
        self.assert_refused(self.run_pollgap("report", self.path("none.json")), 1, "none.json")
        self.assert_refused(self.run_pollgap("report", self.directory), 1, self.directory)

    # ---- doctor ----

    def test_doctor(self):
        ended = self.run_pollgap("doctor", "--json")
        report = json.loads(ended.stdout)
        self.assertEqual(ended.stderr, "")
        checks = {check["name"]: check for check in report["checks"]}
        self.assertIn("BPF ring buffer", checks)
        failed = [check["name"] for check in report["checks"] if check["grade"] == "FAIL"]
        self.assertEqual(ended.returncode == 0, not failed, failed)
        for check in report["checks"]:
            self.assertIn(check["grade"], ("OK", "WARN", "FAIL"))
            self.assertEqual(check["grade"] == "WARN" and not check["advice"], False, check)
        text = self.run_pollgap("doctor").stdout
        for name in checks:
            self.assertIn(name, text)

    def test_doctor_without_privilege(self):
        os.chmod(self.directory, 0o755)
        program = shutil.copy(programs.pollgap, self.path("pollgap"))
        ended = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
                                "--inh-caps=-all", program, "doctor"], check=False,
                               capture_output=True, text=True, timeout=60)
        self.assertEqual(ended.returncode, 4, ended.stdout + ended.stderr)
        self.assertRegex(ended.stdout, r"FAIL\s+CAP_BPF")

    def test_doctor_on_a_process(self):
        ended = self.run_pollgap("doctor", "--pid", no_such_pid())
        self.assertEqual(ended.returncode, 3, ended.stdout)
        self.assertIn(str(no_such_pid()), ended.stdout)


def main():
    global programs
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pollgap", required=True)
    parser.add_argument("--capture-writer", required=True)
    parser.add_argument("--schema", required=True)
    parser.add_argument("cases", nargs="*")
    programs = parser.parse_args()
    unittest.main(argv=[sys.argv[0], *(f"CommandLine.{case}" for case in programs.cases)], verbosity=2)


if __name__ == "__main__":
    main()
