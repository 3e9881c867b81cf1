// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A real system management interrupt (SMI), in a QEMU guest.
//
// The firmware there (SeaBIOS) moves the first CPU's handler away and leaves the others' where they
// are after a reset: SMBASE is 0x30000, so that the handler is at 0x38000 (Intel's Software
// Developer's Manual 3, "SMBASE relocation"). That is ordinary memory here, and Linux leaves the
// first MiB alone. The handler spins until the TSC has advanced, and returns.
#include "smi.h"

#include <asm/apic.h>
#include <asm/page.h>
#include <asm/smp.h>
#include <asm/tsc.h>
#include <linux/delay.h>
#include <linux/errno.h>
#include <linux/irqflags.h>
#include <linux/kernel.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/timekeeping.h>
#include <linux/types.h>

#define HANDLER 0x38000
#define DONE 0x38800
#define LONGEST_US 100000

/* 16-bit code, CS at SMBASE. */
static const u8 handler[] = {
    0x0f, 0x31,                            /* rdtsc                       */
    0x66, 0x89, 0xc1,                      /* mov   ecx, eax              */
    0x66, 0x81, 0xc1, 0,    0,    0,    0, /* add   ecx, cycles           */
    0x0f, 0x31,                            /* 1: rdtsc                    */
    0x66, 0x29, 0xc8,                      /* sub   eax, ecx              */
    0x78, 0xf9,                            /* js    1b                    */
    0x2e, 0xc6, 0x06, 0x00, 0x88, 0x01,    /* mov   byte cs:[0x8800], 1   */
    0x0f, 0xaa,                            /* rsm                         */
};
#define CYCLES_AT 8

static void send(unsigned int cpu) {
  unsigned long flags;
  local_irq_save(flags);
  native_apic_mem_write(APIC_ICR2, SET_XAPIC_DEST_FIELD(per_cpu(x86_cpu_to_apicid, cpu)));
  native_apic_mem_write(APIC_ICR, APIC_DM_SMI | APIC_INT_ASSERT);
  local_irq_restore(flags);
}

static bool done(u64 until_ns) {
  return READ_ONCE(*(u8 *)__va(DONE)) || ktime_get_mono_fast_ns() > until_ns;
}

int take_by_smi(unsigned int cpu, unsigned int us, bool all) {
  u32 cycles = tsc_khz / 1000 * us;
  u64 until_ns = ktime_get_mono_fast_ns() + 2 * LONGEST_US * 1000ULL;
  unsigned long flags;
  if (us > LONGEST_US || cpu == 0 || cpu == raw_smp_processor_id() || !cpu_online(cpu) ||
      x2apic_enabled())
    return -EINVAL;
  memcpy(__va(HANDLER), handler, sizeof(handler));
  memcpy(__va(HANDLER) + CYCLES_AT, &cycles, sizeof(cycles));
  WRITE_ONCE(*(u8 *)__va(DONE), 0);
  if (all) {
    local_irq_save(flags);
    send(cpu);
    while (!done(until_ns)) cpu_relax();
    local_irq_restore(flags);
  } else {
    send(cpu);
    while (!done(until_ns)) usleep_range(200, 400);
  }
  return READ_ONCE(*(u8 *)__va(DONE)) ? 0 : -ETIMEDOUT;
}
