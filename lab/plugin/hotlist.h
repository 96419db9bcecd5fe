/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The hot list of a memory device, as the hotness monitoring unit of CXL 3.2 (CHMU) keeps one:
 * misses that the slow node serves are counted per unit of the device's own address space, and
 * units that reach a threshold are put on a list that the guest reads.
 *
 * A device has a fixed number of counters. Which units keep one is decided by Space-Saving
 * (Metwally, Agrawal, El Abbadi 2005) within sets of 16 counters, like the ways of a cache: a unit
 * that finds no free counter takes over the one with the least count, and what that one had counted
 * for other units is remembered as its error. Of the two published ways to live with too few
 * counters, this one finds hot units however late they become hot; lossy counting keeps those that
 * came first. Only the count that certainly belongs to a unit, count minus error, is compared and
 * listed: where counters run out, the list gets shorter, not wrong. The number of counters taken
 * over is reported.
 *
 * The memory lies in the sampler's file (sampler.h says where), so that the guest sees both as one
 * device: a page of registers, then the slots. An entry has 64 bits: the count in the low bits, the
 * unit's number above them. What the guest writes is either checked or can at worst lose the guest
 * its own entries.
 */
#ifndef HOTLIST_H
#define HOTLIST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "layout.h"

#define HOTLIST_MAGIC "TLCCHMU1"
#define HOTLIST_PAGE 4096
#define HOTLIST_COUNTER_BITS 16
#define HOTLIST_WAYS 16
#define HOTLIST_COUNTERS_MAX (1U << 24)
#define HOTLIST_SLOTS_MIN 16
#define HOTLIST_SLOTS_MAX (1U << 20)
#define HOTLIST_UNIT_MIN 256	/* CXL 3.2 */
#define HOTLIST_DOWNSAMPLING_MAX 32768

enum hotlist_mode { HOTLIST_OFF, HOTLIST_EPOCH, HOTLIST_ALWAYS_ON };

/* Where a piece of the device's memory lies in guest-physical addresses, as an HDM decoder
 * describes it. Pieces follow one another in the device's own address space. */
struct hotlist_piece {
	uint64_t base;		/* guest-physical */
	uint64_t bytes;		/* of the guest's memory, with that of the other ways */
	uint32_t ways;
	uint32_t granularity_bytes;
	uint32_t position;	/* of this device among the ways */
	uint32_t reserved;
};

struct hotlist_registers {
	/* What the device is like; fixed. */
	char magic[8];
	uint32_t slots;		/* of the list, a power of two */
	uint32_t counter_bits;	/* low bits of an entry that are the count */
	uint64_t counters;
	uint64_t device_bytes;
	uint64_t pieces;
	struct hotlist_piece piece[LAYOUT_PIECES_MAX];
	/* The settings, written by the guest. They take effect at the first miss after `generation` has
	 * changed. */
	_Alignas(512) _Atomic uint64_t generation;
	_Atomic uint64_t mode;
	_Atomic uint64_t unit_bytes;	/* a power of two */
	_Atomic uint64_t threshold;
	_Atomic uint64_t epoch_ns;
	_Atomic uint64_t downsampling;	/* one miss in this many is counted, at random; a power of two */
	_Atomic uint64_t tail;		/* entries read */
	/* The device's state and counters. */
	_Alignas(512) _Atomic uint64_t applied;	/* the generation in force */
	_Atomic uint64_t running;	/* the mode in force: off where what was written cannot be */
	_Atomic uint64_t head;		/* entries written */
	_Atomic uint64_t overflow;	/* hot units that found the list full */
	_Atomic uint64_t taken_over;	/* counters that another unit had to give up: there are too few */
	_Atomic uint64_t counted;	/* misses counted */
	_Atomic uint64_t epochs;	/* epochs that have ended */
};

struct hotlist_counter {
	uint64_t unit;		/* its number + 1; 0 is free */
	uint32_t count;
	uint32_t error;		/* of these, as many as this may be of other units */
};

struct hotlist {
	pthread_mutex_t lock;
	unsigned int node;
	struct hotlist_registers *registers;	/* NULL: there is no such device */
	uint64_t *slots;
	struct hotlist_counter *counters;
	uint32_t sets;		/* a power of two */
	uint32_t slots_count;
	unsigned int pieces;
	struct layout_piece piece[LAYOUT_PIECES_MAX];
	_Atomic uint64_t generation;	/* in force */
	_Atomic unsigned int mode;
	unsigned int unit_shift;
	uint32_t threshold;
	uint64_t epoch_ns, epoch_end_ns;
	uint64_t downsampling;
	uint64_t random;
	uint64_t written;	/* the head, out of the guest's reach */
	uint32_t first_set;	/* where the next epoch's list begins */
};

/* Bytes that a list of `slots` slots takes, in whole pages. */
uint64_t hotlist_bytes(uint32_t slots);

/*
 * Sets up `memory`, hotlist_bytes() of zeroes, as the registers and list of a device that holds
 * `node`'s memory. Both numbers must be powers of two. Returns NULL, or what is wrong.
 */
const char *hotlist_init(struct hotlist *hotlist, const struct layout *layout, unsigned int node, uint32_t counters, uint32_t slots,
			 void *memory);

/* Counts a miss that the device served; `now_ns` is the host's CLOCK_MONOTONIC. From any thread. */
void hotlist_count(struct hotlist *hotlist, uint64_t guest_physical, uint64_t now_ns);

/* Whether misses of this node are to be passed to hotlist_count(). */
static inline bool hotlist_wants(const struct hotlist *hotlist, unsigned int node)
{
	return hotlist->registers && node == hotlist->node &&
	       (atomic_load_explicit(&hotlist->mode, memory_order_relaxed) != HOTLIST_OFF ||
		atomic_load_explicit(&hotlist->registers->generation, memory_order_relaxed) !=
			atomic_load_explicit(&hotlist->generation, memory_order_relaxed));
}

#endif
