// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A TCG plugin that counts the guest's loads and stores that miss a modelled last-level cache, by
 * NUMA node and by page.
 *
 * The guest boots at full speed: at first only two rare events are watched (a vCPU wakes, a block
 * is translated). When counting is asked for, the first vCPU that passes such an event flushes the
 * translated code, which from then on calls on_access() for each load and store.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "misses.h"
#include "qemu_plugin_api.h"
#include "shared.h"

/* x86-64 user space ends here (four-level page tables). */
#define USER_END (1ULL << 47)
#define START_WAIT_MS 10000

PLUGIN_EXPORT int qemu_plugin_version = 1;
PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv);

static qemu_plugin_id_t plugin_id;
static struct cache cache;
static struct latency latency;
static struct counts **vcpus;
static struct sampler *samplers;
static struct hotlist hotlist;
static struct modelled modelled;
static unsigned int vcpus_max;

/* Set by the control thread, read at every access. */
static _Atomic bool counting;
static _Atomic uint32_t epoch = 1;
static _Atomic uint64_t sample_period;
static _Atomic uint64_t filter_start;
static _Atomic uint64_t filter_bytes = UINT64_MAX;

/* The program whose instructions are counted separately; no range is looked at while `ranges`
 * is 0. */
static struct {
	_Atomic unsigned int ranges;
	_Atomic uint64_t start[PROGRAM_RANGES_MAX];
	_Atomic uint64_t bytes[PROGRAM_RANGES_MAX];
} program;

/* Whether the code is to be instrumented, whether a vCPU is about to do it, and whether it is
 * done. */
static _Atomic bool wanted;
static _Atomic bool changing;
static _Atomic bool instrumented;

static void on_reset(qemu_plugin_id_t id);

/*
 * Called on vCPU threads wherever it is cheap to check. A machine is reset once in its life, and
 * there is no way back to uninstrumented code: before QEMU 10.0 the thread that carries out a reset
 * keeps the plugin lock, and a second reset would wait for it for ever.
 */
static void instrument_if_wanted(void)
{
	if (atomic_load_explicit(&wanted, memory_order_relaxed) && !atomic_exchange(&changing, true))
		qemu_plugin_reset(plugin_id, on_reset);
}

static bool is_wanted(uint64_t vaddr)
{
	return vaddr - atomic_load_explicit(&filter_start, memory_order_relaxed) <
	       atomic_load_explicit(&filter_bytes, memory_order_relaxed);
}

static bool is_of_program(uint64_t vaddr)
{
	unsigned int ranges = atomic_load_explicit(&program.ranges, memory_order_acquire);

	for (unsigned int i = 0; i < ranges; i++)
		if (vaddr - atomic_load_explicit(&program.start[i], memory_order_relaxed) <
		    atomic_load_explicit(&program.bytes[i], memory_order_relaxed))
			return true;
	return false;
}

/* The vCPU's counters, of the present epoch; NULL while nothing is counted. */
static struct counts *counters(unsigned int vcpu)
{
	struct counts *own = vcpus[vcpu];
	uint32_t now;

	if (!atomic_load_explicit(&counting, memory_order_relaxed))
		return NULL;
	now = atomic_load_explicit(&epoch, memory_order_acquire);
	if (atomic_load_explicit(&own->epoch, memory_order_relaxed) != now)
		counts_restart(own, now);
	return own;
}

/* The part of an access that lies in one line: it always goes through the cache and waits, and is
 * counted if the filter lets it through. True if it missed. */
static bool touch_line(struct counts *own, unsigned int vcpu, uint64_t vaddr, uint64_t physical, unsigned int node, bool store)
{
	bool counted;

	if (cache_access(&cache, physical))
		return false;
	counted = is_wanted(vaddr);
	if (hotlist_wants(&hotlist, node))
		hotlist_count(&hotlist, physical, latency_clock_ns());
	if (modelled_is_on(&modelled) && modelled_miss(&modelled, own, vcpu, node, counted))
		modelled_look(&modelled, own, vcpu, misses_epoch(), latency_clock_ns());
	latency_miss(&latency, &own->owed_ns, node);
	if (counted) {
		bump(&own->node[node][store ? ACCESS_STORE_MISS : ACCESS_LOAD_MISS]);
		counts_page(own, vaddr, physical, store);
	}
	return true;
}

static void take_sample(struct sampler *sampler, uint64_t vaddr, uint64_t physical, unsigned int node, bool store)
{
	struct sample sample = {
		.time_ns = latency_clock_ns(),
		.vaddr = vaddr,
		.paddr = physical,
		.latency_ns = atomic_load_explicit(&latency.ns[node], memory_order_relaxed),
		.node = (uint16_t)node,
		.flags = store ? SAMPLE_STORE : 0,
	};

	sampler_put(sampler, &sample);
}

/* An access to a line that the vCPU has not used lately; `tagged` receives the sample if it is to
 * become one. */
static void touch_far(struct counts *own, unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t vaddr, bool store,
		      struct sampler *tagged)
{
	struct qemu_plugin_hwaddr *where = qemu_plugin_get_hwaddr(info, vaddr);
	uint64_t line_rest = options.line_bytes - vaddr % options.line_bytes;
	unsigned int node;
	uint64_t physical;

	if (!where) {
		bump(&own->unresolved);
		return;
	}
	if (qemu_plugin_hwaddr_is_io(where)) {
		bump(&own->io);
		return;
	}
	if (!layout_locate(&options.layout, qemu_plugin_hwaddr_phys_addr(where), &physical, &node)) {
		bump(&own->outside);
		return;
	}
	near_remember(&own->near, vaddr, node);
	if (is_wanted(vaddr))
		bump(&own->node[node][store ? ACCESS_STORE : ACCESS_LOAD]);
	if (touch_line(own, vcpu, vaddr, physical, node, store) && tagged)
		take_sample(tagged, vaddr, physical, node, store);

	/* An access that reaches into the next line fetches that one too, unless it is in the next
	 * page: its physical address is not known here, and such accesses are rare. */
	if (line_rest < 1U << qemu_plugin_mem_size_shift(info) &&
	    (physical + line_rest) >> PAGE_SHIFT == physical >> PAGE_SHIFT)
		touch_line(own, vcpu, vaddr + line_rest, physical + line_rest, node, store);
}

static void on_access(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t vaddr, void *userdata)
{
	struct sampler *sampler = &samplers[vcpu];
	struct counts *own;
	bool store, tagged;
	int node;

	(void)userdata;
	/* Before QEMU 8.0, an access by a helper of the kernel's code may be reported through the callback
	 * of the last user instruction. */
	if (vaddr >= USER_END && !options.kernel_too)
		return;
	own = counters(vcpu);
	if (!own)
		return;
	if (own->pending) {
		if (is_of_program(vaddr))
			bump_by(&own->program, own->pending);
		own->pending = 0;
	}
	store = qemu_plugin_mem_is_store(info);
	tagged = sampler_tags(sampler, atomic_load_explicit(&sample_period, memory_order_relaxed));
	node = near_find(&own->near, vaddr);
	if (node < 0)
		touch_far(own, vcpu, info, vaddr, store, tagged ? sampler : NULL);
	else if (is_wanted(vaddr))
		bump(&own->node[node][store ? ACCESS_STORE : ACCESS_LOAD]);
}

/*
 * A block of user-space code begins. Which program runs is not known here, but no two have their
 * memory at the same addresses: the next access shows it. A block that ends early, at a fault, is
 * counted whole.
 */
static void on_block(unsigned int vcpu, void *userdata)
{
	struct counts *own = counters(vcpu);

	if (!own)
		return;
	bump_by(&own->instructions, (uintptr_t)userdata);
	if (own->waits.shown)
		atomic_store_explicit(&own->waits.shown->instructions, own->instructions, memory_order_relaxed);
	own->pending += (uintptr_t)userdata;
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t instructions = qemu_plugin_tb_n_insns(tb);

	(void)id;
	if (!atomic_load_explicit(&instrumented, memory_order_relaxed)) {
		instrument_if_wanted();
		return;
	}
	if (qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0)) < USER_END)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, QEMU_PLUGIN_CB_NO_REGS,
						     (void *)(uintptr_t)instructions);
	for (size_t i = 0; i < instructions; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		/* One callback for both: before 8.0, one for loads alone is called for stores
		 * instead. */
		if (options.kernel_too || qemu_plugin_insn_vaddr(insn) < USER_END)
			qemu_plugin_register_vcpu_mem_cb(insn, on_access, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
							 NULL);
	}
}

static void on_idle(qemu_plugin_id_t id, unsigned int vcpu)
{
	(void)id;
	modelled_idle(&modelled, vcpu, latency_clock_ns());
}

static void on_resume(qemu_plugin_id_t id, unsigned int vcpu)
{
	(void)id;
	modelled_resume(&modelled, vcpu, latency_clock_ns());
	if (!atomic_load_explicit(&instrumented, memory_order_relaxed))
		instrument_if_wanted();
}

static void on_exit_of_qemu(qemu_plugin_id_t id, void *userdata)
{
	(void)id;
	(void)userdata;
	control_end();
}

/*
 * Before QEMU 8.0 an instrumented instruction that ends a block leaves its vCPU with a pointer to
 * its callbacks. A flush of translated code frees them, and the kernel's next access through a
 * helper ends QEMU with an assertion. QEMU has a function that clears the pointer, though it is not
 * part of the plugin interface; versions without it do not need it.
 */
static void *(*get_cpu)(int index);
static void (*forget_callbacks)(void *cpu);

/* No vCPU runs now. */
static void on_flush(qemu_plugin_id_t id)
{
	(void)id;
	if (!get_cpu || !forget_callbacks)
		return;
	for (unsigned int v = 0; v < vcpus_max; v++) {
		void *cpu = get_cpu((int)v);

		if (cpu)
			forget_callbacks(cpu);
	}
}

static void register_events(void)
{
	qemu_plugin_register_flush_cb(plugin_id, on_flush);
	qemu_plugin_register_vcpu_idle_cb(plugin_id, on_idle);
	qemu_plugin_register_vcpu_resume_cb(plugin_id, on_resume);
	qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, on_translate);
	qemu_plugin_register_atexit_cb(plugin_id, on_exit_of_qemu, NULL);
}

/* No vCPU runs now, and no translated code is left. */
static void on_reset(qemu_plugin_id_t id)
{
	(void)id;
	atomic_store(&instrumented, true);
	register_events();
}

bool misses_start(void)
{
	struct timespec tick = { .tv_nsec = 1000000 };

	atomic_store(&wanted, true);
	for (int ms = 0; !atomic_load(&instrumented); ms++) {
		if (ms == START_WAIT_MS)
			return false;
		nanosleep(&tick, NULL);
	}
	atomic_store(&counting, true);
	return true;
}

void misses_stop(void)
{
	atomic_store(&counting, false);
}

void misses_reset(void)
{
	cache_clear(&cache);
	modelled_reset(&modelled, misses_epoch() + 1, latency_clock_ns());
	atomic_fetch_add(&epoch, 1);
}

void misses_model(bool on, const struct modelled_settings *settings)
{
	cache_clear(&cache);
	modelled_set(&modelled, on, settings, misses_epoch() + 1, latency_clock_ns());
	atomic_fetch_add(&epoch, 1);
}

bool misses_modelled(struct modelled_settings *settings)
{
	/* Only the control thread, which calls this, ever changes them. */
	*settings = modelled.settings;
	return modelled_is_on(&modelled);
}

void misses_filter(uint64_t start, uint64_t bytes)
{
	atomic_store(&filter_bytes, 0);
	atomic_store(&filter_start, start);
	atomic_store(&filter_bytes, bytes);
}

void misses_program(const struct program *named)
{
	atomic_store(&program.ranges, 0);
	for (unsigned int i = 0; i < named->ranges; i++) {
		atomic_store(&program.start[i], named->start[i]);
		atomic_store(&program.bytes[i], named->bytes[i]);
	}
	atomic_store(&program.ranges, named->ranges);
}

void misses_latency(const uint32_t ns[LAYOUT_NODES_MAX])
{
	for (unsigned int n = 0; n < LAYOUT_NODES_MAX; n++)
		atomic_store(&latency.ns[n], ns[n]);
}

bool misses_sample(uint64_t period)
{
	if (!options.ring)
		return false;
	atomic_store(&sample_period, period);
	return true;
}

enum misses_state misses_state(void)
{
	if (atomic_load(&counting))
		return MISSES_COUNTING;
	return atomic_load(&instrumented) ? MISSES_STOPPED : MISSES_OFF;
}

uint32_t misses_epoch(void)
{
	return atomic_load(&epoch);
}

void misses_totals(struct totals *totals)
{
	memset(totals, 0, sizeof(*totals));
	for (unsigned int v = 0; v < vcpus_max; v++)
		counts_add(totals, vcpus[v], misses_epoch());
}

int64_t misses_dump(const char *path)
{
	/* Little-endian: magic with version; then records to the end of the file. */
	static const char magic[8] = "TLCMISS1";
	char part[4096 + 8];
	int64_t records = 0;
	FILE *out;
	int err;

	snprintf(part, sizeof(part), "%s.part", path);
	out = fopen(part, "wb");
	if (!out)
		return -1;
	if (fwrite(magic, sizeof(magic), 1, out) != 1)
		goto failed;
	for (unsigned int v = 0; v < vcpus_max; v++) {
		int64_t n = counts_write_pages(out, vcpus[v], misses_epoch());

		if (n < 0)
			goto failed;
		records += n;
	}
	if (fclose(out) == 0 && rename(part, path) == 0)
		return records;
	out = NULL;
failed:
	err = errno;
	if (out)
		fclose(out);
	remove(part);
	errno = err;
	return -1;
}

/* Sets up everything that on_access() needs. Returns NULL, or what failed. */
static const char *prepare(const qemu_info_t *info)
{
	if (!info->system_emulation)
		return "only a whole machine can be watched, not a single program";
	if (!options.layout_given)
		return "nodes=MIB:MIB:... is missing: the size of each NUMA node's memory in MiB, in order";
	if (!options.socket)
		return "socket=PATH is missing: where commands are taken";
	/* API version 2 came with QEMU 9.0; 8.2 reports guest-physical addresses under version 1, which
	 * the user must say. */
	if (!options.address_given)
		options.layout.address = info->version.cur < 2 ? LAYOUT_ADDRESS_RAMBLOCK : LAYOUT_ADDRESS_GUEST;
	if (!cache_init(&cache, options.cache_kib, options.ways, options.line_bytes))
		return "cache-kib, ways and line must give a number of sets that is a power of two; line is a power of two from 64 to 4096";
	cache_clear(&cache);

	vcpus_max = (unsigned int)info->system.max_vcpus;
	vcpus = calloc(vcpus_max, sizeof(struct counts *));
	samplers = calloc(vcpus_max, sizeof(struct sampler));
	if (!vcpus || !samplers)
		return "no memory";
	for (unsigned int v = 0; v < vcpus_max; v++) {
		vcpus[v] = counts_new(1ULL << options.page_slots_log2);
		if (!vcpus[v])
			return "no memory for the page tables; lower page-slots";
	}
	if (!modelled_init(&modelled, vcpus_max, options.layout.nodes, options.line_bytes))
		return "no memory";
	return options.ring ? shared_prepare(samplers, &hotlist, &modelled, vcpus) : NULL;
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	const char *wrong;

	for (int i = 0; i < argc; i++) {
		wrong = arguments_take(argv[i]);
		if (wrong) {
			fprintf(stderr, "misses plugin: argument %s: %s\n", argv[i], wrong);
			return -1;
		}
	}
	wrong = prepare(info);
	if (!wrong)
		wrong = control_start();
	if (wrong) {
		fprintf(stderr, "misses plugin: %s\n", wrong);
		return -1;
	}
	plugin_id = id;
	register_events();
	return 0;
}

/* QEMU 9.0 raised the lowest version that it accepts from 0 to 2; the functions used here did not
 * change. The version is read after the library is loaded, so it can be chosen by what the emulator
 * offers: the function looked up here is new in version 2. */
__attribute__((constructor)) static void meet_qemu(void)
{
	if (dlsym(RTLD_DEFAULT, "qemu_plugin_num_vcpus"))
		qemu_plugin_version = 2;
	/* POSIX's way of taking a function from dlsym. */
	*(void **)&get_cpu = dlsym(RTLD_DEFAULT, "qemu_get_cpu");
	*(void **)&forget_callbacks = dlsym(RTLD_DEFAULT, "qemu_plugin_disable_mem_helpers");
}
