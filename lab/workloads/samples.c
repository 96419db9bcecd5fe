/*
 * A program with known samples: `samples NODE PERIOD`, its memory on NODE.
 *
 * It maps the sampler's rings, has about every PERIOD-th access tagged, sweeps a block so that
 * every line misses, first reading, then writing, and checks each sample of the block. Then it lets
 * the rings overflow. It prints the results as JSON.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096UL
#define LINE 64UL
#define PAGES 4096UL
#define BYTES (PAGES * PAGE)
#define READS 4
#define WRITES 2
#define PCI "/sys/bus/pci/devices"
/* QEMU's ivshmem device (docs/specs/ivshmem-spec). */
#define VENDOR 0x1af4
#define DEVICE 0x1110
#define BAR "resource2"

struct head {
	char magic[8];
	uint32_t rings, slots, slot_bytes, ring_bytes;
};

struct ring {
	_Atomic uint64_t head, tail, dropped, tagged;
};

struct sample {
	uint64_t time_ns, vaddr, paddr;
	uint32_t latency_ns;
	uint16_t node, flags;
};

static const struct head *head;
static char *block;
static uint64_t pfn[PAGES];
static unsigned int node;
static int writing;
static uint64_t last_ns[64];
static uint64_t reads, writes, others, wrong;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static long number_in(const char *device, const char *name)
{
	char path[512];
	long value = -1;
	FILE *file;

	snprintf(path, sizeof(path), PCI "/%s/%s", device, name);
	file = fopen(path, "r");
	if (file && fscanf(file, "%li", &value) != 1)
		value = -1;
	if (file)
		fclose(file);
	return value;
}

static void *map_rings(void)
{
	DIR *folder = opendir(PCI);
	struct dirent *entry;
	char path[512];
	struct stat stat;
	void *memory;
	FILE *enable;
	int fd;

	while (folder && (entry = readdir(folder))) {
		if (number_in(entry->d_name, "vendor") != VENDOR || number_in(entry->d_name, "device") != DEVICE)
			continue;
		snprintf(path, sizeof(path), PCI "/%s/enable", entry->d_name);
		enable = fopen(path, "w");
		if (!enable || fputs("1", enable) < 0 || fclose(enable))
			fail(path);
		snprintf(path, sizeof(path), PCI "/%s/" BAR, entry->d_name);
		fd = open(path, O_RDWR | O_SYNC);
		if (fd < 0 || fstat(fd, &stat))
			fail(path);
		memory = mmap(NULL, (size_t)stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (memory == MAP_FAILED)
			fail(path);
		return memory;
	}
	fprintf(stderr, "there is no sampler in this guest\n");
	exit(1);
}

static struct ring *ring_of(uint32_t index)
{
	return (struct ring *)((char *)head + PAGE + (uint64_t)index * head->ring_bytes);
}

static void look_at(const struct sample *sample, uint64_t *last)
{
	uint64_t at = sample->vaddr - (uint64_t)(uintptr_t)block;

	wrong += sample->time_ns < *last;
	*last = sample->time_ns;
	if (at >= BYTES) {
		others++;
		return;
	}
	*(writing ? &writes : &reads) += 1;
	wrong += sample->paddr != pfn[at / PAGE] * PAGE + at % PAGE || sample->node != node ||
		 sample->flags != writing || sample->latency_ns != 0;
}

static void drain(void)
{
	for (uint32_t i = 0; i < head->rings; i++) {
		struct ring *ring = ring_of(i);
		const struct sample *slots = (struct sample *)((char *)ring + PAGE);
		uint64_t end = atomic_load_explicit(&ring->head, memory_order_acquire);
		uint64_t at = atomic_load_explicit(&ring->tail, memory_order_relaxed);

		for (; at < end; at++)
			look_at(&slots[at % head->slots], &last_ns[i % 64]);
		atomic_store_explicit(&ring->tail, at, memory_order_release);
	}
}

static void sweep(int drained)
{
	for (uint64_t page = 0; page < PAGES; page++) {
		for (uint64_t at = page * PAGE; at < (page + 1) * PAGE; at += LINE) {
			volatile uint64_t *word = (volatile uint64_t *)(block + at);

			if (writing)
				*word = at;
			else
				(void)*word;
		}
		if (drained)
			drain();
	}
}

static void tell(const char *command)
{
	char line[128];

	snprintf(line, sizeof(line), "misses %s >/dev/null", command);
	if (system(line))
		exit(1);
}

static uint64_t dropped(void)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < head->rings; i++)
		sum += ring_of(i)->dropped;
	return sum;
}

static void find_frames(void)
{
	int fd = open("/proc/self/pagemap", O_RDONLY);
	off_t at = (off_t)((uintptr_t)block / PAGE * sizeof(*pfn));

	if (fd < 0 || pread(fd, pfn, sizeof(pfn), at) != sizeof(pfn))
		fail("/proc/self/pagemap");
	close(fd);
	/* Documentation/admin-guide/mm/pagemap.rst: bits 0 to 54. */
	for (uint64_t page = 0; page < PAGES; page++)
		pfn[page] &= (1UL << 55) - 1;
}

int main(int argc, char **argv)
{
	uint64_t before, lost;
	char command[64];

	if (argc != 3)
		return 2;
	node = (unsigned int)atoi(argv[1]);
	head = map_rings();
	if (memcmp(head->magic, "TLCSAMP1", 8) || head->slot_bytes != sizeof(struct sample)) {
		fprintf(stderr, "these are no rings of this version\n");
		return 1;
	}
	block = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (block == MAP_FAILED)
		fail("mmap");
	memset(block, 1, BYTES);
	find_frames();
	tell("start");
	drain();
	reads = writes = others = wrong = 0;
	before = dropped();
	snprintf(command, sizeof(command), "sample %s", argv[2]);
	tell(command);
	for (int i = 0; i < READS; i++)
		sweep(1);
	writing = 1;
	for (int i = 0; i < WRITES; i++)
		sweep(1);
	tell("sample none");
	drain();
	lost = dropped() - before;

	/* There is no reader now. */
	writing = 0;
	before = dropped();
	tell("sample 1");
	sweep(0);
	tell("sample none");
	printf("{\"rings\":%" PRIu32 ",\"slots\":%" PRIu32 ",\"lines_read\":%lu,\"lines_written\":%lu,\"reads\":%" PRIu64
	       ",\"writes\":%" PRIu64 ",\"others\":%" PRIu64 ",\"wrong\":%" PRIu64 ",\"dropped\":%" PRIu64
	       ",\"lines_overflowing\":%lu,\"dropped_overflowing\":%" PRIu64 "}\n",
	       head->rings, head->slots, READS * BYTES / LINE, WRITES * BYTES / LINE, reads, writes, others, wrong, lost,
	       BYTES / LINE, dropped() - before);
	return 0;
}
