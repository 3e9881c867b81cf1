/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SMI_H
#define SMI_H

#include <linux/types.h>

/*
 * Has the CPU, another than this, taken by a system management interrupt for so many microseconds.
 * all: as firmware does it, so that no CPU goes on meanwhile; this one spins with interrupts off.
 */
int take_by_smi(unsigned int cpu, unsigned int us, bool all);

#endif /* SMI_H */
