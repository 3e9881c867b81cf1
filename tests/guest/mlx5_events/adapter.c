// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the mlx5 driver would do with an adapter, without one: its tracepoints and its interrupt.
// Loaded instead of mlx5_core. Writes to /sys/module/mlx5_events/parameters/fire make it so:
//
//   cmd          mlx5:mlx5_cmd, a firmware command that failed
//   fw           mlx5:mlx5_fw, a message of the firmware
//   flood N      that N times, as fast as it goes
//   irq CPU US   the interrupt of completion vector 3 runs on that CPU for so many microseconds
//
// and, which no driver does, by smi.c:
//
//   smi CPU US       all CPUs are stopped by a system management interrupt for so long
//   lone-smi CPU US  that CPU alone is
#include <linux/errno.h>
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/irqdesc.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/timekeeping.h>

#include "smi.h"

#define CREATE_TRACE_POINTS
#include "mlx5_trace.h"

static int irq = -1;
static unsigned int handler_us;

/* By the clock: what udelay() takes is another time in a guest whose clock counts instructions. */
static irqreturn_t handle(int number, void *cookie) {
  u64 until_ns = ktime_get_mono_fast_ns() + handler_us * 1000ULL;
  while (ktime_get_mono_fast_ns() < until_ns) cpu_relax();
  return IRQ_HANDLED;
}

/* In a hard interrupt, as the controller would. */
static void take_interrupt(void *unused) { generic_handle_irq(irq); }

static void tell(void) {
  trace_mlx5_fw("0000:3b:00.0", 0x123456789abULL, true, 0x1c, "QP 0x4f: retries exceeded\n");
}

static int fire(const char *text, const struct kernel_param *parameter) {
  unsigned int cpu, us, count;
  if (sysfs_streq(text, "cmd")) {
    trace_mlx5_cmd("CREATE_QP", 0x500, 0x7, "bad parameter", 0x3, 0x3f2a51, -22);
  } else if (sysfs_streq(text, "fw")) {
    tell();
  } else if (sscanf(text, "flood %u", &count) == 1 && count <= 100000) {
    while (count--) tell();
  } else if (sscanf(text, "irq %u %u", &cpu, &us) == 2 && us <= 100000) {
    handler_us = us;
    return smp_call_function_single(cpu, take_interrupt, NULL, 1);
  } else if (sscanf(text, "smi %u %u", &cpu, &us) == 2) {
    return take_by_smi(cpu, us, true);
  } else if (sscanf(text, "lone-smi %u %u", &cpu, &us) == 2) {
    return take_by_smi(cpu, us, false);
  } else {
    return -EINVAL;
  }
  return 0;
}

static const struct kernel_param_ops fire_ops = {.set = fire};
module_param_cb(fire, &fire_ops, NULL, 0200);

static int __init begin(void) {
  int failed;
  /* Without an owner: irq_alloc_desc() would name this module, which its own handler would then
   * hold. */
  irq = __irq_alloc_descs(-1, 0, 1, NUMA_NO_NODE, NULL, NULL);
  if (irq < 0) return irq;
  irq_set_chip_and_handler(irq, &dummy_irq_chip, handle_simple_irq);
  failed = request_irq(irq, handle, 0, "mlx5_comp3@pci:0000:3b:00.0", &irq);
  if (failed) irq_free_desc(irq);
  return failed;
}

static void __exit end(void) {
  free_irq(irq, &irq);
  irq_free_desc(irq);
}

module_init(begin);
module_exit(end);
MODULE_LICENSE("Dual BSD/GPL");
MODULE_DESCRIPTION("mlx5 tracepoints and interrupt without an adapter, for tests");
