#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""In the guest: tracepoints and an interrupt of an adapter's driver, in gaps that pollgap explains.

  adapter_events_test.py --build DIR --module mlx5_events.ko [--count N] [--output DIR]

The module (tests/guest/mlx5_events) is loaded once the agent is attached: what it has is found late.
While the polling thread is stopped its tracepoints fire; its interrupt runs on the polled CPU.
"""
import filecmp
import json
import os
import signal
import sys
import time

import driver
import pair
import judge  # found by pair
import session  # likewise

FLOOD = 2000
WORKLOAD = "pollgap-workload"
COMMAND = ("CREATE_QP(0x500) op_mod(0x7) failed, status bad parameter(0x3), syndrome (0x3f2a51), "
           "err(-22)")
COMMAND_FIELDS = {"command_str": "CREATE_QP", "opcode": "0x500", "op_mod": "0x7",
                  "status_str": "bad parameter", "status": "0x3", "syndrome": "0x3f2a51", "err": "-22"}
FIRMWARE = "0000:3b:00.0 [0x123456789ab] 1 [0x1c] QP 0x4f: retries exceeded"


def read(path):
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def stopped(pid):
    """Whether all threads of the process are: the signal takes until each has been on a CPU."""
    return all("\nState:\tT" in read(f"/proc/{pid}/task/{tid}/status")
               for tid in os.listdir(f"/proc/{pid}/task"))


def stop_and_fire(pid):
    """Stops the process for some 20 ms, in the middle of which both tracepoints fire; when."""
    os.kill(pid, signal.SIGSTOP)
    while not stopped(pid):
        time.sleep(0.001)
    time.sleep(0.01)
    before = time.monotonic_ns()
    driver.fire("cmd")
    driver.fire("fw")
    after = time.monotonic_ns()
    time.sleep(0.01)
    os.kill(pid, signal.SIGCONT)
    return before, after


def interrupt(_):
    before = time.monotonic_ns()
    driver.fire(f"irq {pair.POLLED_CPU} 10000")
    return before, time.monotonic_ns()


def flood(_):
    driver.fire(f"flood {FLOOD}")


def gap_around(report, window):
    """The gap in which that time lies."""
    for gap in report["gaps"]:
        start = gap["start_mono_ns"]
        if start <= window[1] and window[0] <= start + gap["duration_ns"]:
            return gap
    raise AssertionError("no gap there")


def check_stopped(report, window):
    gap = gap_around(report, window)
    assert gap["verdict"]["cause"] == "stopped", gap["verdict"]
    events = {event["event"]: event for event in gap["evidence"].get("trace_events", [])}
    assert set(events) == {"mlx5:mlx5_cmd", "mlx5:mlx5_fw"}, gap["evidence"]
    command, firmware = events["mlx5:mlx5_cmd"], events["mlx5:mlx5_fw"]
    assert command["text"] == COMMAND and command["fields"] == COMMAND_FIELDS, command
    assert firmware["text"] == FIRMWARE, firmware
    assert firmware["fields"]["msg"] == "QP 0x4f: retries exceeded", firmware
    assert command["task"]["tid"] == os.getpid(), command
    at = [gap["start_mono_ns"] + event["offset_ns"] for event in (command, firmware)]
    assert window[0] <= at[0] <= at[1] <= window[1], (window, at)


def check_interrupt(report, window):
    verdict = gap_around(report, window)["verdict"]
    assert verdict["cause"] == "hard_irq", verdict
    detail = verdict["detail"]
    assert (detail["action"], detail["vector"], detail["device"]) == (
        driver.ACTION, driver.VECTOR, driver.DEVICE), detail
    assert driver.VECTOR in verdict["text"], verdict


def check_coverage(report, _):
    coverage = report["coverage"]
    assert {"mlx5:mlx5_cmd", "mlx5:mlx5_fw"} <= set(coverage["trace_events"]), coverage
    assert 0 < coverage["trace_events_dropped"] < FLOOD, coverage
    assert any("came too fast" in text for text in coverage["warnings"]), coverage
    assert not any("cannot attach" in text for text in coverage["warnings"]), coverage


def watched(programs, arguments, path):
    """The report, and of each kind of thing done: what checks it, and when."""
    done = {"mlx5 tracepoints in its gap": (check_stopped, []),
            "interrupt of the adapter": (check_interrupt, []),
            "flood of tracepoints": (check_coverage, [])}
    acts = (stop_and_fire, interrupt, flood)
    # It thinks for long between its polls, and does not run while the agent starts: every poll that
    # is probed takes many microseconds here.
    with session.Child([programs.workload, "--device", "soft", "--think-ns", "100000"]) as workload:
        workload.wait_for(r"ready pid=\d+", driver.PATIENCE_S)
        workload.signal(signal.SIGSTOP)
        agent = programs.start_agent(workload.pid, "--threshold", "5ms", "--output", path("report.json"),
                                     "--capture", path("events.pgc"))
        with agent:
            _, at = agent.wait_for(r"(?i)\battached\b", driver.PATIENCE_S)
            workload.signal(signal.SIGCONT)
            driver.load(arguments.module)
            took = driver.wait_until(lambda: driver.references() >= 2)
            print(f"attached in {at:.1f} s; to the module's tracepoints {took:.1f} s after it was "
                  "loaded", flush=True)
            time.sleep(0.5)
            for act, (_, windows) in zip(acts, done.values()):
                for _ in range(1 if act == flood else arguments.count):
                    windows.append(act(workload.pid))
                    time.sleep(0.2)
            stopping = time.monotonic()
            status = session.stop(agent, driver.PATIENCE_S)
            print(f"detached in {time.monotonic() - stopping:.1f} s")
            assert status == 0, agent.text()
        workload.kill()
    with open(path("report.json"), encoding="utf-8") as file:
        return json.load(file), done


def main():
    parser = pair.argument_parser(__doc__)
    parser.add_argument("--module", required=True, help="mlx5_events.ko")
    parser.add_argument("--count", type=int, default=5, help="of each (default: 5)")
    arguments = parser.parse_args()
    pair.leave_polled_cpus()
    programs = session.Programs(arguments.build)

    def path(name):
        return os.path.join(arguments.output, name)

    report, done = watched(programs, arguments, path)
    failures = 0
    for name, (check, windows) in done.items():
        errors = []
        for window in windows:
            try:
                check(report, window)
            except (AssertionError, KeyError) as error:
                errors.append(f"\n{window}: {error!r}")
        failures += len(errors)
        print(f"{'FAILED' if errors else 'ok':<8}{WORKLOAD}, {name}: {len(windows) - len(errors)} of "
              f"{len(windows)} right{''.join(errors)}", flush=True)
    if inexact := list(judge.ledger_findings(report)):
        failures += 1
        print(f"FAILED  {WORKLOAD}, a ledger: not exact: {inexact[0].text}")
    replayed = session.Child([programs.pollgap, "replay", path("events.pgc"), "--output",
                              path("replay.json")])
    if replayed.wait(driver.PATIENCE_S) != 0 or not filecmp.cmp(path("report.json"), path("replay.json"), shallow=False):
        failures += 1
        print(f"FAILED  {WORKLOAD}, its replay: differs: {replayed.text()}")
    if not driver.unload():
        failures += 1
        print(f"FAILED  {WORKLOAD}, the module: cannot be unloaded once the agent is gone")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
