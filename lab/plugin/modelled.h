/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Modelled time: what the guest's programs would have taken on a machine whose nodes are as fast as
 * they are told to be. A vCPU's clock goes on by CPI for each instruction of user space, and for
 * each miss by the latency of the node that serves it, and by what it queues for that node's
 * bandwidth. It stands still while the vCPU is idle or in the kernel. No miss overlaps another: who
 * wants a processor with several under way gives the latency that is left of each.
 *
 * Queueing is the simulator's (crates/sim/src/machine/bandwidth.rs), so that both can be compared:
 * a miss takes the node's latency times a factor, 1 / (1 - u / 2) while the use u of its bandwidth
 * is below 90 % (half of the time in an M/D/1 queue), and above that whatever holds the use there.
 * At each look the factor goes half of the way to where it should be.
 *
 * A queue of single misses, "busy until", would be wrong here. Clocks drift apart: the emulator
 * takes ten times as long for a modelled ns of instructions as for one of misses, an idle vCPU's
 * clock does not go at all, and the host stops vCPUs as it likes. A vCPU whose clock is behind
 * would wait in a queue that was served long ago, one that is ahead would find the node idle. What
 * a vCPU asks for does not depend on where its clock stands: of each millisecond of its own, the
 * mix of instructions and misses by node is kept, and from that follows what it asks of each node
 * at any factor. The use of a node is the sum over the vCPUs, each by the share of the host's time
 * in which it was not idle, compared with the one that was so longest: as if those that are at work
 * were so together, whether or not the host lets them. All pay the same factor, so that each gets
 * of a narrow node as it asks. Within a millisecond more may pass than the bandwidth.
 *
 * A second clock goes beside: the same instructions and misses with all misses served by node 0, at
 * its latency and with the queueing that all of them would find there. It is what the time is a
 * slowdown against.
 *
 * Both lie in memory that the guest can map, in the sampler's file (sampler.h tells where): one
 * page with struct modelled_head and behind it a struct modelled_shown for each vCPU. Every number
 * there is written whole; those of one vCPU may be one miss apart. What the guest writes there is
 * never read.
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
/* Bounds of what can be told, so that no product overflows. */
#define MODELLED_CPI_NS_MAX 1000
#define MODELLED_LATENCY_NS_MAX 1000000
#define MODELLED_GBPS_MAX 1000000

/* What the modelled machine is. */
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

/* What one vCPU waited for memory. Only its own thread writes. */
struct modelled_waits {
	_Atomic uint64_t waited_ps;	/* latency and queueing of all misses */
	_Atomic uint64_t reference_ps;	/* the same had node 0 served them */
	_Atomic uint64_t lines[LAYOUT_NODES_MAX];
	_Atomic uint64_t latency_ps[LAYOUT_NODES_MAX];
	_Atomic uint64_t queueing_ps[LAYOUT_NODES_MAX];
	/* Of these the misses that are counted, as the filter has it. */
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
	/* How loaded the nodes are, under the lock. */
	pthread_mutex_t lock;
	struct modelled_settings settings;
	double factor[LAYOUT_NODES_MAX];
	double reference_factor;
	uint32_t epoch;
	struct modelled_mark *marks;			/* what each vCPU does */
	uint64_t looked_ns;				/* the host's time of the last look */
};

/* Bytes that the numbers of so many vCPUs take, whole pages. */
uint64_t modelled_bytes(unsigned int vcpus);

/* Sets the model up, with time not modelled. False if there is no memory. */
bool modelled_init(struct modelled *modelled, unsigned int vcpus, unsigned int nodes, uint32_t line_bytes);

/* Shows the vCPUs' clocks in `memory`, modelled_bytes() of zeroes, from epoch on. */
void modelled_show(struct modelled *modelled, struct counts *const *vcpus, uint32_t epoch, void *memory);

/* Reads ns an instruction, and for each of so many nodes ns a miss and after a colon its bandwidth
 * in GB/s, as in "0.333 100:200 350". */
bool modelled_parse(struct modelled_settings *settings, unsigned int nodes, const char *text);

/*
 * From epoch on, which is yet to be made known to the vCPUs, all clocks begin at 0, all nodes are
 * idle, and time is modelled like this, or not at all if `on` is false. `host_ns` is the host's
 * CLOCK_MONOTONIC.
 */
void modelled_set(struct modelled *modelled, bool on, const struct modelled_settings *settings, uint32_t epoch, uint64_t host_ns);

/* The same with the settings as they are. */
void modelled_reset(struct modelled *modelled, uint32_t epoch, uint64_t host_ns);

/* Clears what the vCPU shows, of another epoch now. Only by the vCPU that owns it. */
void modelled_shown_restart(struct modelled_shown *shown, uint32_t epoch);

/* A vCPU becomes idle, or is no longer so, at this moment of the host's time. Only by itself. */
void modelled_idle(struct modelled *modelled, unsigned int vcpu, uint64_t host_ns);
void modelled_resume(struct modelled *modelled, unsigned int vcpu, uint64_t host_ns);

/* Takes what the vCPU has done since it was here last and looks at how loaded the nodes are, unless
 * another one is at it or epoch is over. Only by itself. */
void modelled_look(struct modelled *modelled, const struct counts *own, unsigned int vcpu, uint32_t epoch, uint64_t host_ns);

/* One miss that `node` serves; `counted` if the filter lets it through. True if it is time for a
 * look. Only by the vCPU itself. */
bool modelled_miss(struct modelled *modelled, struct counts *own, unsigned int vcpu, unsigned int node, bool counted);

static inline bool modelled_is_on(const struct modelled *modelled)
{
	return atomic_load_explicit(&modelled->on, memory_order_relaxed);
}

#endif
