/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The kernel types that the programs touch, cut down to the fields they read. CO-RE finds each
 * field by name in the running kernel's BTF, so order, size and everything left out do not matter.
 */
#ifndef THERMOCLINE_KERNEL_H
#define THERMOCLINE_KERNEL_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

typedef int pid_t;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
};

struct task_struct {
	pid_t pid;
	pid_t tgid;
	struct signal_struct *signal;
};

struct mm_struct {
	struct task_struct *owner;
};

struct vm_area_struct {
	struct mm_struct *vm_mm;
};

typedef struct {
	unsigned long pte;
} pte_t;

struct vm_fault {
	struct vm_area_struct *vma;
	pte_t orig_pte;
	pte_t *pte;
};

struct folio {
	unsigned long flags;
	unsigned long _flags_1;
};

/* Linux 6.1 to 6.5 keep a folio's order in a field of its own. */
struct folio___ordered {
	unsigned char _folio_order;
};

/* Earlier kernels keep it in the second page of a large folio. */
struct page {
	unsigned long flags;
	unsigned char compound_order;
};

/* From Linux 6.18 on the flags are wrapped in a struct. */
struct memdesc_flags___wrapped {
	unsigned long f;
};

struct folio___wrapped {
	struct memdesc_flags___wrapped flags;
	unsigned long _flags_1;
};

#pragma clang attribute pop

enum pageflags {
	PG_head = 6,
};

#endif
