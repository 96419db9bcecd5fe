/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the BPF programs and user space must agree on: the kinds of ring records, their layouts, the
 * limits of the maps. The Rust mirror is crates/linux/src/source/hintfault/decode.rs; a test there
 * reads this file and compares. Every record is 40 bytes, so that 64 KiB of ring hold 1365 of them
 * with the ring's own 8-byte headers.
 */
#ifndef THERMOCLINE_INTF_H
#define THERMOCLINE_INTF_H

#define TC_RECORD_BYTES 40

/* Kinds, the first byte of every record. */
#define TC_KIND_FAULT 1
#define TC_KIND_SCAN_BEGIN 2
#define TC_KIND_SCAN_TICK 3
#define TC_KIND_SCAN_END 4
#define TC_KIND_EXEC 5
#define TC_KIND_EXIT 6
#define TC_KIND_STAMP 7
#define TC_KIND_CLOCK 8

/* Bits of tc_fault.flags. */
#define TC_FAULT_PMD 1
/* pfn is the address of the struct page, from which user space computes the frame. */
#define TC_FAULT_PLACE 2

/* tc_fault.pfn on an architecture whose page table entries the programs cannot read. */
#define TC_PFN_UNKNOWN 0xffffffffffffffff

/* Limits of the scope maps. */
#define TC_TGIDS_MAX 65536
#define TC_CGROUPS_MAX 16
/* Processes whose lost faults are counted separately; the least recently used is evicted. */
#define TC_LOSSES_MAX 1024
/* Threads that can scan at the same time. */
#define TC_SCANNERS_MAX 4096

/* A hint fault, as the function that counts it is entered. */
struct tc_fault {
	__u8 kind;
	__u8 order;	/* of the folio */
	__u16 node;	/* of the folio */
	__u32 tgid;	/* owner of the address space */
	__u64 time_ns;	/* CLOCK_MONOTONIC */
	__u64 addr;	/* page-aligned; of the first page where a whole PMD faulted */
	__u64 pfn;	/* of the page at addr, or its place */
	__u32 tid;	/* the faulting thread */
	__u16 cpu;
	__u16 flags;
};

/* A range that a scan is about to mark (begin) or has marked (end), and a tick for each page table
 * that it visits in between. */
struct tc_scan {
	__u8 kind;
	__u8 pad[3];
	__u32 tgid;
	__u64 time_ns;
	__u64 start;	/* inclusive; 0 in a tick */
	__u64 end;	/* exclusive; 0 in a tick */
	__u32 tid;
	__u32 updated;	/* page table entries changed; only in an end record */
};

/* A process that replaced its address space or exited. */
struct tc_task {
	__u8 kind;
	__u8 pad[3];
	__u32 tgid;
	__u64 time_ns;
	__u64 unused[3];
};

/*
 * Lab tests only. The kernel's own stamp of the page in the previous fault record of the same
 * thread; or the clock from which the kernel takes its stamps, when a scan reached a page table
 * (clock, without a stamp).
 */
struct tc_stamp {
	__u8 kind;
	__u8 pad[3];
	__u32 tgid;
	__u64 time_ns;
	__u64 jiffies;
	__u64 stamp;	/* the bits that hold the access time, in milliseconds modulo their width */
	__u32 tid;
	__u32 pad2;
};

/* Whose faults are reported. Zeros: nobody's. */
struct tc_filter {
	__u32 all;			/* the whole machine */
	__u32 listed;			/* processes may be listed */
	__u32 exclusions;		/* processes may be excluded */
	__u32 nr_cgroups;		/* places of cgroups that may be set */
	__u32 nr_excluded_cgroups;
};

/* Per CPU. seen = filtered + submitted + dropped. */
struct tc_counters {
	__u64 seen;		/* hint faults that reached the program */
	__u64 filtered;		/* out of scope */
	__u64 submitted;	/* written to the ring */
	__u64 dropped;		/* lost because the ring was full */
	__u64 scans;		/* scan and task records written */
	__u64 scans_dropped;	/* scan and task records lost because the ring was full */
};

#endif
