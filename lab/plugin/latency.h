/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Latency that the guest feels: a vCPU whose access missed waits for as long as is set for the node
 * that serves it. It waits in the host's time, so that the guest's own clock shows it.
 */
#ifndef LATENCY_H
#define LATENCY_H

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#include "layout.h"

/* The longest wait for one miss. */
#define LATENCY_NS_MAX 1000000
/* Waits are saved up until they reach this much: reading the clock itself takes some tens of ns. */
#define LATENCY_PIECE_NS 1000

struct latency {
	_Atomic uint32_t ns[LAYOUT_NODES_MAX];	/* for each miss, by node; 0 does not wait */
};

static inline uint64_t latency_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Takes account of one miss that `node` serves. `owed_ns` belongs to the vCPU. */
static inline void latency_miss(const struct latency *latency, uint64_t *owed_ns, unsigned int node)
{
	uint64_t start;

	*owed_ns += atomic_load_explicit(&latency->ns[node], memory_order_relaxed);
	if (*owed_ns < LATENCY_PIECE_NS)
		return;
	start = latency_clock_ns();
	while (latency_clock_ns() - start < *owed_ns)
		;
	*owed_ns = 0;
}

#endif
