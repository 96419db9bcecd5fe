/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The counters, one copy for each vCPU. Only that vCPU's thread writes its copy, so an access takes
 * no lock and executes no locked instruction; readers sum the copies with relaxed loads.
 *
 * A reader cannot reset counters that another thread writes, so it raises the epoch instead: each
 * vCPU clears its own copy at its next access, and until then readers see that the copy belongs to
 * an older epoch and skip it.
 */
#ifndef COUNTS_H
#define COUNTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cache.h"
#include "layout.h"
#include "modelled.h"

enum access_kind { ACCESS_LOAD, ACCESS_STORE, ACCESS_LOAD_MISS, ACCESS_STORE_MISS, ACCESS_KINDS };

/* A page by its virtual and its physical address, both in one key: after a page has moved, its
 * misses can still be found together by virtual page, and separately by the node that served
 * them. */
#define PAGE_SHIFT 12
#define PAGE_PFN_BITS 28
#define PAGE_VIRT_BITS 35
#define PAGE_VIRT_KERNEL ((1ULL << PAGE_VIRT_BITS) - 1)	/* any address in the kernel's half */
#define PAGE_PROBES 64					/* slots looked at before a miss is given up as lost */

struct page_count {
	_Atomic uint64_t key;	/* (virtual page << 28 | PFN) + 1; 0 is empty */
	_Atomic uint32_t load_misses;
	_Atomic uint32_t store_misses;
};

/*
 * The lines that this vCPU used last, as a level-1 cache would hold them: 32 KiB, indexed by
 * virtual address, direct-mapped. A line that is found here is a hit and needs no physical address,
 * whose lookup costs most. A page that moves may leave stale lines behind: at most all 512, and
 * only until others replace them.
 */
#define NEAR_LINES 512
#define NEAR_LINE_SHIFT 6
#define NEAR_LINE_BYTES (1U << NEAR_LINE_SHIFT)
#define NEAR_NODE_BITS 4
#define NEAR_BYTES 8	/* the widest access that is looked for */

struct near {
	uint64_t line[NEAR_LINES];	/* ((virtual line + 1) << 4 | node); 0 is empty */
};

struct counts {
	_Atomic uint32_t epoch;
	struct near near;
	_Atomic uint64_t node[LAYOUT_NODES_MAX][ACCESS_KINDS];
	_Atomic uint64_t io;		/* accesses to devices */
	_Atomic uint64_t outside;	/* accesses to memory of no node: firmware, video */
	_Atomic uint64_t unresolved;	/* QEMU could not say where the access went */
	_Atomic uint64_t pages;		/* slots of `table` in use */
	_Atomic uint64_t pages_lost;	/* misses that found no slot; they are in `node` all the same */
	_Atomic uint64_t instructions;	/* of user space, whatever the program */
	_Atomic uint64_t program;	/* those of the program that was named */
	uint64_t pending;		/* instructions since the last access: the next access shows whose they are */
	uint64_t owed_ns;		/* latency that the vCPU has still to wait for */
	struct modelled_waits waits;	/* its modelled time, but for the instructions */
	struct page_count *table;
	uint64_t slots;			/* a power of two */
};

/* Sums over all vCPUs. */
struct totals {
	uint64_t node[LAYOUT_NODES_MAX][ACCESS_KINDS];
	uint64_t io, outside, unresolved, pages, pages_lost, instructions, program;
	/* Modelled time: of all misses, and of those that are counted. */
	uint64_t waited_ps, reference_ps, counted_reference_ps;
	uint64_t latency_ps[LAYOUT_NODES_MAX], queueing_ps[LAYOUT_NODES_MAX];
};

/* One vCPU's counters, with a page table of `slots` slots; NULL if there is no memory. */
struct counts *counts_new(uint64_t slots);

/* Clears the counters and joins `epoch`. Only by the vCPU that owns them. */
void counts_restart(struct counts *counts, uint32_t epoch);

/* Counts one miss on a page. Only by the vCPU that owns the counters. */
void counts_page(struct counts *counts, uint64_t vaddr, uint64_t guest_physical, bool store);

/* Adds one vCPU's counters of `epoch` to the totals. */
void counts_add(struct totals *totals, const struct counts *counts, uint32_t epoch);

/* Writes one vCPU's page records of `epoch`; returns how many, or -1 on a write error (errno). */
int64_t counts_write_pages(FILE *out, const struct counts *counts, uint32_t epoch);

/* The node of an access whose line is near, or -1. An access that may reach into the next line is
 * never taken for near. */
static inline int near_find(const struct near *near, uint64_t vaddr)
{
	uint64_t line = vaddr >> NEAR_LINE_SHIFT;
	uint64_t held = near->line[line % NEAR_LINES];

	if (held >> NEAR_NODE_BITS != line + 1 || vaddr % NEAR_LINE_BYTES > NEAR_LINE_BYTES - NEAR_BYTES)
		return -1;
	return (int)(held % (1U << NEAR_NODE_BITS));
}

static inline void near_remember(struct near *near, uint64_t vaddr, unsigned int node)
{
	uint64_t line = vaddr >> NEAR_LINE_SHIFT;

	near->line[line % NEAR_LINES] = (line + 1) << NEAR_NODE_BITS | node;
}

/* For a counter that only the calling thread writes: no locked instruction. */
static inline void bump_by(_Atomic uint64_t *counter, uint64_t by)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + by, memory_order_relaxed);
}

static inline void bump(_Atomic uint64_t *counter)
{
	bump_by(counter, 1);
}

#endif
