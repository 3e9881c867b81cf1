# SPDX-License-Identifier: Apache-2.0
"""In the guest: the module mlx5_events, which has the tracepoints and the interrupt of an adapter's
driver."""
import subprocess
import time

NAME = "mlx5_events"
FIRE = f"/sys/module/{NAME}/parameters/fire"
ACTION, DEVICE, VECTOR = "mlx5_comp3@pci:0000:3b:00.0", "0000:3b:00.0", "completion 3"
PATIENCE_S = 300  # a guest on a busy machine is slow


def load(path):
    subprocess.run(["insmod", path], check=True)


def fire(text):
    with open(FIRE, "w", encoding="ascii") as file:
        file.write(text)


def references():
    """Who uses the module: each of its tracepoints that is attached to."""
    with open(f"/sys/module/{NAME}/refcnt", encoding="ascii") as file:
        return int(file.read())


def wait_until(condition):
    """Seconds until it holds; the test goes on, and fails by what it finds, where it never does."""
    began = time.monotonic()
    while not condition() and time.monotonic() < began + PATIENCE_S:
        time.sleep(0.05)
    return time.monotonic() - began


def unload():
    """Whether it could be: the kernel lets go of its tracepoints a moment after the agent's end."""
    wait_until(lambda: references() == 0)
    return subprocess.run(["rmmod", NAME], check=False).returncode == 0
