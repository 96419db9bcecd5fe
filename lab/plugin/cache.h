/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The last-level cache: set-associative, physically indexed, least recently used out first.
 *
 * One cache is shared by all vCPUs, as cores share an LLC: a thread that the guest moves to another
 * vCPU finds its lines still there, and no line is present twice, which private models without
 * coherence would get wrong. Tags are relaxed atomics and there is no lock: two vCPUs in the same
 * set at the same instant can lose or double a tag, which costs at most one wrong verdict and is
 * gone once the set has turned over.
 */
#ifndef CACHE_H
#define CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define CACHE_WAYS_MAX 64
/* Lines of 64 bytes and more let 32 bits number all of 128 GiB. */
#define CACHE_LINE_MIN 64
#define CACHE_LINE_MAX 4096

struct cache {
	_Atomic uint32_t *tags;	/* set after set, each in order of use; a tag is the line number plus one, 0 is empty */
	uint32_t sets;		/* a power of two */
	uint32_t ways;
	uint32_t line_shift;
};

/* Sets the cache up; false if the sizes do not divide into a power of two of sets, or there is no
 * memory. */
static inline bool cache_init(struct cache *cache, uint64_t kib, uint32_t ways, uint32_t line_bytes)
{
	uint64_t sets;

	if (!ways || ways > CACHE_WAYS_MAX || !kib || kib > 1024 * 1024)
		return false;
	if (line_bytes < CACHE_LINE_MIN || line_bytes > CACHE_LINE_MAX || (line_bytes & (line_bytes - 1)))
		return false;
	sets = kib * 1024 / line_bytes / ways;
	if (!sets || (sets & (sets - 1)) || sets * ways * line_bytes != kib * 1024)
		return false;
	cache->line_shift = (uint32_t)__builtin_ctz(line_bytes);
	cache->sets = (uint32_t)sets;
	cache->ways = ways;
	/* Aligned, so that a set of 16 ways is one cache line of the host. */
	cache->tags = aligned_alloc(64, (sets * ways * sizeof(*cache->tags) + 63) & ~63ULL);
	return cache->tags != NULL;
}

static inline void cache_clear(struct cache *cache)
{
	uint64_t n = (uint64_t)cache->sets * cache->ways;

	for (uint64_t i = 0; i < n; i++)
		atomic_store_explicit(&cache->tags[i], 0, memory_order_relaxed);
}

/* Looks the line of an address up and makes it the most recently used of its set. True if it was
 * there. */
static inline bool cache_access(struct cache *cache, uint64_t physical)
{
	uint64_t line = physical >> cache->line_shift;
	_Atomic uint32_t *set = cache->tags + (line & (cache->sets - 1)) * cache->ways;
	uint32_t tag = (uint32_t)line + 1;
	uint32_t carried = atomic_load_explicit(&set[0], memory_order_relaxed);

	if (carried == tag)
		return true;
	/* Every tag in front of the wanted one moves back by one place; on a miss the last falls
	 * out. */
	for (uint32_t way = 1; way < cache->ways; way++) {
		uint32_t here = atomic_load_explicit(&set[way], memory_order_relaxed);

		atomic_store_explicit(&set[way], carried, memory_order_relaxed);
		if (here == tag) {
			atomic_store_explicit(&set[0], tag, memory_order_relaxed);
			return true;
		}
		carried = here;
	}
	atomic_store_explicit(&set[0], tag, memory_order_relaxed);
	return false;
}

#endif
