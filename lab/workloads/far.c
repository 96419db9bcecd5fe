/*
 * Preloaded into a program it maps two pages far from everything else and from each other, as
 * language runtimes do that choose their own addresses. The two largest holes between the program's
 * mappings then lie elsewhere than beside its heap.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

__attribute__((constructor)) static void map_far(void)
{
	for (int shift = 44; shift <= 46; shift += 2) {
		char *at = mmap((void *)(1UL << shift), 4096, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

		if (at == MAP_FAILED) {
			perror("far");
			exit(1);
		}
		*at = 1;
	}
}
