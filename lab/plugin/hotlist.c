// SPDX-License-Identifier: GPL-2.0-or-later
#include "hotlist.h"

#include <stdlib.h>
#include <string.h>

#define COUNT_MAX ((1U << HOTLIST_COUNTER_BITS) - 1)

_Static_assert(sizeof(struct hotlist_registers) <= HOTLIST_PAGE, "registers are one page");

static bool is_power_of_two(uint64_t number)
{
	return number && !(number & (number - 1));
}

/* Only the thread that holds the lock counts: no locked instruction. */
static void add_one(_Atomic uint64_t *counter)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
}

uint64_t hotlist_bytes(uint32_t slots)
{
	uint64_t bytes = (uint64_t)slots * sizeof(uint64_t);

	return HOTLIST_PAGE + (bytes + HOTLIST_PAGE - 1) / HOTLIST_PAGE * HOTLIST_PAGE;
}

const char *hotlist_init(struct hotlist *hotlist, const struct layout *layout, unsigned int node, uint32_t counters, uint32_t slots,
			 void *memory)
{
	struct hotlist_registers *registers = memory;

	if (node >= layout->nodes)
		return "hot-node is none of the nodes";
	if (!is_power_of_two(counters) || counters < HOTLIST_WAYS || counters > HOTLIST_COUNTERS_MAX)
		return "hot-counters is a power of two from 16 to 16777216";
	if (!is_power_of_two(slots) || slots < HOTLIST_SLOTS_MIN || slots > HOTLIST_SLOTS_MAX)
		return "hot-list is a power of two from 16 to 1048576, or 0";
	*hotlist = (struct hotlist){
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.node = node,
		.registers = registers,
		.slots = (uint64_t *)((char *)memory + HOTLIST_PAGE),
		.counters = calloc(counters, sizeof(struct hotlist_counter)),
		.sets = counters / HOTLIST_WAYS,
		.slots_count = slots,
		.random = 0x9e3779b97f4a7c15ULL,
	};
	if (!hotlist->counters)
		return "no memory for the hot list's counters";
	hotlist->pieces = layout_pieces(layout, node, hotlist->piece);
	for (unsigned int i = 0; i < hotlist->pieces; i++)
		registers->piece[i] = (struct hotlist_piece){
			.base = hotlist->piece[i].base,
			.bytes = hotlist->piece[i].bytes,
			.ways = 1,
			.granularity_bytes = 256,
		};
	registers->pieces = hotlist->pieces;
	registers->slots = slots;
	registers->counter_bits = HOTLIST_COUNTER_BITS;
	registers->counters = counters;
	registers->device_bytes = layout->size[node];
	/* Until the guest writes settings, their generation is 0, as is ours. */
	memcpy(registers->magic, HOTLIST_MAGIC, sizeof(registers->magic));
	return NULL;
}

/* Applies the guest's settings: all counters become free, the entries on the list stay. */
static void apply(struct hotlist *hotlist, uint64_t generation, uint64_t now_ns)
{
	struct hotlist_registers *r = hotlist->registers;
	uint64_t mode = atomic_load_explicit(&r->mode, memory_order_relaxed);
	uint64_t unit = atomic_load_explicit(&r->unit_bytes, memory_order_relaxed);
	uint64_t threshold = atomic_load_explicit(&r->threshold, memory_order_relaxed);
	uint64_t epoch = atomic_load_explicit(&r->epoch_ns, memory_order_relaxed);
	uint64_t downsampling = atomic_load_explicit(&r->downsampling, memory_order_relaxed);
	bool possible = mode <= HOTLIST_ALWAYS_ON && is_power_of_two(unit) && unit >= HOTLIST_UNIT_MIN && unit <= r->device_bytes &&
			threshold && threshold <= COUNT_MAX && (epoch || mode == HOTLIST_ALWAYS_ON) && epoch <= INT64_MAX &&
			is_power_of_two(downsampling) && downsampling <= HOTLIST_DOWNSAMPLING_MAX;

	mode = possible ? mode : HOTLIST_OFF;
	if (mode != HOTLIST_OFF) {
		hotlist->unit_shift = (unsigned int)__builtin_ctzll(unit);
		hotlist->threshold = (uint32_t)threshold;
		hotlist->epoch_ns = epoch;
		hotlist->epoch_end_ns = now_ns + epoch;
		hotlist->downsampling = downsampling;
		memset(hotlist->counters, 0, (size_t)hotlist->sets * HOTLIST_WAYS * sizeof(*hotlist->counters));
	}
	atomic_store_explicit(&hotlist->mode, (unsigned int)mode, memory_order_relaxed);
	atomic_store_explicit(&hotlist->generation, generation, memory_order_relaxed);
	atomic_store_explicit(&r->running, mode, memory_order_relaxed);
	atomic_store_explicit(&r->applied, generation, memory_order_release);
}

static void list(struct hotlist *hotlist, uint64_t unit, uint32_t count)
{
	struct hotlist_registers *r = hotlist->registers;
	uint64_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);

	if (hotlist->written - tail >= hotlist->slots_count) {
		add_one(&r->overflow);
		return;
	}
	hotlist->slots[hotlist->written % hotlist->slots_count] = unit << HOTLIST_COUNTER_BITS | (count < COUNT_MAX ? count : COUNT_MAX);
	atomic_store_explicit(&r->head, ++hotlist->written, memory_order_release);
}

/* Lists the hot units and frees all counters. Each epoch's list starts at a later set, so that a
 * short list does not always name the same units. */
static void end_epoch(struct hotlist *hotlist)
{
	for (uint32_t s = 0; s < hotlist->sets; s++) {
		struct hotlist_counter *set = &hotlist->counters[((hotlist->first_set + s) & (hotlist->sets - 1)) * HOTLIST_WAYS];

		for (unsigned int way = 0; way < HOTLIST_WAYS; way++)
			if (set[way].unit && set[way].count - set[way].error >= hotlist->threshold)
				list(hotlist, set[way].unit - 1, set[way].count - set[way].error);
		memset(set, 0, HOTLIST_WAYS * sizeof(*set));
	}
	/* An odd step reaches every set. */
	hotlist->first_set += hotlist->sets / 3 | 1;
	add_one(&hotlist->registers->epochs);
}

/* The unit's counter, taken over from another unit if there is no other way. */
static struct hotlist_counter *counter_of(struct hotlist *hotlist, uint64_t unit)
{
	/* Fibonacci hashing: neighbours go to different sets. */
	uint64_t place = (unit * 0x9e3779b97f4a7c15ULL) >> 32 & (hotlist->sets - 1);
	struct hotlist_counter *set = &hotlist->counters[place * HOTLIST_WAYS], *least = set;

	for (unsigned int way = 0; way < HOTLIST_WAYS; way++) {
		if (set[way].unit == unit + 1)
			return &set[way];
		if (set[way].count < least->count)
			least = &set[way];
	}
	if (least->unit)
		add_one(&hotlist->registers->taken_over);
	least->unit = unit + 1;
	least->error = least->count;
	return least;
}

/* The device's own address for a guest-physical one. */
static bool device_address(const struct hotlist *hotlist, uint64_t guest_physical, uint64_t *address)
{
	uint64_t before = 0;

	for (unsigned int i = 0; i < hotlist->pieces; i++) {
		if (guest_physical - hotlist->piece[i].base < hotlist->piece[i].bytes) {
			*address = before + guest_physical - hotlist->piece[i].base;
			return true;
		}
		before += hotlist->piece[i].bytes;
	}
	return false;
}

static void count(struct hotlist *hotlist, uint64_t guest_physical, uint64_t now_ns)
{
	struct hotlist_counter *counter;
	uint64_t address;

	if (hotlist->mode == HOTLIST_EPOCH && now_ns >= hotlist->epoch_end_ns) {
		end_epoch(hotlist);
		hotlist->epoch_end_ns = now_ns + hotlist->epoch_ns;
	}
	if (hotlist->downsampling > 1) {
		/* xorshift64 (Marsaglia 2003). */
		hotlist->random ^= hotlist->random << 13;
		hotlist->random ^= hotlist->random >> 7;
		hotlist->random ^= hotlist->random << 17;
		if (hotlist->random >> 32 & (hotlist->downsampling - 1))
			return;
	}
	if (!device_address(hotlist, guest_physical, &address))
		return;
	add_one(&hotlist->registers->counted);
	counter = counter_of(hotlist, address >> hotlist->unit_shift);
	if (counter->count != UINT32_MAX)
		counter->count++;
	if (hotlist->mode == HOTLIST_ALWAYS_ON && counter->count - counter->error >= hotlist->threshold) {
		/* The count is not listed, since it is always the threshold. */
		list(hotlist, counter->unit - 1, 0);
		*counter = (struct hotlist_counter){ .unit = 0 };
	}
}

void hotlist_count(struct hotlist *hotlist, uint64_t guest_physical, uint64_t now_ns)
{
	uint64_t generation;

	pthread_mutex_lock(&hotlist->lock);
	generation = atomic_load_explicit(&hotlist->registers->generation, memory_order_acquire);
	if (generation != hotlist->generation)
		apply(hotlist, generation, now_ns);
	if (hotlist->mode != HOTLIST_OFF)
		count(hotlist, guest_physical, now_ns);
	pthread_mutex_unlock(&hotlist->lock);
}
