/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel types that pollgap's programs read, and of each only the members they read. libbpf
 * relocates every access against the running kernel's BTF (preserve_access_index), so member order
 * and size here mean nothing, and a build host needs no BTF of its own. What differs between
 * kernels is a ___flavor (libbpf ignores everything from the three underscores on), tested with
 * bpf_core_field_exists before use.
 */
#ifndef POLLGAP_CORE_TYPES_H
#define POLLGAP_CORE_TYPES_H

/* Tells libbpf's bpf_tracing.h that struct pt_regs has the kernel's member names. */
#define __VMLINUX_H__

#include <linux/types.h>

typedef _Bool bool;
#define true 1
#define false 0
typedef __s8 s8;
typedef __u8 u8;
typedef __s16 s16;
typedef __u16 u16;
typedef __s32 s32;
typedef __u32 u32;
typedef __s64 s64;
typedef __u64 u64;

/* Values from include/uapi/linux/bpf.h, kept out of this header's way by its enum names. */
#include <linux/bpf.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
  unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax;
  unsigned long ip;
  unsigned long cs;
  unsigned long flags;
  unsigned long sp;
  unsigned long ss;
};
#endif

struct kernfs_node {
  u64 id;
};

struct cgroup {
  struct kernfs_node *kn;
};

struct cgroup_subsys_state {
  struct cgroup *cgroup;
};

struct cfs_bandwidth {
  s64 period; /* ktime_t */
  u64 quota;  /* ~0: none */
};

struct rq {
  u64 clock;              /* when the scheduler last looked at the time, on its own clock */
  u64 prev_steal_time_rq; /* the steal clock then; with CONFIG_PARAVIRT_TIME_ACCOUNTING */
};

struct cfs_rq {
  struct rq *rq;      /* with CONFIG_FAIR_GROUP_SCHED */
  int throttle_count; /* > 0: it or an ancestor is throttled */
};

struct rt_bandwidth {
  s64 rt_period; /* ktime_t */
  u64 rt_runtime;
};

struct task_group {
  struct cgroup_subsys_state css;
  struct task_group *parent;
  struct cfs_bandwidth cfs_bandwidth;
  struct rt_bandwidth rt_bandwidth; /* with CONFIG_RT_GROUP_SCHED */
};

struct sched_entity {
  struct cfs_rq *cfs_rq;
};

struct rt_rq {
  int rt_throttled;
};

struct sched_rt_entity {
  struct rt_rq *rt_rq; /* with CONFIG_RT_GROUP_SCHED */
};

struct thread_info {
  u32 cpu; /* x86: since 5.16 */
};

struct task_struct {
  struct thread_info thread_info;
  int pid;
  int tgid;
  unsigned int flags;
  int prio;
  unsigned int policy;
  unsigned int __state; /* since 5.14 */
  unsigned long jobctl;
  struct sched_entity se;
  struct sched_rt_entity rt;
  struct task_group *sched_task_group;
  char comm[16];
};

struct task_struct___before_5_14 {
  long state;
};

/* Since 6.18 a task throttles itself on its way to user mode (throttle_cfs_rq_work). */
struct task_struct___since_6_18 {
  bool throttled;
};

/* Since 6.8 a task that the deadline server picked points at it. */
struct task_struct___since_6_8 {
  void *dl_server;
};

/* Before 5.16 on x86. */
struct task_struct___before_5_16 {
  unsigned int cpu;
};

struct irqaction {
  const char *name;
};

struct kvm_steal_time {
  u64 steal; /* nanoseconds, updated by the hypervisor when it runs the vCPU again */
};

struct work_struct;
typedef void (*work_func_t)(struct work_struct *work);
struct work_struct {
  work_func_t func;
};

struct cpumask {
  unsigned long bits[1];
};

struct bpf_perf_event_data;
struct kernel_siginfo {
  int si_code;
};

#pragma clang attribute pop

#endif /* POLLGAP_CORE_TYPES_H */
