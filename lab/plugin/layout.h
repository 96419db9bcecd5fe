/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Where each NUMA node's memory lies: translates an address that QEMU reports to a guest-physical
 * address and a node. */
#ifndef LAYOUT_H
#define LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#define LAYOUT_NODES_MAX 16

/* What qemu_plugin_hwaddr_phys_addr() returns. */
enum layout_address {
	/* QEMU before 8.2: offset in the list of RAM blocks, plus the block's own offset in the machine's
	 * RAM. With one memory backend for each node, in node order, each of the two is the sum of the
	 * sizes before it, so that sum counts twice. */
	LAYOUT_ADDRESS_RAMBLOCK,
	/* QEMU 8.2 and later: the guest-physical address. */
	LAYOUT_ADDRESS_GUEST,
};

struct layout {
	enum layout_address address;
	unsigned int nodes;
	uint64_t base[LAYOUT_NODES_MAX];	/* first byte of the node in the machine's RAM, holes left out */
	uint64_t size[LAYOUT_NODES_MAX];	/* bytes */
	uint64_t below_4g;			/* bytes of RAM below the PCI hole; the rest starts at 4 GiB */
};

/* Contiguous ranges of a node's memory: the PCI hole cuts at most one node in two. */
#define LAYOUT_PIECES_MAX 2

struct layout_piece {
	uint64_t base;	/* guest-physical */
	uint64_t bytes;
};

/* Parses "1024:1024:2048" (MiB by node) and sets `below_4g` as the q35 machine does. Returns NULL
 * or what is wrong. */
const char *layout_parse(struct layout *layout, const char *nodes_mib);

/* Translates an address as reported by QEMU. False where it lies in no node's memory (firmware,
 * video). */
bool layout_locate(const struct layout *layout, uint64_t reported, uint64_t *guest_physical, unsigned int *node);

/* Where a node's memory lies, in ascending order. Returns the number of pieces. */
unsigned int layout_pieces(const struct layout *layout, unsigned int node, struct layout_piece piece[LAYOUT_PIECES_MAX]);

#endif
