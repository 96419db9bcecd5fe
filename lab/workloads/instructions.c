/*
 * A program with a known number of instructions: `instructions LOOPS`.
 *
 * It prints the ranges of its memory on one line, as the plugin's command `program` takes them,
 * waits for a line of input, executes LOOPS times three instructions of which one loads and stores,
 * prints "done" and waits for another line.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define RANGES_MAX 8
#define NEAR (1UL << 30)
#define USER_END (1UL << 47)

static int print_ranges(void)
{
	unsigned long start[RANGES_MAX], end[RANGES_MAX], from, to;
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int ranges = 0;

	if (!maps)
		return -1;
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx", &from, &to) != 2 || from >= USER_END)
			continue;
		if (ranges && from - end[ranges - 1] <= NEAR) {
			end[ranges - 1] = to;
			continue;
		}
		if (ranges == RANGES_MAX)
			return -1;
		start[ranges] = from;
		end[ranges++] = to;
	}
	fclose(maps);
	for (int i = 0; i < ranges; i++)
		printf("%s%lx %lx", i ? " " : "", start[i], end[i]);
	printf("\n");
	return fflush(stdout);
}

int main(int argc, char **argv)
{
	volatile uint64_t cell = 0;
	uint64_t loops;
	char line[16];

	if (argc != 2 || !(loops = strtoull(argv[1], NULL, 10)) || print_ranges() || !fgets(line, sizeof(line), stdin))
		return 1;
	__asm__ volatile("1: addq $1, %1\n\tdecq %0\n\tjnz 1b" : "+r"(loops), "+m"(cell) : : "cc");
	puts("done");
	fflush(stdout);
	return fgets(line, sizeof(line), stdin) ? 0 : 1;
}
