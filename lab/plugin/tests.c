// SPDX-License-Identifier: GPL-2.0-or-later
/* Tests of the parts that need no emulator. Each prints what it expected when it fails. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "counts.h"
#include "hotlist.h"
#include "latency.h"
#include "layout.h"
#include "sampler.h"
#include "tests.h"

#define MIB (1ULL << 20)
#define GIB (1ULL << 30)

static void located(const struct layout *layout, uint64_t reported, uint64_t physical, unsigned int node)
{
	uint64_t found_physical = 0;
	unsigned int found_node = 99;
	bool found = layout_locate(layout, reported, &found_physical, &found_node);

	if (!found || found_physical != physical || found_node != node) {
		fprintf(stderr, "address %#" PRIx64 ": expected %#" PRIx64 " on node %u, got %#" PRIx64 " on node %u (%d)\n",
			reported, physical, node, found_physical, found_node, found);
		exit(1);
	}
}

static void layout_with_and_without_a_hole(void)
{
	struct layout layout = { .address = LAYOUT_ADDRESS_RAMBLOCK };
	uint64_t physical;
	unsigned int node;

	/* 2 GiB in all: no hole. */
	CHECK(!layout_parse(&layout, "512:512:1024"));
	CHECK(layout.below_4g == 2 * GIB);
	located(&layout, 0, 0, 0);
	located(&layout, 512 * MIB - 1, 512 * MIB - 1, 0);
	CHECK(!layout_locate(&layout, 512 * MIB, &physical, &node));
	located(&layout, GIB, 512 * MIB, 1);
	located(&layout, 2 * GIB, GIB, 2);
	located(&layout, 3 * GIB - 1, 2 * GIB - 1, 2);
	CHECK(!layout_locate(&layout, 3 * GIB, &physical, &node));

	/* 3 + 1 + 1 GiB: node 0 is cut at 2 GiB and goes on at 4 GiB. */
	CHECK(!layout_parse(&layout, "3072:1024:1024"));
	CHECK(layout.below_4g == 2 * GIB);
	located(&layout, 2 * GIB - 1, 2 * GIB - 1, 0);
	located(&layout, 2 * GIB, 4 * GIB, 0);
	located(&layout, 3 * GIB - 1, 5 * GIB - 1, 0);
	located(&layout, 6 * GIB, 5 * GIB, 1);
	located(&layout, 8 * GIB + 5, 6 * GIB + 5, 2);

	/* The same machine, addresses as newer QEMU reports them. */
	layout.address = LAYOUT_ADDRESS_GUEST;
	located(&layout, 4 * GIB, 4 * GIB, 0);
	located(&layout, 6 * GIB + 5, 6 * GIB + 5, 2);
	CHECK(!layout_locate(&layout, 3 * GIB, &physical, &node));
	CHECK(!layout_locate(&layout, 7 * GIB, &physical, &node));
}

static void layout_refuses_what_is_no_layout(void)
{
	struct layout layout;

	CHECK(layout_parse(&layout, ""));
	CHECK(layout_parse(&layout, "1024:"));
	CHECK(layout_parse(&layout, ":1024"));
	CHECK(layout_parse(&layout, "-1"));
	CHECK(layout_parse(&layout, "1024,1024"));
	CHECK(layout_parse(&layout, "99999999999999999999"));
	CHECK(layout_parse(&layout, "1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1"));
}

static void cache_keeps_what_was_used_last(void)
{
	struct cache cache;

	/* 4 lines in 2 sets of 2: even lines share set 0. */
	CHECK(!cache_init(&cache, 0, 2, 64));
	CHECK(!cache_init(&cache, 3, 1, 64));
	CHECK(!cache_init(&cache, 1, 8, 32));
	CHECK(!cache_init(&cache, 1, 8, 96));
	CHECK(cache_init(&cache, 1, 8, 64));
	CHECK(cache.sets == 2);
	cache_clear(&cache);
	for (uint64_t line = 0; line < 16; line += 2)
		CHECK(!cache_access(&cache, line * 64));
	for (uint64_t line = 0; line < 16; line += 2)
		CHECK(cache_access(&cache, line * 64 + 63));
	CHECK(!cache_access(&cache, 1 * 64));	/* the other set */
	CHECK(!cache_access(&cache, 16 * 64));	/* evicts 0, the oldest */
	CHECK(cache_access(&cache, 2 * 64));
	CHECK(!cache_access(&cache, 0));	/* evicts 4 */
	CHECK(cache_access(&cache, 2 * 64));
	CHECK(!cache_access(&cache, 4 * 64));
	free((void *)cache.tags);
}

static void a_sweep_larger_than_the_cache_always_misses(void)
{
	struct cache cache;
	unsigned int misses = 0;

	CHECK(cache_init(&cache, 64, 16, 64));
	cache_clear(&cache);
	for (int round = 0; round < 3; round++)
		for (uint64_t line = 0; line < 2048; line++)
			misses += !cache_access(&cache, line * 64);
	CHECK(misses == 3 * 2048);
	misses = 0;
	for (int round = 0; round < 3; round++)
		for (uint64_t line = 0; line < 1024; line++)
			misses += !cache_access(&cache, line * 64);
	CHECK(misses == 1024);
	free((void *)cache.tags);

	/* Twice the line, half the misses. */
	CHECK(cache_init(&cache, 64, 16, 128));
	cache_clear(&cache);
	misses = 0;
	for (uint64_t line = 0; line < 2048; line++)
		misses += !cache_access(&cache, line * 64);
	CHECK(misses == 1024);
	free((void *)cache.tags);
}

struct record {
	uint64_t virt, pfn;
	uint32_t load_misses, store_misses;
};

static size_t dump(const struct counts *counts, uint32_t epoch, struct record *records, size_t max)
{
	char *bytes = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&bytes, &size);
	int64_t n;

	CHECK(out);
	n = counts_write_pages(out, counts, epoch);
	fclose(out);
	CHECK(n >= 0 && size == (size_t)n * sizeof(*records) && (size_t)n <= max);
	memcpy(records, bytes, size);
	free(bytes);
	return (size_t)n;
}

static void pages_are_counted_by_both_names(void)
{
	struct counts *counts = counts_new(1024);
	struct totals totals = { 0 };
	struct record records[8];

	counts_restart(counts, 7);
	counts_page(counts, 0x7f0000001234, 0x5678, false);
	counts_page(counts, 0x7f0000001fff, 0x5000, true);
	counts_page(counts, 0x7f0000001000, 0x9000, false);	/* the same virtual page after a move */
	counts_page(counts, 0xffff888000000000, 0x5000, false);
	counts_add(&totals, counts, 7);
	CHECK(totals.pages == 3 && totals.pages_lost == 0);
	CHECK(dump(counts, 7, records, 8) == 3);
	for (int i = 0; i < 3; i++) {
		if (records[i].virt == PAGE_VIRT_KERNEL)
			CHECK(records[i].pfn == 5 && records[i].load_misses == 1 && records[i].store_misses == 0);
		else if (records[i].pfn == 5)
			CHECK(records[i].virt == 0x7f0000001 && records[i].load_misses == 1 &&
			      records[i].store_misses == 1);
		else
			CHECK(records[i].virt == 0x7f0000001 && records[i].pfn == 9 && records[i].load_misses == 1);
	}

	/* An older epoch's counts are not seen, and are gone once the vCPU has joined the new
	 * one. */
	CHECK(dump(counts, 8, records, 8) == 0);
	counts_restart(counts, 8);
	CHECK(dump(counts, 8, records, 8) == 0);
}

static void near_lines_are_the_last_ones_used(void)
{
	static struct near near;

	CHECK(near_find(&near, 0) < 0);
	near_remember(&near, 0x7fffffffe010, 15);
	near_remember(&near, 0x1000, 2);
	CHECK(near_find(&near, 0x7fffffffe000) == 15);
	CHECK(near_find(&near, 0x7fffffffe038) == 15);
	CHECK(near_find(&near, 0x7fffffffe039) < 0);	/* eight bytes from here reach into the next line */
	CHECK(near_find(&near, 0x7fffffffe040) < 0);
	CHECK(near_find(&near, 0x1000 + NEAR_LINES * NEAR_LINE_BYTES) < 0);
	near_remember(&near, 0x1000 + NEAR_LINES * NEAR_LINE_BYTES, 1);
	CHECK(near_find(&near, 0x1000) < 0);
}

static void a_full_table_loses_pages_and_says_so(void)
{
	struct counts *counts = counts_new(1024);
	struct totals totals = { 0 };

	counts_restart(counts, 1);
	for (uint64_t page = 0; page < 5000; page++)
		counts_page(counts, page << PAGE_SHIFT, page << PAGE_SHIFT, false);
	counts_add(&totals, counts, 1);
	CHECK(totals.pages <= 1024 && totals.pages > 900);
	CHECK(totals.pages + totals.pages_lost == 5000);
}

static void a_miss_waits_as_long_as_its_node_is_slow(void)
{
	static struct latency latency = { .ns = { 0, 2000000, LATENCY_PIECE_NS / 4 } };
	uint64_t owed = 0, start = latency_clock_ns();

	for (int i = 0; i < 10; i++)
		latency_miss(&latency, &owed, 1);
	CHECK(latency_clock_ns() - start >= 10 * 2000000);
	CHECK(owed == 0);
	latency_miss(&latency, &owed, 0);
	CHECK(owed == 0);
	/* Small debts are paid together. */
	for (int i = 1; i < 4; i++) {
		latency_miss(&latency, &owed, 2);
		CHECK(owed == (uint64_t)i * LATENCY_PIECE_NS / 4);
	}
	latency_miss(&latency, &owed, 2);
	CHECK(owed == 0);
}

static void every_nth_access_is_tagged_on_average(void)
{
	static struct sampler sampler;
	static struct sampler_ring ring;
	const uint64_t periods[] = { 1, 2, 3, 1000 };

	CHECK(!sampler_tags(&sampler, 5));	/* there is no ring */
	sampler = (struct sampler){ .random = 1, .ring = &ring };
	CHECK(!sampler_tags(&sampler, 0));	/* no sampling was asked for */
	for (unsigned int p = 0; p < 4; p++) {
		uint64_t tagged = 0, least = UINT64_MAX, most = 0, since = 0;

		sampler_tags(&sampler, periods[p]);
		for (uint64_t i = 0; i < 20000 * periods[p]; i++) {
			since++;
			if (!sampler_tags(&sampler, periods[p]))
				continue;
			tagged++;
			least = since < least ? since : least;
			most = since > most ? since : most;
			since = 0;
		}
		CHECK(tagged > 19400 && tagged < 20600);
		CHECK(ring.period == periods[p]);
		CHECK(least >= periods[p] / 2 && least >= 1 && most <= periods[p] + periods[p] / 2);
	}
	CHECK(ring.tagged > 4 * 19400);
}

static void the_reader_of_a_ring_may_choose_its_period(void)
{
	static struct sampler sampler;
	static struct sampler_ring ring;
	uint64_t tagged = 0;

	sampler = (struct sampler){ .random = 1, .ring = &ring };
	for (int i = 0; i < 1000; i++)
		CHECK(!sampler_tags(&sampler, SAMPLER_ASKED));	/* nobody has asked */
	ring.asked = 7;
	CHECK(sampler_tags(&sampler, SAMPLER_ASKED) && ring.period == 7);
	for (int i = 0; i < 70000; i++)
		tagged += sampler_tags(&sampler, SAMPLER_ASKED);
	CHECK(tagged > 9700 && tagged < 10300);
	/* What the host sets takes precedence. */
	for (int i = 0; i < 100; i++)
		sampler_tags(&sampler, 2);
	CHECK(ring.period == 2);
	/* A wish beyond all bounds costs samples, nothing else. */
	ring.asked = UINT64_MAX;
	for (int i = 0; i < 100; i++)
		sampler_tags(&sampler, SAMPLER_ASKED);
	CHECK(ring.period == SAMPLER_PERIOD_MAX && sampler.left <= SAMPLER_PERIOD_MAX / 2 * 3ULL + 2);
}

static void samples_come_in_order_and_a_full_ring_drops(void)
{
	static _Alignas(SAMPLER_PAGE) char memory[SAMPLER_PAGE * 5];
	struct sampler samplers[2];
	struct sampler_head *head = (struct sampler_head *)memory;
	struct sampler_ring *ring;
	struct sample *slots;

	CHECK(!sampler_init(samplers, 2, memory, SAMPLER_PAGE * 3));
	CHECK(sampler_init(samplers, 2, memory, sizeof(memory)));
	CHECK(!memcmp(head->magic, SAMPLER_MAGIC, 8) && head->rings == 2 && head->slot_bytes == sizeof(struct sample));
	CHECK(head->slots == 128 && head->ring_bytes == 2 * SAMPLER_PAGE);
	/* The second ring, as a reader finds it. */
	ring = (struct sampler_ring *)(memory + SAMPLER_PAGE + head->ring_bytes);
	slots = (struct sample *)((char *)ring + SAMPLER_PAGE);
	for (uint64_t i = 0; i < 150; i++)
		sampler_put(&samplers[1], &(struct sample){ .vaddr = i, .node = 1, .flags = SAMPLE_STORE });
	CHECK(ring->head == 128 && ring->dropped == 22 && samplers[0].ring->head == 0);
	for (uint64_t i = 0; i < 128; i++)
		CHECK(slots[i].vaddr == i && slots[i].node == 1 && slots[i].flags == SAMPLE_STORE);
	ring->tail = 10;
	for (uint64_t i = 200; i < 220; i++)
		sampler_put(&samplers[1], &(struct sample){ .vaddr = i });
	CHECK(ring->head == 138 && ring->dropped == 32 && slots[9].vaddr == 209 && slots[10].vaddr == 10);
	/* A guest that writes nonsense loses its samples. */
	ring->tail = 1ULL << 60;
	sampler_put(&samplers[1], &(struct sample){ .vaddr = 7 });
	ring->head = 12345;
	CHECK(ring->dropped == 33);
	ring->tail = 138;
	sampler_put(&samplers[1], &(struct sample){ .vaddr = 8 });
	CHECK(ring->head == 139 && slots[138 % 128].vaddr == 8);
}

static void a_node_is_cut_by_the_hole_at_most_once(void)
{
	struct layout layout = { .address = LAYOUT_ADDRESS_GUEST };
	struct layout_piece piece[LAYOUT_PIECES_MAX];

	CHECK(!layout_parse(&layout, "512:512:1024"));
	CHECK(layout_pieces(&layout, 2, piece) == 1 && piece[0].base == GIB && piece[0].bytes == GIB);
	CHECK(!layout_parse(&layout, "1024:512:2048"));
	CHECK(layout_pieces(&layout, 0, piece) == 1 && piece[0].base == 0 && piece[0].bytes == GIB);
	CHECK(layout_pieces(&layout, 2, piece) == 2);
	CHECK(piece[0].base == 1536 * MIB && piece[0].bytes == 512 * MIB);
	CHECK(piece[1].base == 4 * GIB && piece[1].bytes == 1536 * MIB);
	CHECK(!layout_parse(&layout, "2048:512:1024"));
	CHECK(layout_pieces(&layout, 2, piece) == 1 && piece[0].base == 4 * GIB + 512 * MIB);
}

#define BASE (1536 * MIB)	/* of node 2 below; a GiB more of it is above the hole */

static struct hotlist hotlist;
static _Alignas(HOTLIST_PAGE) char hotlist_memory[HOTLIST_PAGE * 2];
static struct hotlist_registers *const hot = (struct hotlist_registers *)hotlist_memory;

/* Starts a device with this many counters and slots and these settings. */
static void hotlist_start(uint32_t counters, uint32_t slots, enum hotlist_mode mode, uint64_t unit, uint64_t threshold,
			  uint64_t downsampling)
{
	struct layout layout = { .address = LAYOUT_ADDRESS_GUEST };

	CHECK(!layout_parse(&layout, "1024:512:1536"));
	free(hotlist.counters);
	memset(hotlist_memory, 0, sizeof(hotlist_memory));
	CHECK(hotlist_bytes(slots) <= sizeof(hotlist_memory));
	CHECK(!hotlist_init(&hotlist, &layout, 2, counters, slots, hotlist_memory));
	CHECK(!hotlist_wants(&hotlist, 2));
	hot->mode = mode;
	hot->unit_bytes = unit;
	hot->threshold = threshold;
	hot->epoch_ns = 1000;
	hot->downsampling = downsampling;
	hot->generation++;
	CHECK(hotlist_wants(&hotlist, 2) && !hotlist_wants(&hotlist, 1));
}

static void misses_of(uint64_t device_address, unsigned int times, uint64_t now)
{
	for (unsigned int i = 0; i < times; i++)
		hotlist_count(&hotlist, device_address < 512 * MIB ? BASE + device_address : 4 * GIB + device_address - 512 * MIB, now);
}

/* The count that is listed for a unit after entry `from`; -1 if it is not listed. */
static int64_t listed(uint64_t unit, uint64_t from)
{
	for (uint64_t n = from; n < hot->head; n++)
		if (hotlist.slots[n % hotlist.slots_count] >> HOTLIST_COUNTER_BITS == unit)
			return (int64_t)(hotlist.slots[n % hotlist.slots_count] & 0xffff);
	return -1;
}

static void an_epoch_lists_what_was_hot_and_begins_anew(void)
{
	hotlist_start(1024, 64, HOTLIST_EPOCH, 4096, 10, 1);
	misses_of(5 * 4096 + 7, 9, 0);
	misses_of(6 * 4096, 10, 500);
	misses_of(GIB, 100000, 999);	/* above the hole */
	CHECK(hot->applied == 1 && hot->running == HOTLIST_EPOCH && hot->head == 0 && hot->epochs == 0);
	misses_of(5 * 4096, 1, 1000);
	CHECK(hot->head == 2 && hot->epochs == 1 && hot->overflow == 0 && hot->taken_over == 0);
	CHECK(listed(5, 0) < 0 && listed(6, 0) == 10 && listed(GIB / 4096, 0) == 0xffff);
	/* The tenth miss of unit 5 was of the new epoch. */
	misses_of(5 * 4096, 9, 1999);
	misses_of(7 * 4096, 1, 2000);
	CHECK(hot->head == 3 && listed(5, 2) == 10);
	CHECK(hot->counted == 9 + 10 + 100000 + 1 + 9 + 1);
	/* Addresses of other nodes. */
	hotlist_count(&hotlist, BASE - 1, 2000);
	hotlist_count(&hotlist, 5 * GIB, 2000);
	CHECK(hot->counted == 9 + 10 + 100000 + 1 + 9 + 1);
}

static void units_are_as_large_as_they_are_told_to_be(void)
{
	hotlist_start(1024, 64, HOTLIST_EPOCH, 2 * MIB, 4, 1);
	misses_of(6 * MIB, 2, 0);
	misses_of(8 * MIB - 1, 2, 0);
	misses_of(8 * MIB, 3, 0);
	misses_of(0, 1, 1000);
	CHECK(hot->head == 1 && listed(3, 0) == 4);
}

static void too_few_counters_make_the_list_shorter_and_not_wrong(void)
{
	unsigned int rounds = 4000;

	/* One set: a unit with more than a sixteenth of the misses is found, among thousands that
	 * come once. */
	hotlist_start(16, 64, HOTLIST_EPOCH, 4096, 100, 1);
	for (unsigned int i = 0; i < rounds; i++) {
		misses_of((uint64_t)(1000 + i) * 4096, 1, 0);
		if (i % 4 == 0)
			misses_of(7 * 4096, 1, 0);
	}
	misses_of(0, 1, 1000);
	CHECK(hot->taken_over > 3000);
	CHECK(hot->head == 1 && listed(7, 0) >= 100 && listed(7, 0) <= rounds / 4);
}

static void a_full_list_is_told_and_no_unit_is_always_the_one_left_out(void)
{
	bool seen[100] = { false };
	unsigned int found = 0;

	hotlist_start(1024, 16, HOTLIST_EPOCH, 4096, 2, 1);
	for (uint64_t epoch = 0; epoch < 100; epoch++) {
		uint64_t from = hot->head;

		for (uint64_t unit = 0; unit < 100; unit++)
			misses_of(unit * 4096, 2, epoch * 1000);
		for (uint64_t unit = 0; unit < 100; unit++)
			seen[unit] |= listed(unit, from) == 2;
		CHECK(hot->head - hot->tail <= 16);
		hot->tail = hot->head;
	}
	CHECK(hot->epochs == 99 && hot->head == 99 * 16 && hot->overflow == 99 * 84);
	for (unsigned int unit = 0; unit < 100; unit++)
		found += seen[unit];
	CHECK(found == 100);
	/* A guest that writes nonsense loses its entries. */
	hot->tail = 1ULL << 60;
	hot->head = 5;
	misses_of(0, 2, 200000);
	CHECK(hot->head == 5 && hot->overflow > 99 * 84);
}

static void what_is_always_on_lists_at_once_and_starts_again(void)
{
	hotlist_start(1024, 64, HOTLIST_ALWAYS_ON, 4096, 3, 1);
	misses_of(9 * 4096, 2, 0);
	CHECK(hot->head == 0);
	misses_of(9 * 4096, 1, 1ULL << 40);	/* no epoch forgets */
	CHECK(hot->head == 1 && listed(9, 0) == 0);
	misses_of(9 * 4096, 6, 1ULL << 40);
	CHECK(hot->head == 3 && hot->epochs == 0);
}

static void one_miss_in_many_is_counted(void)
{
	hotlist_start(1024, 64, HOTLIST_EPOCH, 4096, 900, 64);
	misses_of(0, 64000, 0);
	CHECK(hot->counted > 900 && hot->counted < 1100);
	misses_of(0, 640, 1000);
	CHECK(listed(0, 0) > 900 && listed(0, 0) < 1100);
}

static void what_cannot_be_is_off(void)
{
	struct layout layout = { .address = LAYOUT_ADDRESS_GUEST };
	const uint64_t wrong[][4] = { { 3, 4096, 1, 1 }, { 1, 4095, 1, 1 }, { 1, 128, 1, 1 },	  { 1, 1ULL << 40, 1, 1 },
				      { 1, 0, 1, 1 },	 { 1, 4096, 0, 1 }, { 1, 4096, 1 << 16, 1 }, { 1, 4096, 1, 3 },
				      { 1, 4096, 1, 65536 } };

	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		hotlist_start(16, 16, (enum hotlist_mode)wrong[i][0], wrong[i][1], wrong[i][2], wrong[i][3]);
		misses_of(0, 10, 0);
		CHECK(hot->applied == 1 && hot->running == HOTLIST_OFF && hot->counted == 0);
		CHECK(!hotlist_wants(&hotlist, 2));
	}
	CHECK(!layout_parse(&layout, "1024:512:1536"));
	CHECK(hotlist_init(&hotlist, &layout, 3, 16, 16, hotlist_memory));
	CHECK(hotlist_init(&hotlist, &layout, 2, 24, 16, hotlist_memory));
	CHECK(hotlist_init(&hotlist, &layout, 2, 16, 8, hotlist_memory));
}

int main(void)
{
	a_node_is_cut_by_the_hole_at_most_once();
	an_epoch_lists_what_was_hot_and_begins_anew();
	units_are_as_large_as_they_are_told_to_be();
	too_few_counters_make_the_list_shorter_and_not_wrong();
	a_full_list_is_told_and_no_unit_is_always_the_one_left_out();
	what_is_always_on_lists_at_once_and_starts_again();
	one_miss_in_many_is_counted();
	what_cannot_be_is_off();
	layout_with_and_without_a_hole();
	layout_refuses_what_is_no_layout();
	cache_keeps_what_was_used_last();
	a_sweep_larger_than_the_cache_always_misses();
	pages_are_counted_by_both_names();
	a_full_table_loses_pages_and_says_so();
	near_lines_are_the_last_ones_used();
	a_miss_waits_as_long_as_its_node_is_slow();
	every_nth_access_is_tagged_on_average();
	the_reader_of_a_ring_may_choose_its_period();
	samples_come_in_order_and_a_full_ring_drops();
	printf("plugin: %u tests passed\n", 18 + modelled_tests());
	return 0;
}
