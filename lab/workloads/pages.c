/*
 * Holds pages in states that are awkward to move.
 *
 *   pages KIND COUNT
 *
 *   private   COUNT base pages of its own
 *   shared    COUNT base pages that a second process also maps
 *   huge      COUNT huge pages
 *   locked    COUNT base pages, locked into memory
 *   pinned    COUNT base pages; every eighth is a registered io_uring buffer
 *   piped     COUNT base pages; every eighth lies in a pipe (vmsplice)
 *   bound     COUNT base pages, bound to node 2 by mbind
 *   confined  COUNT base pages of a process that is bound to node 2 by set_mempolicy
 *   changing  COUNT base pages that are written to all the time
 *   guest     COUNT base pages that are read all the time; every eighth is a registered io_uring
 *             buffer: like the memory of a virtual machine, some of which a device uses
 *
 * Every page holds its own pattern; writes to it are undone before a check. Prints
 * "ready ADDRESS PAGES", then answers each line on standard input with one line: "check" with "ok"
 * or "bad PAGE"; "let go" with "ok", after it has released what is held and allowed what is bound
 * to node 2 on node 0, too. Ends with its input.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/mempolicy.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096UL
#define HUGE (PAGE * 512)
#define WORDS (PAGE / sizeof(uint64_t))
#define HELD_EVERY 8

static uint64_t *pages;
static size_t count;
static int bound, confined;

static void fail(const char *what)
{
	fprintf(stderr, "pages: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t pattern(size_t page, size_t word)
{
	return (page * WORDS + word + 1) * 0x9e3779b97f4a7c15ULL;
}

static void fill(void)
{
	for (size_t page = 0; page < count; page++)
		for (size_t word = 0; word < WORDS; word++)
			pages[page * WORDS + word] = pattern(page, word);
}

/* The first page that does not hold its pattern, or count. */
static size_t first_bad(void)
{
	for (size_t page = 0; page < count; page++)
		for (size_t word = 0; word < WORDS; word++)
			if (pages[page * WORDS + word] != pattern(page, word))
				return page;
	return count;
}

/* Adds to one word of each page, a different one in each round. */
static void add(uint64_t round, uint64_t what)
{
	for (size_t page = 0; page < count; page++)
		pages[page * WORDS + round % WORDS] += what;
}

/* Reads one word of each page, a different one in each round, and fails if it is not the page's
 * own. */
static void look(uint64_t round)
{
	for (size_t page = 0; page < count; page++)
		if (pages[page * WORDS + round % WORDS] != pattern(page, round % WORDS))
			fail("a page has lost its data");
}

/* Maps COUNT base pages, huge or not, aligned to a huge page. */
static void map(int sharing, int advice)
{
	size_t bytes = count * PAGE + HUGE;
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		fail("mmap");
	at += -(uintptr_t)at & (HUGE - 1);
	if (madvise(at, count * PAGE, advice))
		fail("madvise");
	pages = (uint64_t *)at;
}

static struct iovec page_vector(size_t page)
{
	return (struct iovec){ .iov_base = &pages[page * WORDS], .iov_len = PAGE };
}

static int ring = -1;
static int pipe_ends[2] = { -1, -1 };

static void pin(void)
{
	struct io_uring_params params = { 0 };
	struct iovec held[1024];
	size_t n = 0;

	ring = syscall(SYS_io_uring_setup, 1, &params);
	if (ring < 0)
		fail("io_uring_setup");
	for (size_t page = 0; page < count && n < 1024; page += HELD_EVERY)
		held[n++] = page_vector(page);
	if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, held, n))
		fail("io_uring_register");
}

static void fill_pipe(void)
{
	if (pipe(pipe_ends) || fcntl(pipe_ends[1], F_SETPIPE_SZ, 1 << 20) < 0)
		fail("pipe");
	for (size_t page = 0; page < count; page += HELD_EVERY) {
		struct iovec held = page_vector(page);

		if (vmsplice(pipe_ends[1], &held, 1, SPLICE_F_NONBLOCK) != (ssize_t)PAGE)
			fail("vmsplice");
	}
}

/* Binds the pages, or the process, to the nodes of a mask; without the flag they would change when
 * its cpuset is widened. */
static void bind_to(unsigned long nodes)
{
	int mode = MPOL_BIND | MPOL_F_STATIC_NODES;

	if (bound && syscall(SYS_mbind, pages, count * PAGE, mode, &nodes, 8 * sizeof(nodes), 0))
		fail("mbind");
	if (confined && syscall(SYS_set_mempolicy, mode, &nodes, 8 * sizeof(nodes)))
		fail("set_mempolicy");
}

static void let_go(void)
{
	bind_to(1UL << 0 | 1UL << 2);
	if (ring >= 0 && syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_BUFFERS, NULL, 0))
		fail("io_uring_register");
	for (int end = 0; end < 2; end++)
		if (pipe_ends[end] >= 0)
			close(pipe_ends[end]);
}

/* A second process that has touched every page and waits for the end of the first. */
static void share(void)
{
	int ready[2];
	char byte = 0;
	pid_t child;

	if (pipe(ready))
		fail("pipe");
	child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		byte = first_bad() == count;
		if (write(ready[1], &byte, 1) != 1)
			fail("write");
		for (;;)
			pause();
	}
	if (read(ready[0], &byte, 1) != 1 || !byte)
		fail("the second process");
}

static void answer(const char *line)
{
	size_t bad = count;

	if (!strcmp(line, "check\n"))
		bad = first_bad();
	else
		let_go();
	if (bad == count)
		puts("ok");
	else
		printf("bad %zu\n", bad);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	const char *kind = argc == 3 ? argv[1] : "";
	int guest = !strcmp(kind, "guest");
	int changing = !strcmp(kind, "changing");
	struct pollfd input = { .fd = 0, .events = POLLIN };
	uint64_t rounds = 0, looks = 0;
	char line[64];

	count = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
	if (!strcmp(kind, "huge")) {
		count *= 512;
		map(MAP_PRIVATE, MADV_HUGEPAGE);
	} else {
		map(strcmp(kind, "shared") ? MAP_PRIVATE : MAP_SHARED, MADV_NOHUGEPAGE);
	}
	fill();
	bound = !strcmp(kind, "bound");
	confined = !strcmp(kind, "confined");
	bind_to(1UL << 2);
	if (!strcmp(kind, "shared"))
		share();
	else if (!strcmp(kind, "locked") && mlock(pages, count * PAGE))
		fail("mlock");
	else if (guest || !strcmp(kind, "pinned"))
		pin();
	else if (!strcmp(kind, "piped"))
		fill_pipe();

	printf("ready %#lx %zu\n", (unsigned long)pages, count);
	fflush(stdout);
	for (;;) {
		while (changing && poll(&input, 1, 0) == 0)
			add(rounds++, 1);
		while (guest && poll(&input, 1, 0) == 0)
			look(looks++);
		if (!fgets(line, sizeof(line), stdin))
			return 0;
		while (rounds > 0)
			add(--rounds, -1);
		answer(line);
	}
}
