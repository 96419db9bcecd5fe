// SPDX-License-Identifier: GPL-2.0-or-later
#include "sampler.h"

#include <string.h>

bool sampler_init(struct sampler *samplers, unsigned int vcpus, void *memory, uint64_t bytes)
{
	struct sampler_head head = { .magic = SAMPLER_MAGIC, .rings = vcpus, .slot_bytes = sizeof(struct sample) };
	char *at = (char *)memory + SAMPLER_PAGE;
	uint32_t slots = SAMPLER_SLOTS_MAX;

	while (slots && SAMPLER_PAGE + vcpus * (SAMPLER_PAGE + (uint64_t)slots * sizeof(struct sample)) > bytes)
		slots /= 2;
	/* Rings begin at pages. */
	if (slots * sizeof(struct sample) < SAMPLER_PAGE)
		return false;
	head.slots = slots;
	head.ring_bytes = SAMPLER_PAGE + slots * (uint32_t)sizeof(struct sample);
	for (unsigned int v = 0; v < vcpus; v++, at += head.ring_bytes) {
		samplers[v] = (struct sampler){
			.random = 0x9e3779b97f4a7c15ULL * (v + 1),
			.ring = (struct sampler_ring *)at,
			.slots = (struct sample *)(at + SAMPLER_PAGE),
			.slots_count = slots,
		};
	}
	memcpy(memory, &head, sizeof(head));
	return true;
}

void sampler_arm(struct sampler *sampler, uint64_t period)
{
	/* xorshift64 (Marsaglia 2003). */
	sampler->random ^= sampler->random << 13;
	sampler->random ^= sampler->random >> 7;
	sampler->random ^= sampler->random << 17;
	atomic_store_explicit(&sampler->ring->period, period, memory_order_relaxed);
	sampler->left = period - period / 2 + sampler->random % (period / 2 * 2 + 1);
}

void sampler_put(struct sampler *sampler, const struct sample *sample)
{
	uint64_t tail = atomic_load_explicit(&sampler->ring->tail, memory_order_acquire);

	if (sampler->written - tail >= sampler->slots_count) {
		sampler_add_one(&sampler->ring->dropped);
		return;
	}
	sampler->slots[sampler->written % sampler->slots_count] = *sample;
	atomic_store_explicit(&sampler->ring->head, ++sampler->written, memory_order_release);
}
