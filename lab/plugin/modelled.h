/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Modelled time: how long the guest's programs would have taken on a machine whose nodes are as
 * fast as the settings say. A vCPU's clock advances by CPI for each instruction of user space, and
 * for each miss by the latency of the node that serves it plus the time it queues for that node's
 * bandwidth. It stands still while the vCPU is idle or in the kernel. No miss overlaps another: to
 * model a processor that overlaps several misses, set the latency that remains of each.
 *
 * Queueing follows the simulator (crates/sim/src/machine/bandwidth.rs), so that the two can be
 * compared: a miss takes the node's latency times a factor, 1 / (1 - u / 2) while the use u of its
 * bandwidth is below 90 % (half of the time in an M/D/1 queue), and above that whatever keeps the
 * use there. At each look the factor moves half of the way to its target.
 *
 * A queue of single misses ("busy until") would be wrong here, because the clocks drift apart: the
 * emulator takes ten times as long for a modelled ns of instructions as for one of misses, an idle
 * vCPU's clock stands still, and the host stops vCPUs as it likes. A vCPU whose clock is behind
 * would wait in a queue that was served long ago; one that is ahead would find the node idle. The
 * demand of a vCPU is therefore computed so that it does not depend on where its clock stands: for
 * each millisecond of its own clock, the mix of instructions and misses by node is kept, from which
 * its demand on each node follows at any factor. The use of a node is the sum over the vCPUs, each
 * weighted by the host's time in which it was not idle, relative to the vCPU that was busy longest:
 * as if all busy vCPUs ran at once, whether or not the host lets them. The same factor applies to
 * all, so that each gets a share of a saturated node in proportion to its demand. Within a
 * millisecond, more than the bandwidth may pass.
 *
 * A second clock runs beside it: the same instructions and misses, with all misses served by node
 * 0, at its latency and with the queueing that all of them would cause there. It is the reference
 * against which a slowdown is computed.
 *
 * Both lie in memory that the guest can map, in the sampler's file (sampler.h says where): one page
 * with struct modelled_head, followed by a struct modelled_shown for each vCPU. Every number there
 * is written whole; those of one vCPU may be one miss apart. What the guest writes there is never
 * read.
 */
#ifndef MODELLED_H
#define MODELLED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "layout.h"

#define MODELLED_MAGIC "TLCTIME1"
#define MODELLED_PAGE 4096
/* From one vCPU's numbers to the next's. */
#define MODELLED_SHOWN_BYTES 512
/* Bounds of the settings, so that no product overflows. */
#define MODELLED_CPI_NS_MAX 1000
#define MODELLED_LATENCY_NS_MAX 1000000
#define MODELLED_GBPS_MAX 1000000

/* The modelled machine. */
struct modelled_settings {
	uint64_t cpi_fs;				/* of an instruction, femtoseconds */
	uint64_t latency_ps[LAYOUT_NODES_MAX];		/* of a miss, without queueing; not 0 */
	uint64_t bytes_per_s[LAYOUT_NODES_MAX];		/* 0: whatever is asked for */
};

struct modelled_head {
	char magic[8];
	uint32_t vcpus;
	uint32_t nodes;
	uint32_t vcpu_bytes;		/* MODELLED_SHOWN_BYTES */
	uint32_t reserved;
	_Atomic uint64_t epoch;		/* a vCPU that shows another one has counted nothing yet */
	_Atomic uint64_t on;		/* 0: time is not modelled */
	_Atomic uint64_t cpi_fs;
	_Atomic uint64_t latency_ps[LAYOUT_NODES_MAX];
	_Atomic uint64_t bytes_per_s[LAYOUT_NODES_MAX];
};

struct modelled_shown {
	_Atomic uint64_t epoch;
	_Atomic uint64_t instructions;
	_Atomic uint64_t waited_ps;
	_Atomic uint64_t reference_ps;
	_Atomic uint64_t latency_ps[LAYOUT_NODES_MAX];
	_Atomic uint64_t queueing_ps[LAYOUT_NODES_MAX];
};

/* How long one vCPU waited for memory. Only its own thread writes. */
struct modelled_waits {
	_Atomic uint64_t waited_ps;	/* latency and queueing of all misses */
	_Atomic uint64_t reference_ps;	/* the same had node 0 served them */
	_Atomic uint64_t lines[LAYOUT_NODES_MAX];
	_Atomic uint64_t latency_ps[LAYOUT_NODES_MAX];
	_Atomic uint64_t queueing_ps[LAYOUT_NODES_MAX];
	/* The part of these that belongs to the misses that the filter lets through. */
	_Atomic uint64_t counted_reference_ps;
	_Atomic uint64_t counted_latency_ps[LAYOUT_NODES_MAX];
	_Atomic uint64_t counted_queueing_ps[LAYOUT_NODES_MAX];
	struct modelled_shown *shown;	/* where the guest sees it; NULL: nowhere */
};

struct counts;
struct modelled_mark;

struct modelled {
	_Atomic bool on;
	_Atomic uint64_t cpi_fs;
	_Atomic uint64_t latency_ps[LAYOUT_NODES_MAX];
	_Atomic uint64_t queueing_ps[LAYOUT_NODES_MAX];	/* of a miss, now */
	_Atomic uint64_t reference_ps;			/* of a miss if all were node 0's: latency and queueing, now */
	unsigned int vcpus;
	unsigned int nodes;
	uint32_t line_bytes;
	struct modelled_head *head;			/* NULL: the guest sees nothing */
	/* How loaded the nodes are; protected by the lock. */
	pthread_mutex_t lock;
	struct modelled_settings settings;
	double factor[LAYOUT_NODES_MAX];
	double reference_factor;
	uint32_t epoch;
	struct modelled_mark *marks;			/* what each vCPU does */
	uint64_t looked_ns;				/* the host's time of the last look */
};

/* Bytes that the numbers of `vcpus` vCPUs take, in whole pages. */
uint64_t modelled_bytes(unsigned int vcpus);

/* Sets the model up, with time not modelled. False if there is no memory. */
bool modelled_init(struct modelled *modelled, unsigned int vcpus, unsigned int nodes, uint32_t line_bytes);

/* Shows the vCPUs' clocks in `memory`, modelled_bytes() of zeroes, from epoch on. */
void modelled_show(struct modelled *modelled, struct counts *const *vcpus, uint32_t epoch, void *memory);

/* Parses ns per instruction, then for each of `nodes` nodes ns per miss and, after a colon, its
 * bandwidth in GB/s, as in "0.333 100:200 350". */
bool modelled_parse(struct modelled_settings *settings, unsigned int nodes, const char *text);

/*
 * From `epoch` on, which must not be known to the vCPUs yet, all clocks start at 0, all nodes are
 * idle, and time is modelled with these settings, or not at all if `on` is false. `host_ns` is the
 * host's CLOCK_MONOTONIC.
 */
void modelled_set(struct modelled *modelled, bool on, const struct modelled_settings *settings, uint32_t epoch, uint64_t host_ns);

/* The same with the settings as they are. */
void modelled_reset(struct modelled *modelled, uint32_t epoch, uint64_t host_ns);

/* Clears what the vCPU shows, which belongs to another epoch now. Only by the vCPU that owns it. */
void modelled_shown_restart(struct modelled_shown *shown, uint32_t epoch);

/* Notes that a vCPU becomes idle, or stops being idle, at this moment of the host's time. Only by
 * the vCPU itself. */
void modelled_idle(struct modelled *modelled, unsigned int vcpu, uint64_t host_ns);
void modelled_resume(struct modelled *modelled, unsigned int vcpu, uint64_t host_ns);

/* Takes what the vCPU has done since its last look and computes how loaded the nodes are, unless
 * another vCPU is doing so or `epoch` is over. Only by the vCPU itself. */
void modelled_look(struct modelled *modelled, const struct counts *own, unsigned int vcpu, uint32_t epoch, uint64_t host_ns);

/* Takes account of one miss that `node` serves; `counted` if the filter lets it through. True if it
 * is time for a look. Only by the vCPU itself. */
bool modelled_miss(struct modelled *modelled, struct counts *own, unsigned int vcpu, unsigned int node, bool counted);

static inline bool modelled_is_on(const struct modelled *modelled)
{
	return atomic_load_explicit(&modelled->on, memory_order_relaxed);
}

#endif
