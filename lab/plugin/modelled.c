// SPDX-License-Identifier: GPL-2.0-or-later
#include "modelled.h"

#include <stdlib.h>
#include <string.h>

#include "counts.h"

/* The simulator's constants: time between two looks, the use above which the factor no longer
 * follows the queue's formula, the factor at that use, and the greatest factor. */
#define PERIOD_PS 1e9
#define FULL 0.9
#define QUEUE_MAX (1.0 / (1.0 - FULL / 2.0))
#define FACTOR_MAX 1000.0
/* For this long in the host's time a vCPU is taken to go on with what it last did. One that the
 * host has stopped will go on later; one that stays in the kernel, or no longer misses, will
 * not. */
#define BELIEVED_NS 1000000000

_Static_assert(sizeof(struct modelled_head) <= MODELLED_PAGE, "the head is one page");
_Static_assert(sizeof(struct modelled_shown) <= MODELLED_SHOWN_BYTES, "a vCPU has its place");

/* What a vCPU is doing. */
struct modelled_mark {
	/* Written by the vCPU itself: where its clock was when its mix was taken; how long it was idle, in
	 * the host's time, and since when it is idle (0: it is not). */
	_Atomic uint64_t waited_ps, instructions;
	_Atomic uint64_t idle_sum_ns, idle_since_ns;
	/* Its last millisecond: how long the instructions took, and its misses. */
	double instructions_ps;
	double lines[LAYOUT_NODES_MAX];
	double all_lines;
	uint64_t mixed_ns;			/* when that was taken, in the host's time; 0: never */
	uint64_t lines_then[LAYOUT_NODES_MAX];	/* its counters at that time */
	uint64_t idle_then_ns;			/* how long it had been idle at the last look of any vCPU */
	double busy_ns;				/* and how long it was not, until the next */
};

static uint64_t get(const _Atomic uint64_t *number)
{
	return atomic_load_explicit(number, memory_order_relaxed);
}

static void set(_Atomic uint64_t *number, uint64_t value)
{
	atomic_store_explicit(number, value, memory_order_relaxed);
}

/* By how much a counter has grown; one that is less than before was reset. */
static uint64_t since(uint64_t now, uint64_t then)
{
	return now >= then ? now - then : now;
}

/* From one moment of the host's time to a later one. Threads read that clock before they wait for
 * each other, so an earlier "now" counts as the same moment. */
static uint64_t elapsed(uint64_t now_ns, uint64_t then_ns)
{
	return now_ns > then_ns ? now_ns - then_ns : 0;
}

static double instructions_ps(const struct modelled *modelled, uint64_t instructions)
{
	return (double)instructions * (double)get(&modelled->cpi_fs) / 1e3;
}

uint64_t modelled_bytes(unsigned int vcpus)
{
	uint64_t bytes = (uint64_t)vcpus * MODELLED_SHOWN_BYTES;

	return MODELLED_PAGE + (bytes + MODELLED_PAGE - 1) / MODELLED_PAGE * MODELLED_PAGE;
}

void modelled_show(struct modelled *modelled, struct counts *const *vcpus, uint32_t epoch, void *memory)
{
	struct modelled_head *head = memory;

	head->vcpus = modelled->vcpus;
	head->nodes = modelled->nodes;
	head->vcpu_bytes = MODELLED_SHOWN_BYTES;
	set(&head->epoch, epoch);
	memcpy(head->magic, MODELLED_MAGIC, sizeof(head->magic));
	modelled->head = head;
	for (unsigned int v = 0; v < modelled->vcpus; v++)
		vcpus[v]->waits.shown = (struct modelled_shown *)((char *)memory + MODELLED_PAGE + (size_t)v * MODELLED_SHOWN_BYTES);
}

/* Sets how long a miss takes from now on. */
static void apply(struct modelled *modelled)
{
	for (unsigned int n = 0; n < modelled->nodes; n++)
		set(&modelled->queueing_ps[n], (uint64_t)((double)modelled->settings.latency_ps[n] * (modelled->factor[n] - 1.0)));
	set(&modelled->reference_ps, (uint64_t)((double)modelled->settings.latency_ps[0] * modelled->reference_factor));
}

/* How long a vCPU has been idle until now. */
static uint64_t idle_ns(const struct modelled_mark *mark, uint64_t host_ns)
{
	uint64_t since_ns = get(&mark->idle_since_ns);

	return get(&mark->idle_sum_ns) + (since_ns ? elapsed(host_ns, since_ns) : 0);
}

static void restart(struct modelled *modelled, uint32_t epoch, uint64_t host_ns)
{
	modelled->epoch = epoch;
	modelled->looked_ns = host_ns;
	modelled->reference_factor = 1.0;
	for (unsigned int n = 0; n < modelled->nodes; n++)
		modelled->factor[n] = 1.0;
	apply(modelled);
	for (unsigned int v = 0; v < modelled->vcpus; v++) {
		struct modelled_mark *mark = &modelled->marks[v];

		set(&mark->waited_ps, 0);
		set(&mark->instructions, 0);
		memset(mark->lines_then, 0, sizeof(mark->lines_then));
		mark->mixed_ns = 0;
		mark->idle_then_ns = idle_ns(mark, host_ns);
	}
	if (modelled->head)
		set(&modelled->head->epoch, epoch);
}

bool modelled_init(struct modelled *modelled, unsigned int vcpus, unsigned int nodes, uint32_t line_bytes)
{
	*modelled = (struct modelled){ .vcpus = vcpus, .nodes = nodes, .line_bytes = line_bytes, .lock = PTHREAD_MUTEX_INITIALIZER };
	modelled->marks = calloc(vcpus, sizeof(*modelled->marks));
	if (!modelled->marks)
		return false;
	restart(modelled, 1, 0);
	return true;
}

/* Reads a decimal number above 0 with at most six decimal places, in millionths. Returns what
 * follows it, or NULL if there is no such number. */
static const char *parse_millionths(const char *at, uint64_t max, uint64_t *millionths)
{
	uint64_t whole = 0, unit = 1000000;

	if (*at < '0' || *at > '9')
		return NULL;
	for (; *at >= '0' && *at <= '9'; at++) {
		whole = whole * 10 + (uint64_t)(*at - '0');
		if (whole > max)
			return NULL;
	}
	*millionths = whole * unit;
	if (*at == '.')
		for (at++; *at >= '0' && *at <= '9'; at++) {
			unit /= 10;
			if (!unit)
				return NULL;
			*millionths += unit * (uint64_t)(*at - '0');
		}
	return *millionths && *millionths <= max * 1000000 ? at : NULL;
}

bool modelled_parse(struct modelled_settings *model, unsigned int nodes_wanted, const char *at)
{
	uint64_t millionths = 0;
	unsigned int nodes = 0;

	*model = (struct modelled_settings){ .cpi_fs = 0 };
	at = parse_millionths(at, MODELLED_CPI_NS_MAX, &model->cpi_fs);
	for (; at && *at == ' '; nodes++) {
		if (nodes == nodes_wanted)
			return false;
		at = parse_millionths(at + 1, MODELLED_LATENCY_NS_MAX, &millionths);
		/* The resolution is a thousandth of a ns. */
		model->latency_ps[nodes] = millionths / 1000;
		if (!at || !model->latency_ps[nodes])
			return false;
		if (*at == ':') {
			at = parse_millionths(at + 1, MODELLED_GBPS_MAX, &millionths);
			model->bytes_per_s[nodes] = millionths * 1000;
		}
	}
	return at && !*at && nodes == nodes_wanted;
}

void modelled_set(struct modelled *modelled, bool on, const struct modelled_settings *settings, uint32_t epoch, uint64_t host_ns)
{
	struct modelled_head *head = modelled->head;

	pthread_mutex_lock(&modelled->lock);
	modelled->settings = *settings;
	set(&modelled->cpi_fs, settings->cpi_fs);
	for (unsigned int n = 0; n < modelled->nodes; n++)
		set(&modelled->latency_ps[n], settings->latency_ps[n]);
	if (head) {
		set(&head->on, on);
		set(&head->cpi_fs, settings->cpi_fs);
		for (unsigned int n = 0; n < modelled->nodes; n++) {
			set(&head->latency_ps[n], settings->latency_ps[n]);
			set(&head->bytes_per_s[n], settings->bytes_per_s[n]);
		}
	}
	restart(modelled, epoch, host_ns);
	atomic_store(&modelled->on, on);
	pthread_mutex_unlock(&modelled->lock);
}

void modelled_reset(struct modelled *modelled, uint32_t epoch, uint64_t host_ns)
{
	pthread_mutex_lock(&modelled->lock);
	restart(modelled, epoch, host_ns);
	pthread_mutex_unlock(&modelled->lock);
}

void modelled_shown_restart(struct modelled_shown *shown, uint32_t epoch)
{
	/* A reader uses nothing of it until all of it belongs to the new epoch. */
	set(&shown->epoch, 0);
	atomic_thread_fence(memory_order_release);
	set(&shown->instructions, 0);
	set(&shown->waited_ps, 0);
	set(&shown->reference_ps, 0);
	for (unsigned int n = 0; n < LAYOUT_NODES_MAX; n++) {
		set(&shown->latency_ps[n], 0);
		set(&shown->queueing_ps[n], 0);
	}
	atomic_store_explicit(&shown->epoch, epoch, memory_order_release);
}

void modelled_idle(struct modelled *modelled, unsigned int vcpu, uint64_t host_ns)
{
	set(&modelled->marks[vcpu].idle_since_ns, host_ns);
}

void modelled_resume(struct modelled *modelled, unsigned int vcpu, uint64_t host_ns)
{
	struct modelled_mark *mark = &modelled->marks[vcpu];
	uint64_t idle_since_ns = get(&mark->idle_since_ns);

	if (!idle_since_ns)
		return;
	set(&mark->idle_since_ns, 0);
	set(&mark->idle_sum_ns, get(&mark->idle_sum_ns) + elapsed(host_ns, idle_since_ns));
}

/* The next factor when `used` of the bandwidth is in use. */
static double next_factor(double factor, double used)
{
	double queue = 1.0 / (1.0 - (used < FULL ? used : FULL) / 2.0);
	double step = used / FULL < 0.5 ? 0.5 : used / FULL > 2.0 ? 2.0 : used / FULL;
	double wanted = queue;

	/* Above the range of the formula, the factor that keeps the use there; it comes down the same
	 * way. */
	if ((used > FULL || factor > QUEUE_MAX) && factor * step > queue)
		wanted = factor * step;
	factor = (factor + wanted) / 2.0;
	return factor < 1.0 ? 1.0 : factor > FACTOR_MAX ? FACTOR_MAX : factor;
}

/* Takes the mix of what a vCPU has done since it was last taken. */
static void take_mix(const struct modelled *modelled, struct modelled_mark *mark, const struct counts *own, uint64_t host_ns)
{
	uint64_t instructions = get(&own->instructions);

	mark->instructions_ps = instructions_ps(modelled, since(instructions, get(&mark->instructions)));
	mark->all_lines = 0;
	for (unsigned int n = 0; n < modelled->nodes; n++) {
		uint64_t lines = get(&own->waits.lines[n]);

		mark->lines[n] = (double)since(lines, mark->lines_then[n]);
		mark->all_lines += mark->lines[n];
		mark->lines_then[n] = lines;
	}
	set(&mark->instructions, instructions);
	set(&mark->waited_ps, get(&own->waits.waited_ps));
	mark->mixed_ns = host_ns;
}

static bool is_believed(const struct modelled_mark *mark, uint64_t host_ns)
{
	return mark->mixed_ns && mark->all_lines > 0 && elapsed(host_ns, mark->mixed_ns) <= BELIEVED_NS;
}

/* Computes how long each vCPU was not idle since the last look; returns the most of those that do
 * something. */
static double busiest_ns(const struct modelled *modelled, uint64_t host_ns)
{
	double most = 0;

	for (unsigned int v = 0; v < modelled->vcpus; v++) {
		struct modelled_mark *mark = &modelled->marks[v];
		uint64_t idle = idle_ns(mark, host_ns);

		mark->busy_ns = (double)elapsed(host_ns, modelled->looked_ns) - (double)elapsed(idle, mark->idle_then_ns);
		mark->idle_then_ns = idle;
		if (is_believed(mark, host_ns) && mark->busy_ns > most)
			most = mark->busy_ns;
	}
	return most;
}

/* Demand in lines per ps relative to the bandwidth; 0 where there is no limit. */
static double share(const struct modelled *modelled, double lines_per_ps, unsigned int node)
{
	uint64_t bytes_per_s = modelled->settings.bytes_per_s[node];

	return bytes_per_s ? lines_per_ps * modelled->line_bytes * 1e12 / (double)bytes_per_s : 0.0;
}

void modelled_look(struct modelled *modelled, const struct counts *own, unsigned int vcpu, uint32_t epoch, uint64_t host_ns)
{
	double asked[LAYOUT_NODES_MAX] = { 0 }, reference_asked = 0, most;

	if (pthread_mutex_trylock(&modelled->lock))
		return;
	if (epoch != modelled->epoch) {
		pthread_mutex_unlock(&modelled->lock);
		return;
	}
	take_mix(modelled, &modelled->marks[vcpu], own, host_ns);
	most = busiest_ns(modelled, host_ns);
	for (unsigned int v = 0; v < modelled->vcpus; v++) {
		const struct modelled_mark *mark = &modelled->marks[v];
		double weight = most > 0 ? mark->busy_ns / most : 1.0;
		double took_ps = mark->instructions_ps;

		if (!is_believed(mark, host_ns) || weight <= 0)
			continue;
		/* Its demand at the present factors, whatever they were when the mix was taken. */
		for (unsigned int n = 0; n < modelled->nodes; n++)
			took_ps += mark->lines[n] * (double)modelled->settings.latency_ps[n] * modelled->factor[n];
		for (unsigned int n = 0; n < modelled->nodes; n++)
			asked[n] += weight * mark->lines[n] / took_ps;
		took_ps = mark->instructions_ps + mark->all_lines * (double)modelled->settings.latency_ps[0] * modelled->reference_factor;
		reference_asked += weight * mark->all_lines / took_ps;
	}
	for (unsigned int n = 0; n < modelled->nodes; n++)
		modelled->factor[n] = next_factor(modelled->factor[n], share(modelled, asked[n], n));
	modelled->reference_factor = next_factor(modelled->reference_factor, share(modelled, reference_asked, 0));
	if (host_ns > modelled->looked_ns)
		modelled->looked_ns = host_ns;
	apply(modelled);
	pthread_mutex_unlock(&modelled->lock);
}

/* Time does not wrap: after 213 days a clock stands still. */
static uint64_t add(_Atomic uint64_t *clock, uint64_t ps)
{
	uint64_t now = get(clock);

	now = now + ps < now ? UINT64_MAX : now + ps;
	set(clock, now);
	return now;
}

bool modelled_miss(struct modelled *modelled, struct counts *own, unsigned int vcpu, unsigned int node, bool counted)
{
	struct modelled_waits *waits = &own->waits;
	struct modelled_shown *shown = waits->shown;
	const struct modelled_mark *mark = &modelled->marks[vcpu];
	uint64_t latency_ps = get(&modelled->latency_ps[node]), queueing_ps = get(&modelled->queueing_ps[node]);
	uint64_t of_reference_ps = get(&modelled->reference_ps);
	uint64_t waited_ps = add(&waits->waited_ps, latency_ps + queueing_ps);
	uint64_t reference_ps = add(&waits->reference_ps, of_reference_ps);
	uint64_t node_latency_ps = add(&waits->latency_ps[node], latency_ps);
	uint64_t node_queueing_ps = add(&waits->queueing_ps[node], queueing_ps);
	uint64_t instructions = get(&own->instructions);

	bump(&waits->lines[node]);
	if (counted) {
		add(&waits->counted_reference_ps, of_reference_ps);
		add(&waits->counted_latency_ps[node], latency_ps);
		add(&waits->counted_queueing_ps[node], queueing_ps);
	}
	if (shown) {
		set(&shown->waited_ps, waited_ps);
		set(&shown->reference_ps, reference_ps);
		set(&shown->latency_ps[node], node_latency_ps);
		set(&shown->queueing_ps[node], node_queueing_ps);
	}
	return (double)since(waited_ps, get(&mark->waited_ps)) + instructions_ps(modelled, since(instructions, get(&mark->instructions))) >= PERIOD_PS;
}
