/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Two tracepoints of the mlx5 driver with the names, fields and order that its own have
 * (events/mlx5/mlx5_cmd/format and mlx5_fw/format of Debian's kernels 6.1 and 6.12).
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM mlx5

#if !defined(MLX5_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define MLX5_TRACE_H

#include <linux/tracepoint.h>
#include <linux/version.h>

#ifndef ASSIGN_TEXT
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
#define ASSIGN_TEXT(field, text) __assign_str(field)
#else
#define ASSIGN_TEXT(field, text) __assign_str(field, text)
#endif
#endif

/* In the order that kernel tracepoints have. */
/* clang-format off */
TRACE_EVENT(mlx5_cmd,
  TP_PROTO(const char *command_str, u16 opcode, u16 op_mod, const char *status_str, u8 status,
           u32 syndrome, int err),
  TP_ARGS(command_str, opcode, op_mod, status_str, status, syndrome, err),
  TP_STRUCT__entry(
    __string(command_str, command_str)
    __field(u16, opcode)
    __field(u16, op_mod)
    __string(status_str, status_str)
    __field(u8, status)
    __field(u32, syndrome)
    __field(int, err)
  ),
  TP_fast_assign(
    ASSIGN_TEXT(command_str, command_str);
    __entry->opcode = opcode;
    __entry->op_mod = op_mod;
    ASSIGN_TEXT(status_str, status_str);
    __entry->status = status;
    __entry->syndrome = syndrome;
    __entry->err = err;
  ),
  TP_printk("%s(0x%x) op_mod(0x%x) failed, status %s(0x%x), syndrome (0x%x), err(%d)",
            __get_str(command_str), __entry->opcode, __entry->op_mod, __get_str(status_str),
            __entry->status, __entry->syndrome, __entry->err)
);

TRACE_EVENT(mlx5_fw,
  TP_PROTO(const char *dev_name, u64 trace_timestamp, bool lost, u8 event_id, const char *msg),
  TP_ARGS(dev_name, trace_timestamp, lost, event_id, msg),
  TP_STRUCT__entry(
    __string(dev_name, dev_name)
    __field(u64, trace_timestamp)
    __field(bool, lost)
    __field(u8, event_id)
    __string(msg, msg)
  ),
  TP_fast_assign(
    ASSIGN_TEXT(dev_name, dev_name);
    __entry->trace_timestamp = trace_timestamp;
    __entry->lost = lost;
    __entry->event_id = event_id;
    ASSIGN_TEXT(msg, msg);
  ),
  TP_printk("%s [0x%llx] %d [0x%x] %s", __get_str(dev_name), __entry->trace_timestamp,
            __entry->lost, __entry->event_id, __get_str(msg))
);
/* clang-format on */

#endif /* MLX5_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE mlx5_trace
#include <trace/define_trace.h>
