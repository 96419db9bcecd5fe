// SPDX-License-Identifier: GPL-2.0-or-later
#include "shared.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "misses.h"

const char *shared_prepare(struct sampler *samplers, struct hotlist *hotlist, struct modelled *modelled, struct counts *const *vcpus)
{
	int fd = open(options.ring, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	uint64_t bytes = options.ring_kib * 1024;
	uint64_t list_bytes = options.hot_list ? hotlist_bytes(options.hot_list) : 0;
	uint64_t behind_bytes = list_bytes + modelled_bytes(modelled->vcpus);
	unsigned int node = options.hot_node_given ? options.hot_node : options.layout.nodes - 1;
	struct sampler_head *head;
	void *memory = MAP_FAILED;
	const char *wrong;

	/* Nothing that an earlier machine has left there may be taken for this one's. */
	if (fd >= 0 && ftruncate(fd, 0) == 0 && ftruncate(fd, (off_t)bytes) == 0)
		memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	if (memory == MAP_FAILED)
		return "ring=PATH cannot be made or mapped; is its folder there and writable?";
	if (behind_bytes >= bytes || !sampler_init(samplers, modelled->vcpus, memory, bytes - behind_bytes))
		return "ring-kib is too small for this many vCPUs and this hot-list";
	head = memory;
	modelled_show(modelled, vcpus, misses_epoch(), (char *)memory + bytes - behind_bytes);
	head->modelled_at = (uint32_t)(bytes - behind_bytes);
	if (!list_bytes)
		return NULL;
	wrong = hotlist_init(hotlist, &options.layout, node, options.hot_counters, options.hot_list, (char *)memory + bytes - list_bytes);
	if (!wrong)
		head->hotlist_at = (uint32_t)(bytes - list_bytes);
	return wrong;
}
