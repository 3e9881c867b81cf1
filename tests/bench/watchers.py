# SPDX-License-Identifier: Apache-2.0
"""Who may watch a polling process: pollgap, and what its user would run instead. Each tells, when it
is over, which of the injected disturbances its own output explains.

A tool explains one when its output names the culprit with about its time: as pollgap's report is
judged (tests/accuracy), for pollgap; for the others when what they print of that kind and name has at
least four fifths of it. A person must still lay their lines side by side: that is not held against
them.
"""
import collections
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(HERE, "../accuracy")]
import intervals  # noqa: E402  (as the next ones: found through the line above)
import judge  # noqa: E402
import session  # noqa: E402

# From start to end (CLOCK_MONOTONIC nanoseconds) something of that kind and name had the core, or the
# thread was off it: ran, irq, softirq, syscall, off (name: the state), late.
Event = collections.namedtuple("Event", "kind start end name")

SHARE = 0.8
HRTIMER = 8
READY_S = 120


def poll_function(programs, pid):
    """The file and file offset of the poll function that the target uses, as pollgap finds it."""
    found = subprocess.run([programs.pollgap, "sites", "--pid", str(pid), "--json"], check=True,
                           capture_output=True, text=True)
    for site in json.loads(found.stdout)["sites"]:
        if site["role"] == "poll_cq":
            return site["module"], int(site["function_offset"], 16)
    raise RuntimeError(f"pollgap sites found no poll_cq:\n{found.stdout}")


def virtual_address(path, offset):
    """Where an ELF file says that a file offset is loaded: bpftrace wants this, not the offset."""
    with open(path, "rb") as file:
        header = file.read(64)
        table, size, entries = struct.unpack("<Q", header[32:40])[0], *struct.unpack("<HH", header[54:58])
        for number in range(entries):
            file.seek(table + number * size)
            kind, _, at, address, _, length = struct.unpack("<IIQQQQ", file.read(40))
            if kind == 1 and at <= offset < at + length:  # PT_LOAD
                return address + offset - at
    raise RuntimeError(f"{path} loads nothing from offset {offset:#x}")


def wanted(injected):
    """The events that would explain it: (kind, name) of which one will do; none: nothing can."""
    culprit = injected.culprits[0]
    if injected.cause == "preemption":
        return [("ran", culprit.get("task", {}).get("comm", "kworker"))]
    if injected.cause == "hard_irq":
        return [("irq", culprit["kind"])]
    if injected.cause == "soft_irq":
        return [("softirq", HRTIMER)]
    if injected.cause == "stopped":
        return [("off", "T")]
    if "syscall" in culprit:
        return [("syscall", culprit["syscall"])]
    if injected.cause == "late_completion":
        return [("late", "")]
    return []


def explained_by(injected, events):
    span = injected.span
    for kind, name in wanted(injected):
        parts = [(event.start, event.end) for event in events if event.kind == kind and (
            event.name == name or kind == "ran" and event.name.startswith(name))]
        if intervals.covered(span, parts) >= SHARE * injected.spent:
            return True
    return False


class CannotRun(Exception):
    """A tool that is not pollgap does not run on this machine; the text says why."""


class Watcher:
    """A context in which the target is watched. `children`: its processes, by which it is charged."""
    name = ""
    needs = ()  # programs

    def __init__(self, programs, target, tid, cpu, directory):
        self.programs, self.target, self.tid, self.cpu = programs, target, tid, cpu
        self.directory = directory
        self.children = []

    def path(self, name):
        return os.path.join(self.directory, name)

    def start(self):
        pass

    def stop(self):
        """Ends it, so that all it has to say is written."""
        for child in self.children:
            session.stop(child, READY_S)

    def kill(self):
        for child in self.children:
            child.kill()

    def bytes_written(self):
        sizes = [os.path.getsize(self.path(name)) for name in os.listdir(self.directory)]
        return sum(sizes) + sum(len(child.text()) for child in self.children)

    def explains(self, injected, together):
        del injected, together
        return False

    def run(self, *command):
        child = session.Child(command, cwd=self.directory)
        self.children.append(child)
        return child

    @staticmethod
    def wait_for(child, pattern):
        try:
            child.wait_for(pattern, READY_S)
        except session.Timeout as error:
            raise CannotRun(str(error)) from None

    def let_start(self, seconds):
        """For programs that do not say when they have begun."""
        time.sleep(seconds)
        for child in self.children:
            if not child.running():
                raise CannotRun(f"{child.command[0]} ended: {child.text()}")


class Nothing(Watcher):
    name = "nothing"


class Pollgap(Watcher):
    name, timing = "pollgap", "uprobe"

    def start(self):
        agent = self.programs.start_agent(self.target.pid, "--timing", self.timing, "--output",
                                          self.path("report.json"))
        self.children.append(agent)
        agent.wait_for(r"(?i)\battached\b", READY_S)

    def explains(self, injected, together):
        with open(self.path("report.json"), encoding="utf-8") as file:
            report = json.load(file)
        return judge.judge_injected(injected, report["gaps"], self.target.pid,
                                    together).verdict == "right"


class PollgapReturn(Pollgap):
    name, timing = "pollgap --timing return", "return"


class PollgapObserve(Pollgap):
    name, timing = "pollgap --timing observe", "observe"


# What somebody who knows bpftrace well would write. Times are bpf_ktime_get_ns, as the workload's.
BPFTRACE = """
uprobe:{probe} /tid == {tid}/ {{
  if (@entry && nsecs - @entry > 1000000) {{ printf("E gap %lld %lld x\\n", @entry, nsecs); }}
  @entry = nsecs;
}}
uretprobe:{probe} /tid == {tid}/ {{
  if (retval > 0) {{
    if (@hit && nsecs - @hit > 1000000) {{ printf("E late %lld %lld x\\n", @hit, nsecs); }}
    @hit = nsecs;
  }}
}}
tracepoint:sched:sched_switch /cpu == {cpu}/ {{
  if (@since && nsecs - @since > 100000 && args->prev_pid != {tid}) {{
    printf("E ran %lld %lld %s\\n", @since, nsecs, args->prev_comm);
  }}
  @since = nsecs;
  if (args->prev_pid == {tid}) {{ @off = nsecs; @state = args->prev_state; }}
  if (args->next_pid == {tid} && @off && nsecs - @off > 100000) {{
    printf("E off %lld %lld %d\\n", @off, nsecs, @state);
  }}
}}
tracepoint:irq:irq_handler_entry /cpu == {cpu}/ {{ @irq = nsecs; }}
tracepoint:irq:irq_handler_exit /cpu == {cpu} && @irq && nsecs - @irq > 100000/ {{
  printf("E irq %lld %lld device\\n", @irq, nsecs);
}}
tracepoint:irq_vectors:call_function_single_entry /cpu == {cpu}/ {{ @call = nsecs; }}
tracepoint:irq_vectors:call_function_single_exit /cpu == {cpu} && @call && nsecs - @call > 100000/ {{
  printf("E irq %lld %lld call_function_single\\n", @call, nsecs);
}}
tracepoint:irq:softirq_entry /cpu == {cpu}/ {{ @soft = nsecs; }}
tracepoint:irq:softirq_exit /cpu == {cpu} && @soft && nsecs - @soft > 100000/ {{
  printf("E softirq %lld %lld %d\\n", @soft, nsecs, args->vec);
}}
tracepoint:raw_syscalls:sys_enter /tid == {tid}/ {{ @call_at = nsecs; @call_nr = args->id; }}
tracepoint:raw_syscalls:sys_exit /tid == {tid} && @call_at && nsecs - @call_at > 100000/ {{
  printf("E syscall %lld %lld %d\\n", @call_at, nsecs, @call_nr);
}}
BEGIN {{ printf("ready\\n"); }}
"""
STATES = {1: "S", 2: "D", 4: "T", 8: "t"}
SYSCALLS = {0: "read", 202: "futex", 230: "clock_nanosleep"}


class Bpftrace(Watcher):
    name, needs = "bpftrace", ("bpftrace",)

    def start(self):
        module, offset = poll_function(self.programs, self.target.pid)
        script = BPFTRACE.format(probe=f"{module}:{virtual_address(module, offset):#x}", tid=self.tid,
                                 cpu=self.cpu)
        tracer = self.run("bpftrace", "--unsafe", "-e", script)
        self.wait_for(tracer, "^ready$")
        self.let_start(1)  # it says so before the last probe is in place

    def events(self):
        for _, _, text in self.children[0].lines:
            if (words := text.split(None, 4)) and words[0] == "E":
                kind, start, end, name = words[1], int(words[2]), int(words[3]), words[4]
                named = {"off": lambda state: STATES.get(int(state), "?"), "softirq": int,
                         "syscall": lambda number: SYSCALLS.get(int(number), number),
                         "late": lambda _: ""}.get(kind, str)
                yield Event(kind, start, end, named(name))

    def explains(self, injected, together):
        return explained_by(injected, list(self.events()))


class LibbpfTools(Watcher):
    """funclatency is not among them: it takes no function without a symbol."""
    name, needs = "runqslower, hardirqs, softirqs", ("runqslower", "hardirqs", "softirqs")

    def start(self):
        self.wait_for(self.run("stdbuf", "-oL", "runqslower", "-P", "-t", self.tid, "1000"), "^TIME")
        for tool in ("hardirqs", "softirqs"):
            self.wait_for(self.run("stdbuf", "-oL", tool, "-d", "-T", "1"), "^Tracing")

    def explains(self, injected, together):
        slower, _, softirqs = self.children
        length_us = injected.spent / 1000
        if injected.cause == "preemption":
            comm = injected.culprits[0].get("task", {}).get("comm", "kworker")
            return any(comm in text and abs(float(text.split()[3]) - length_us) < 0.2 * length_us
                       for _, _, text in slower.lines if re.match(r"\d\d:", text))
        if injected.cause == "soft_irq":
            section = ""
            for _, _, text in softirqs.lines:
                section = text.split(" = ")[1] if text.startswith("softirq = ") else section
                row = re.match(r"\s*(\d+) -> (\d+)\s*: ([1-9]\d*)", text)
                if row and section == "hrtimer" and int(row[1]) <= length_us <= int(row[2]) + 1:
                    return True
        return False


# The previous task, its PID and state; the next, its PID.
SWITCH = re.compile(r"prev_comm=(.*) prev_pid=(\d+) .*prev_state=(\S+) ==> next_comm=(.*) next_pid=(\d+)")


def script_events(text, tid, cpu):
    """Events of the lines of `perf script` or tracefs: "COMM PID [CPU] ... SECONDS: EVENT: ..." """
    line = re.compile(r"[ -](\d+) +\[0*(\d+)\]\s+(?:[\w.]+\s+)?(\d+\.\d+): +(?:\w+:)?(\w+): *(.*)$")
    since, state, opened = None, "", {}
    for text_line in text.splitlines():
        if not (found := line.search(text_line)) or int(found[2]) != cpu:
            continue
        by_target, at, event, rest = int(found[1]) == tid, round(float(found[3]) * 1e9), found[4], found[5]
        if by_target and event != "sched_switch" and "off" in opened:  # it came back without a trace
            yield Event("off", opened.pop("off"), at, state)
        if event == "sched_switch":
            switch = SWITCH.search(rest)
            if not switch:
                continue
            if since is not None and int(switch[2]) != tid:
                yield Event("ran", since, at, switch[1].strip())
            if int(switch[2]) == tid:
                opened["off"], state = at, switch[3][0]
            if int(switch[5]) == tid and "off" in opened:
                yield Event("off", opened.pop("off"), at, state)
            since = at
        elif event.endswith("_entry"):
            opened[event[:-6]] = (at, rest)
        elif event.endswith("_exit") and event[:-5] in opened:
            start, what = opened.pop(event[:-5])
            if event == "softirq_exit":
                yield Event("softirq", start, at, int(re.search(r"vec=(\d+)", what)[1]))
            else:
                yield Event("irq", start, at,
                            "device" if event.startswith("irq_handler") else event[:-5])
        elif event == "sys_enter" and by_target:
            opened["syscall"] = (at, rest)
        elif event == "sys_exit" and by_target and "syscall" in opened:
            start, what = opened.pop("syscall")
            number = int(re.search(r"NR (\d+)", what)[1])
            yield Event("syscall", start, at, SYSCALLS.get(number, str(number)))


class Perf(Watcher):
    name, needs = "perf sched record, perf trace", ("perf",)

    def start(self):
        self.run("perf", "sched", "record", "-k", "CLOCK_MONOTONIC", "-C", str(self.cpu), "-o",
                 self.path("sched.data"))
        self.run("perf", "trace", "-p", str(self.target.pid), "-o", self.path("trace.txt"))
        self.let_start(3)

    def explains(self, injected, together):
        if "syscall" in injected.culprits[0]:
            length_ms = injected.spent / 1e6
            with open(self.path("trace.txt"), encoding="utf-8", errors="replace") as file:
                calls = re.findall(r"\( *([\d.]+) ms\): [^(]*?(\w+)\(", file.read())
            return any(name == injected.culprits[0]["syscall"]
                       and abs(float(took) - length_ms) < (1 - SHARE) * length_ms
                       for took, name in calls)
        if not hasattr(self, "found"):
            script = subprocess.run(["perf", "script", "--ns", "-i", self.path("sched.data")], check=False,
                                    capture_output=True, text=True, errors="replace")
            self.found = list(script_events(script.stdout, self.tid, self.cpu))
        return explained_by(injected, self.found)


class Tracefs(Watcher):
    """All events that pollgap has, but for the polls: a person must know when the gaps were. In an
    instance of tracefs of its own, as trace-cmd makes it; trace-cmd itself does not run everywhere."""
    name = "tracefs events (ftrace)"
    EVENTS = ("sched/sched_switch", "sched/sched_waking", "irq", "irq_vectors", "raw_syscalls",
              "exceptions")
    INSTANCE = "/sys/kernel/tracing/instances/pollgap-bench"

    def write(self, name, text):
        with open(os.path.join(self.INSTANCE, name), "w", encoding="ascii") as file:
            file.write(text)

    def start(self):
        self.kill()
        try:
            os.mkdir(self.INSTANCE)
        except OSError as error:
            raise CannotRun(f"{error}: is tracefs mounted there?") from None
        self.write("trace_clock", "mono")
        self.write("tracing_cpumask", f"{1 << self.cpu:x}")
        self.write("buffer_size_kb", "65536")
        for event in self.EVENTS:
            self.write(f"events/{event}/enable", "1")

    def stop(self):
        self.write("tracing_on", "0")
        with open(f"{self.INSTANCE}/per_cpu/cpu{self.cpu}/trace", encoding="utf-8", errors="replace") as trace, \
                open(self.path("trace.txt"), "w", encoding="utf-8") as copy:
            text = trace.read()
            copy.write(text)
        self.found = list(script_events(text, self.tid, self.cpu))
        self.kill()

    def kill(self):
        if os.path.isdir(self.INSTANCE):
            os.rmdir(self.INSTANCE)

    def explains(self, injected, together):
        return explained_by(injected, self.found)


WATCHERS = (Nothing, Pollgap, PollgapReturn, PollgapObserve, Bpftrace, LibbpfTools, Perf, Tracefs)


def available():
    """Those that can run here; what is missing is said."""
    found = []
    for watcher in WATCHERS:
        missing = [program for program in watcher.needs if not shutil.which(program)]
        if missing:
            print(f"SKIPPED {watcher.name}: not installed: {', '.join(missing)}", flush=True)
        else:
            found.append(watcher)
    return found
