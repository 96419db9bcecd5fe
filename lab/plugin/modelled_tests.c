// SPDX-License-Identifier: GPL-2.0-or-later
/* Tests of modelled time, with vCPUs that only do what the tests say. */
#include <string.h>

#include "counts.h"
#include "modelled.h"
#include "tests.h"

#define LINE 64
#define CPI_FS 500000
#define PS_PER_MS 1000000000ULL

static struct modelled modelled;
static struct counts *vcpus[3];
static uint32_t epoch;
static uint64_t host_ns;

/* Sets all clocks to 0, on nodes of the given ns and GB/s, 0 for no limit. */
static void begin(unsigned int count, uint64_t fast_ns, double fast_gbps, uint64_t slow_ns, double slow_gbps)
{
	struct modelled_settings settings = {
		.cpi_fs = CPI_FS,
		.latency_ps = { fast_ns * 1000, slow_ns * 1000 },
		.bytes_per_s = { (uint64_t)(fast_gbps * 1e9), (uint64_t)(slow_gbps * 1e9) },
	};

	epoch = 1;
	host_ns = 1000;
	free(modelled.marks);
	CHECK(modelled_init(&modelled, count, 2, LINE));
	modelled_set(&modelled, true, &settings, ++epoch, host_ns);
	for (unsigned int v = 0; v < count; v++) {
		if (!vcpus[v])
			vcpus[v] = counts_new(1024);
		CHECK(vcpus[v]);
		vcpus[v]->waits.shown = NULL;
		counts_restart(vcpus[v], epoch);
	}
}

/* Runs instructions, then a miss; returns how long the miss took, ps. Looks of different vCPUs come
 * a little out of order. */
static uint64_t step(unsigned int v, uint64_t instructions, unsigned int node)
{
	struct counts *own = vcpus[v];
	uint64_t before = own->waits.waited_ps;

	bump_by(&own->instructions, instructions);
	if (modelled_miss(&modelled, own, v, node, true))
		modelled_look(&modelled, own, v, epoch, host_ns - v);
	return own->waits.waited_ps - before;
}

static double clock_ps(unsigned int v)
{
	return (double)vcpus[v]->waits.waited_ps + (double)vcpus[v]->instructions * CPI_FS / 1e3;
}

static bool near(double value, double expected, double share)
{
	bool is = value > expected * (1 - share) && value < expected * (1 + share);

	if (!is)
		fprintf(stderr, "%g instead of %g\n", value, expected);
	return is;
}

static void a_miss_takes_its_nodes_latency_and_an_instruction_its_cpi(void)
{
	begin(1, 100, 0, 350, 0);
	for (int i = 0; i < 1000; i++) {
		CHECK(step(0, 10, 1) == 350000);
		CHECK(step(0, 0, 0) == 100000);
	}
	CHECK(vcpus[0]->waits.waited_ps == 450000000 && clock_ps(0) == 455000000.0);
	CHECK(vcpus[0]->waits.latency_ps[1] == 350000000 && vcpus[0]->waits.queueing_ps[1] == 0);
	/* Had node 0 served them all: the same instructions, 2000 misses of 100 ns. */
	CHECK(vcpus[0]->waits.reference_ps == 200000000);
	CHECK(modelled_miss(&modelled, vcpus[0], 0, 1, false) == false);
	CHECK(vcpus[0]->waits.latency_ps[1] == 350350000 && vcpus[0]->waits.counted_latency_ps[1] == 350000000);
	CHECK(vcpus[0]->waits.counted_reference_ps == 200000000);
}

/* A use of u makes a miss take 1 / (1 - u / 2) as long. */
static void a_little_used_node_queues_by_the_formula(void)
{
	uint64_t took = 0;

	/* 64 bytes in 100 ns of latency and 100 ns of instructions are 0.32 GB/s, about a third of
	 * what there is. */
	begin(1, 100, 1.0, 350, 0);
	for (int i = 0; i < 200000; i++)
		took = step(0, 200, 0);
	/* u = 64 / (100 + 100 f) and f = 1 / (1 - u / 2): f is 1.176. */
	CHECK(near((double)took, 117600, 0.01));
	CHECK(vcpus[0]->waits.queueing_ps[0] > 0 && vcpus[0]->waits.queueing_ps[1] == 0);
	CHECK(vcpus[0]->waits.waited_ps == vcpus[0]->waits.latency_ps[0] + vcpus[0]->waits.queueing_ps[0]);
}

/* However many vCPUs there are and however fast, together they get 90 % of the bandwidth, and each
 * as much as the others. */
static void a_node_gives_no_more_than_its_bandwidth_and_all_alike(void)
{
	double start[3], bytes = 200000.0 * LINE, sum = 0;

	for (unsigned int count = 1; count <= 3; count++) {
		begin(count, 100, 0, 350, 0.1);
		for (int i = 0; i < 400000; i++)
			for (unsigned int v = 0; v < count; v++) {
				if (i == 200000)
					start[v] = clock_ps(v);
				step(v, 3, 1);
			}
		sum = 0;
		for (unsigned int v = 0; v < count; v++) {
			double gbps = bytes / (clock_ps(v) - start[v]) * 1e3;

			CHECK(near(gbps, 0.09 / count, 0.01));
			sum += gbps;
		}
		CHECK(sum < 0.1);
		/* Node 0 has no limit, so that the reference clock is that of latencies alone. */
		CHECK(vcpus[0]->waits.reference_ps == 400000ULL * 100000);
	}
}

/* A vCPU that asks for little waits no longer for each miss than one that asks for much. */
static void all_pay_the_same_for_a_miss(void)
{
	uint64_t much = 0, little = 0;

	begin(2, 100, 0, 350, 0.1);
	for (int i = 0; i < 200000; i++) {
		much = step(0, 0, 1);
		if (i % 10 == 0)
			little = step(1, 20000, 1);
	}
	CHECK(much > 500000 && near((double)little, (double)much, 0.05));
}

/* The other clock has its own queue: what does not fit through node 0 would not have done so. */
static void the_reference_queues_at_node_0(void)
{
	double reference = 0, start = 0;

	begin(1, 100, 0.2, 350, 0);
	for (int i = 0; i < 400000; i++) {
		CHECK(step(0, 0, 1) == 350000);
		if (i == 200000)
			start = (double)vcpus[0]->waits.reference_ps;
	}
	reference = (double)vcpus[0]->waits.reference_ps - start;
	/* 64 bytes at 90 % of 0.2 GB/s. */
	CHECK(near(reference / 199999, 64 / 0.18 * 1e3, 0.01));
	CHECK(vcpus[0]->waits.queueing_ps[0] == 0 && vcpus[0]->waits.queueing_ps[1] == 0);
}

/* vCPUs whose clocks are far apart, and advance at different paces, still ask for the bandwidth
 * that they ask for. */
static void drifting_clocks_neither_wait_for_nor_pass_each_other(void)
{
	uint64_t late = 0;
	double start[2] = { 0, 0 };

	begin(2, 100, 0, 350, 1.0);
	/* One second of one vCPU while the other does not exist: alone it uses 64 / 350 of the
	 * node. */
	for (int i = 0; i < 3000000; i++)
		step(0, 0, 1);
	late = step(1, 0, 1);
	CHECK(late < 400000);
	/* The second gets ten instructions' worth of work done while the first gets one done. */
	modelled_reset(&modelled, ++epoch, host_ns);
	counts_restart(vcpus[0], epoch);
	counts_restart(vcpus[1], epoch);
	for (int i = 0; i < 1000000; i++) {
		late = step(1, 0, 1);
		if (i % 10 == 0)
			step(0, 0, 1);
		if (i == 500000)
			for (int v = 0; v < 2; v++)
				start[v] = clock_ps((unsigned int)v);
	}
	/* Together they ask for 2 x 64 / (350 f) GB/s: f is 1.183, whatever the emulator's
	 * paces. */
	CHECK(near((double)late, 350000 * 1.183, 0.01));
	CHECK(near((clock_ps(1) - start[1]) / (clock_ps(0) - start[0]), 10, 0.01));
}

/* A vCPU that was idle for nine tenths of the time asks for a tenth of what it asks for while it is
 * at work. */
static void who_is_idle_asks_for_nothing(void)
{
	uint64_t took = 0;

	begin(2, 100, 0, 350, 0.4);
	for (int i = 0; i < 1000000; i++) {
		host_ns += 10;
		if (i % 1000 == 100)
			modelled_idle(&modelled, 1, host_ns);
		if (i % 1000 == 0)
			modelled_resume(&modelled, 1, host_ns);
		took = step(0, 0, 1);
		if (i % 1000 < 100)
			step(1, 0, 1);
	}
	/* u = 1.1 x 64 / (350 f) / 0.4 = 0.503 / f and f = 1 / (1 - u / 2): f is 1.2515. As if both
	 * were always at it, it would be 1.45. */
	CHECK(near((double)took, 350000 * 1.2515, 0.02));
}

/* The host lets one vCPU run for twenty milliseconds, then the other: on the modelled machine both
 * run all the time. */
static void who_is_stopped_by_the_host_still_asks(void)
{
	uint64_t took = 0;

	begin(2, 100, 0, 350, 0.1);
	for (int slice = 0; slice < 40; slice++)
		for (int i = 0; i < 10000; i++) {
			host_ns += 2000;
			took = step((unsigned int)slice % 2, 0, 1);
		}
	/* 64 bytes at half of 90 % of 0.1 GB/s. */
	CHECK(near((double)took, 64 / 0.045 * 1e3, 0.01));
	/* After a while, one that never runs again no longer counts. */
	for (int i = 0; i < 1000000; i++) {
		host_ns += 2000;
		took = step(0, 0, 1);
	}
	CHECK(near((double)took, 64 / 0.09 * 1e3, 0.01));
}

static void a_reset_begins_at_zero_with_idle_nodes(void)
{
	begin(1, 100, 0, 350, 0.1);
	for (int i = 0; i < 100000; i++)
		step(0, 0, 1);
	CHECK(step(0, 0, 1) > 600000);
	modelled_reset(&modelled, ++epoch, host_ns);
	/* A look by a vCPU that does not know of the epoch yet changes nothing. */
	modelled_look(&modelled, vcpus[0], 0, epoch - 1, host_ns);
	CHECK(modelled.queueing_ps[1] == 0);
	counts_restart(vcpus[0], epoch);
	CHECK(clock_ps(0) == 0 && step(0, 0, 1) == 350000);
	modelled_set(&modelled, false, &modelled.settings, ++epoch, host_ns);
	CHECK(!modelled_is_on(&modelled));
}

/* The longest latency, a queue without end: clocks stop at their maximum and do not start again
 * from 0. */
static void clocks_do_not_wrap(void)
{
	begin(1, MODELLED_LATENCY_NS_MAX, 0.000001, MODELLED_LATENCY_NS_MAX, 0.000001);
	for (int i = 0; i < 1000; i++)
		step(0, UINT32_MAX, 1);
	/* No queue makes a miss take more than a thousand times its latency. */
	CHECK(step(0, 0, 1) <= 1000ULL * 1000 * PS_PER_MS);
	vcpus[0]->waits.waited_ps = UINT64_MAX - 1;
	step(0, UINT32_MAX, 1);
	CHECK(vcpus[0]->waits.waited_ps == UINT64_MAX);
	step(0, 0, 1);
	CHECK(vcpus[0]->waits.waited_ps == UINT64_MAX);
}

static void the_guest_sees_what_was_counted_and_of_this_epoch_only(void)
{
	static _Alignas(MODELLED_PAGE) char memory[2 * MODELLED_PAGE];
	struct modelled_head *head = (struct modelled_head *)memory;
	struct modelled_shown *shown = (struct modelled_shown *)(memory + MODELLED_PAGE + MODELLED_SHOWN_BYTES);

	CHECK(modelled_bytes(2) == sizeof(memory) && modelled_bytes(9) == 3 * MODELLED_PAGE);
	begin(2, 100, 3, 350, 0);
	memset(memory, 0, sizeof(memory));
	modelled_show(&modelled, vcpus, epoch, memory);
	CHECK(!memcmp(head->magic, MODELLED_MAGIC, 8) && head->vcpus == 2 && head->nodes == 2 && !head->on);
	modelled_set(&modelled, true, &modelled.settings, ++epoch, host_ns);
	CHECK(head->on && head->epoch == epoch && head->cpi_fs == CPI_FS && head->latency_ps[1] == 350000 && head->bytes_per_s[0] == 3000000000);
	/* A vCPU shows nothing of the epoch until it has joined it. */
	CHECK(shown->epoch == 0);
	counts_restart(vcpus[1], epoch);
	step(1, 0, 1);
	step(1, 0, 0);
	CHECK(shown->epoch == epoch && shown->waited_ps == 450000 && shown->reference_ps == 200000);
	CHECK(shown->latency_ps[0] == 100000 && shown->latency_ps[1] == 350000 && shown->queueing_ps[1] == 0);
	/* What the guest writes has no effect. */
	shown->waited_ps = 7;
	step(1, 0, 1);
	CHECK(vcpus[1]->waits.waited_ps == 800000 && shown->waited_ps == 800000);
	counts_restart(vcpus[1], ++epoch);
	CHECK(shown->epoch == epoch && shown->waited_ps == 0 && shown->latency_ps[1] == 0);
}

static void a_model_is_told_in_words(void)
{
	const char *const wrong[] = { "",	  "0.3",	  "0.3 100",	   "0.3 100 350 1",   "0.3 100:1 350:", "0.3 100:0 350",
				      "0 100 350", "0.3 0 350",	  "0.3 0.0001 350", "0.3 1000001 350", "-1 100 350",	"0.3 100 350x",
				      "0.3  100 350", "0.3 100 350 ", "0.3,100,350", "1e3 100 350", "0.1234567 100 350" };
	struct modelled_settings settings;

	CHECK(modelled_parse(&settings, 2, "0.333333 100:200 350.5:0.25"));
	CHECK(settings.cpi_fs == 333333 && settings.latency_ps[0] == 100000 && settings.latency_ps[1] == 350500);
	CHECK(settings.bytes_per_s[0] == 200000000000 && settings.bytes_per_s[1] == 250000000);
	CHECK(modelled_parse(&settings, 2, "1000 1000000 350") && settings.bytes_per_s[0] == 0);
	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (modelled_parse(&settings, 2, wrong[i])) {
			fprintf(stderr, "taken for a model: %s\n", wrong[i]);
			exit(1);
		}
}

unsigned int modelled_tests(void)
{
	void (*const tests[])(void) = {
		a_miss_takes_its_nodes_latency_and_an_instruction_its_cpi,
		a_little_used_node_queues_by_the_formula,
		a_node_gives_no_more_than_its_bandwidth_and_all_alike,
		all_pay_the_same_for_a_miss,
		the_reference_queues_at_node_0,
		drifting_clocks_neither_wait_for_nor_pass_each_other,
		who_is_idle_asks_for_nothing,
		who_is_stopped_by_the_host_still_asks,
		a_reset_begins_at_zero_with_idle_nodes,
		clocks_do_not_wrap,
		the_guest_sees_what_was_counted_and_of_this_epoch_only,
		a_model_is_told_in_words,
	};

	for (unsigned int i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tests[i]();
	return sizeof(tests) / sizeof(tests[0]);
}
