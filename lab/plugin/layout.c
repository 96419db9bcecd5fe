// SPDX-License-Identifier: GPL-2.0-or-later
#include "layout.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#define MIB (1ULL << 20)
#define GIB (1ULL << 30)

/* QEMU's q35 keeps 2 GiB below the hole when there is 2816 MiB of RAM or more, else all of it
 * (hw/i386/pc_q35.c). */
#define Q35_LOW_LIMIT (2816 * MIB)
#define Q35_LOW_SPLIT (2 * GIB)

/* The cache model and the page table number lines and pages in 32 and 28 bits. */
#define RAM_MAX (128 * GIB)

const char *layout_parse(struct layout *layout, const char *nodes_mib)
{
	uint64_t total = 0;
	const char *at = nodes_mib;

	layout->nodes = 0;
	for (;;) {
		char *end;
		unsigned long long mib;

		if (*at < '0' || *at > '9')
			return "sizes are MiB, one a node, separated by ':'";
		errno = 0;
		mib = strtoull(at, &end, 10);
		if (errno || mib > RAM_MAX / MIB || total + mib * MIB > RAM_MAX)
			return "more than 128 GiB of RAM";
		if (layout->nodes == LAYOUT_NODES_MAX)
			return "more than 16 nodes";
		layout->base[layout->nodes] = total;
		layout->size[layout->nodes] = mib * MIB;
		layout->nodes++;
		total += mib * MIB;
		if (!*end)
			break;
		if (*end != ':')
			return "sizes are MiB, one a node, separated by ':'";
		at = end + 1;
	}
	layout->below_4g = total >= Q35_LOW_LIMIT ? Q35_LOW_SPLIT : total;
	return NULL;
}

bool layout_locate(const struct layout *layout, uint64_t reported, uint64_t *guest_physical, unsigned int *node)
{
	bool guest = layout->address == LAYOUT_ADDRESS_GUEST;
	uint64_t ram = reported;
	unsigned int n;

	if (guest && reported >= layout->below_4g) {
		if (reported < 4 * GIB)
			return false;
		ram = reported - 4 * GIB + layout->below_4g;
	}
	for (n = 0; n < layout->nodes; n++) {
		uint64_t start = guest ? layout->base[n] : 2 * layout->base[n];

		if (ram - start < layout->size[n]) {
			ram = ram - start + layout->base[n];
			*guest_physical = ram < layout->below_4g ? ram : ram - layout->below_4g + 4 * GIB;
			*node = n;
			return true;
		}
	}
	return false;
}

unsigned int layout_pieces(const struct layout *layout, unsigned int node, struct layout_piece piece[LAYOUT_PIECES_MAX])
{
	uint64_t start = layout->base[node], end = start + layout->size[node], cut = layout->below_4g;
	unsigned int pieces = 0;

	if (start < cut)
		piece[pieces++] = (struct layout_piece){ .base = start, .bytes = (end < cut ? end : cut) - start };
	if (end > cut) {
		start = start > cut ? start : cut;
		piece[pieces++] = (struct layout_piece){ .base = start - cut + 4 * GIB, .bytes = end - start };
	}
	return pieces;
}
