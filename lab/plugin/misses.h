/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the control socket can ask of the plugin. Only the control thread calls these functions. */
#ifndef MISSES_H
#define MISSES_H

#include <stdbool.h>
#include <stdint.h>

#include "cache.h"
#include "counts.h"
#include "hotlist.h"
#include "latency.h"
#include "layout.h"
#include "modelled.h"
#include "sampler.h"

struct options {
	struct layout layout;
	bool layout_given;
	bool address_given;
	bool kernel_too;	/* scope=all */
	uint64_t cache_kib;
	unsigned int ways;
	unsigned int line_bytes;
	unsigned int page_slots_log2;
	const char *socket;
	const char *guest;	/* NULL: the guest cannot ask */
	const char *dump_dir;	/* NULL: no dumps */
	const char *ring;	/* NULL: no samples */
	uint64_t ring_kib;
	bool hot_node_given;
	unsigned int hot_node;	/* whose misses the hot list counts; the last one by default */
	uint32_t hot_counters;
	uint32_t hot_list;	/* its slots; 0: there is none */
};

extern struct options options;

/* Takes one key=value argument, whose text it modifies. Returns NULL, or what is wrong with it. */
const char *arguments_take(char *argument);

/* The most ranges that a program's memory can be named by. */
#define PROGRAM_RANGES_MAX 8

struct program {
	unsigned int ranges;
	uint64_t start[PROGRAM_RANGES_MAX];
	uint64_t bytes[PROGRAM_RANGES_MAX];
};

/* From now on, instructions also count as the program's if the next access after them is to its
 * memory. */
void misses_program(const struct program *named);

enum misses_state { MISSES_OFF, MISSES_STOPPED, MISSES_COUNTING };

/* Instruments the guest's code unless that is done, then counts. False if no vCPU got to it within
 * ten seconds. */
bool misses_start(void);

/* Stops counting at once. The code stays instrumented, which costs little, and the next start is
 * immediate. */
void misses_stop(void);

/* Zeroes every counter and empties the modelled cache. */
void misses_reset(void);

/* From now on counts only accesses to virtual addresses in [start, start + bytes). The cache still
 * sees all. */
void misses_filter(uint64_t start, uint64_t bytes);

/* From now on a vCPU waits `ns` of the serving node for each miss, while misses are counted. */
void misses_latency(const uint32_t ns[LAYOUT_NODES_MAX]);

/* Models time with these settings from now on, or not at all, and starts counting from zero as
 * misses_reset() does. */
void misses_model(bool on, const struct modelled_settings *settings);

/* The model's settings; false if time is not modelled. */
bool misses_modelled(struct modelled_settings *settings);

/* From now on about every Nth access is tagged for a sample, while misses are counted; 0 tags none.
 * With SAMPLER_ASKED each ring's reader says how many. False without rings. */
bool misses_sample(uint64_t period);

enum misses_state misses_state(void);
uint32_t misses_epoch(void);
void misses_totals(struct totals *totals);

/* Writes the page dump to `path`, whole or not at all. Returns the number of records, or -1
 * (errno). */
int64_t misses_dump(const char *path);

/* Starts the thread that serves `options.socket`. NULL, or what failed. */
const char *control_start(void);

/* Takes the socket's name out of the file system. */
void control_end(void);

#endif
