// SPDX-License-Identifier: GPL-2.0-or-later
#include "counts.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct counts *counts_new(uint64_t slots)
{
	struct counts *counts = aligned_alloc(128, (sizeof(*counts) + 127) & ~127UL);
	void *table;

	if (!counts)
		return NULL;
	memset(counts, 0, sizeof(*counts));
	/* Untouched slots cost no memory. */
	table = mmap(NULL, slots * sizeof(*counts->table), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (table == MAP_FAILED) {
		free(counts);
		return NULL;
	}
	counts->table = table;
	counts->slots = slots;
	return counts;
}

void counts_restart(struct counts *counts, uint32_t epoch)
{
	struct page_count *table = counts->table;
	struct modelled_shown *shown = counts->waits.shown;
	uint64_t slots = counts->slots;

	if (counts->pages)
		memset((void *)table, 0, slots * sizeof(*table));
	memset((void *)counts, 0, sizeof(*counts));
	counts->table = table;
	counts->slots = slots;
	counts->waits.shown = shown;
	if (shown)
		modelled_shown_restart(shown, epoch);
	atomic_store_explicit(&counts->epoch, epoch, memory_order_release);
}

static void saturating_bump(_Atomic uint32_t *counter)
{
	uint32_t value = atomic_load_explicit(counter, memory_order_relaxed);

	if (value != UINT32_MAX)
		atomic_store_explicit(counter, value + 1, memory_order_relaxed);
}

void counts_page(struct counts *counts, uint64_t vaddr, uint64_t guest_physical, bool store)
{
	uint64_t page = vaddr >> PAGE_SHIFT;
	uint64_t virt = page < PAGE_VIRT_KERNEL ? page : PAGE_VIRT_KERNEL;
	uint64_t key = (virt << PAGE_PFN_BITS | guest_physical >> PAGE_SHIFT) + 1;
	/* Fibonacci hashing: neighbouring pages land far apart, and the top bits are the best mixed. */
	uint64_t slot = (key * 0x9e3779b97f4a7c15ULL) >> 32;

	for (unsigned int probe = 0; probe < PAGE_PROBES; probe++, slot++) {
		struct page_count *entry = &counts->table[slot & (counts->slots - 1)];
		uint64_t found = atomic_load_explicit(&entry->key, memory_order_relaxed);

		if (!found) {
			atomic_store_explicit(&entry->key, key, memory_order_relaxed);
			bump(&counts->pages);
		} else if (found != key) {
			continue;
		}
		saturating_bump(store ? &entry->store_misses : &entry->load_misses);
		return;
	}
	bump(&counts->pages_lost);
}

static bool is_current(const struct counts *counts, uint32_t epoch)
{
	return atomic_load_explicit(&counts->epoch, memory_order_acquire) == epoch;
}

void counts_add(struct totals *totals, const struct counts *counts, uint32_t epoch)
{
	if (!is_current(counts, epoch))
		return;
	for (unsigned int n = 0; n < LAYOUT_NODES_MAX; n++)
		for (unsigned int kind = 0; kind < ACCESS_KINDS; kind++)
			totals->node[n][kind] += counts->node[n][kind];
	totals->io += counts->io;
	totals->outside += counts->outside;
	totals->unresolved += counts->unresolved;
	totals->pages += counts->pages;
	totals->pages_lost += counts->pages_lost;
	totals->instructions += counts->instructions;
	totals->program += counts->program;
	totals->waited_ps += counts->waits.waited_ps;
	totals->reference_ps += counts->waits.reference_ps;
	totals->counted_reference_ps += counts->waits.counted_reference_ps;
	for (unsigned int n = 0; n < LAYOUT_NODES_MAX; n++) {
		totals->latency_ps[n] += counts->waits.counted_latency_ps[n];
		totals->queueing_ps[n] += counts->waits.counted_queueing_ps[n];
	}
}

int64_t counts_write_pages(FILE *out, const struct counts *counts, uint32_t epoch)
{
	int64_t written = 0;

	if (!is_current(counts, epoch))
		return 0;
	for (uint64_t slot = 0; slot < counts->slots; slot++) {
		const struct page_count *entry = &counts->table[slot];
		uint64_t key = atomic_load_explicit(&entry->key, memory_order_relaxed);
		struct {
			uint64_t virt, pfn;
			uint32_t load_misses, store_misses;
		} record;

		if (!key)
			continue;
		key--;
		record.virt = htole64(key >> PAGE_PFN_BITS);
		record.pfn = htole64(key & ((1ULL << PAGE_PFN_BITS) - 1));
		record.load_misses = htole32(atomic_load_explicit(&entry->load_misses, memory_order_relaxed));
		record.store_misses = htole32(atomic_load_explicit(&entry->store_misses, memory_order_relaxed));
		if (fwrite(&record, sizeof(record), 1, out) != 1)
			return -1;
		written++;
	}
	return written;
}
