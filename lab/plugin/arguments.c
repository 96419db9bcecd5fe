// SPDX-License-Identifier: GPL-2.0-or-later
/* The arguments that QEMU passes on, each key=value. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "misses.h"

struct options options = { .cache_kib = 2048, .ways = 16, .line_bytes = 64, .page_slots_log2 = 21, .ring_kib = 1024,
			   .hot_counters = 65536, .hot_list = 8192 };

/* Parses a whole decimal number up to `max`. */
static bool parse_number(const char *text, uint64_t max, uint64_t *value)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*value = strtoull(text, &end, 10);
	return !errno && !*end && *value <= max;
}

const char *arguments_take(char *argument)
{
	char *value = strchr(argument, '=');
	uint64_t number;

	if (!value)
		return "arguments have the form key=value";
	*value++ = '\0';
	if (!strcmp(argument, "nodes")) {
		options.layout_given = true;
		return layout_parse(&options.layout, value);
	}
	if (!strcmp(argument, "cache-kib"))
		return parse_number(value, 1024 * 1024, &options.cache_kib) ? NULL : "cache-kib is a number of KiB";
	if (!strcmp(argument, "ways")) {
		if (!parse_number(value, CACHE_WAYS_MAX, &number))
			return "ways is a number from 1 to 64";
		options.ways = (unsigned int)number;
		return NULL;
	}
	if (!strcmp(argument, "line")) {
		if (!parse_number(value, CACHE_LINE_MAX, &number))
			return "line is a power of two of bytes from 64 to 4096";
		options.line_bytes = (unsigned int)number;
		return NULL;
	}
	if (!strcmp(argument, "page-slots")) {
		if (!parse_number(value, 28, &number) || number < 10)
			return "page-slots is a power of two, given as its exponent, from 10 to 28";
		options.page_slots_log2 = (unsigned int)number;
		return NULL;
	}
	if (!strcmp(argument, "scope")) {
		options.kernel_too = !strcmp(value, "all");
		return options.kernel_too || !strcmp(value, "user") ? NULL : "scope is user or all";
	}
	if (!strcmp(argument, "address")) {
		options.address_given = true;
		options.layout.address = strcmp(value, "guest") ? LAYOUT_ADDRESS_RAMBLOCK : LAYOUT_ADDRESS_GUEST;
		return !strcmp(value, "guest") || !strcmp(value, "ramblock") ? NULL : "address is guest or ramblock";
	}
	if (!strcmp(argument, "ring-kib"))
		return parse_number(value, 64 * 1024, &options.ring_kib) ? NULL : "ring-kib is a number of KiB, at most 65536";
	if (!strcmp(argument, "hot-node")) {
		if (!parse_number(value, LAYOUT_NODES_MAX - 1, &number))
			return "hot-node is the number of a node";
		options.hot_node_given = true;
		options.hot_node = (unsigned int)number;
		return NULL;
	}
	if (!strcmp(argument, "hot-counters")) {
		if (!parse_number(value, HOTLIST_COUNTERS_MAX, &number))
			return "hot-counters is a power of two from 16 to 16777216";
		options.hot_counters = (uint32_t)number;
		return NULL;
	}
	if (!strcmp(argument, "hot-list")) {
		if (!parse_number(value, HOTLIST_SLOTS_MAX, &number))
			return "hot-list is a power of two from 16 to 1048576, or 0";
		options.hot_list = (uint32_t)number;
		return NULL;
	}
	if (!strcmp(argument, "socket") || !strcmp(argument, "guest") || !strcmp(argument, "dir") ||
	    !strcmp(argument, "ring")) {
		/* QEMU's copy of the arguments does not outlive the installation. */
		char *kept = strdup(value);

		if (!kept)
			return "no memory";
		if (*argument == 's')
			options.socket = kept;
		else if (*argument == 'g')
			options.guest = kept;
		else if (*argument == 'r')
			options.ring = kept;
		else
			options.dump_dir = kept;
		return NULL;
	}
	return "unknown; known are nodes, cache-kib, ways, line, page-slots, scope, address, socket, guest, dir, ring, ring-kib, hot-node, hot-counters, "
	       "hot-list";
}
