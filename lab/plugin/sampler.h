/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A hardware sampler like those of processors: about every Nth access is tagged, and a tagged
 * access that misses becomes a sample in its vCPU's ring. The rings lie in memory that the guest
 * can map, so that reading samples causes no VM exit. As with hardware, samples name addresses, not
 * processes.
 *
 * The memory, little-endian: a page with struct sampler_head, then for each vCPU a page with struct
 * sampler_ring followed by the slots. The writer alone moves `head`, the reader alone moves `tail`;
 * both only ever grow, and the slot is the number modulo the slots. What the guest writes there is
 * never trusted: at worst it loses its own samples.
 */
#ifndef SAMPLER_H
#define SAMPLER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SAMPLER_MAGIC "TLCSAMP1"
#define SAMPLER_PAGE 4096
#define SAMPLER_SLOTS_MAX (1U << 20)

struct sampler_head {
	char magic[8];
	uint32_t rings;		/* one a vCPU */
	uint32_t slots;		/* of each ring, a power of two */
	uint32_t slot_bytes;
	uint32_t ring_bytes;	/* from one ring's page to the next's */
	uint32_t hotlist_at;	/* where in this memory the registers of the hot list are (hotlist.h); 0 if there is none */
	uint32_t modelled_at;	/* where the vCPUs' modelled time is (modelled.h); 0 in older versions */
};

struct sampler_ring {
	_Atomic uint64_t head;		/* samples written */
	_Atomic uint64_t tail;		/* samples read, by the reader */
	_Atomic uint64_t dropped;	/* samples that found the ring full */
	_Atomic uint64_t tagged;	/* accesses that were tagged, with those that hit */
	_Atomic uint64_t period;	/* accesses from one tag to the next on average, as of the last */
	_Atomic uint64_t asked;		/* the period that the reader wishes, by the reader; 0: no samples */
};

/* As a period: the one that the reader of the ring asks for. */
#define SAMPLER_ASKED UINT64_MAX
/* The longest period that a reader can have. */
#define SAMPLER_PERIOD_MAX UINT32_MAX

#define SAMPLE_STORE 1

struct sample {
	uint64_t time_ns;	/* CLOCK_MONOTONIC of the host */
	uint64_t vaddr;
	uint64_t paddr;		/* guest-physical */
	uint32_t latency_ns;	/* what the vCPU waits for this node; 0 without latency */
	uint16_t node;
	uint16_t flags;		/* SAMPLE_STORE */
};

/* One vCPU's side, which no other thread touches. */
struct sampler {
	uint64_t left;		/* accesses until the next is tagged */
	uint64_t random;
	uint64_t written;	/* the head, out of the guest's reach */
	struct sampler_ring *ring;
	struct sample *slots;
	uint32_t slots_count;
};

/* Lays the rings out in `bytes` of zeroed memory and gives each of the vCPUs its own. False if
 * there is no room for a page of slots each. */
bool sampler_init(struct sampler *samplers, unsigned int vcpus, void *memory, uint64_t bytes);

/* Draws the distance to the next tagged access: `period` on average, from a half of it to one and a
 * half, so that no loop stays in step with it. */
void sampler_arm(struct sampler *sampler, uint64_t period);

/* Writes a sample, or counts it as dropped. */
void sampler_put(struct sampler *sampler, const struct sample *sample);

/* Only the writer counts: no locked instruction. */
static inline void sampler_add_one(_Atomic uint64_t *counter)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* The period that the reader asks for. */
static inline uint64_t sampler_asked(const struct sampler *sampler)
{
	uint64_t asked = atomic_load_explicit(&sampler->ring->asked, memory_order_relaxed);

	return asked < SAMPLER_PERIOD_MAX ? asked : SAMPLER_PERIOD_MAX;
}

/* Whether this access is tagged. */
static inline bool sampler_tags(struct sampler *sampler, uint64_t period)
{
	if (!period || !sampler->ring)
		return false;
	if (sampler->left > 1) {
		sampler->left--;
		return false;
	}
	if (period == SAMPLER_ASKED)
		period = sampler_asked(sampler);
	if (!period)
		return false;
	sampler_arm(sampler, period);
	sampler_add_one(&sampler->ring->tagged);
	return true;
}

#endif
