/*
 * A file system that never answers a read, and a process that hangs on it with its mmap lock held
 * for writing.
 *
 *   hang FOLDER MIB REPORT
 *
 * Mounts a FUSE file system with one file at FOLDER. Another process holds MIB MiB of memory and
 * writes to them all the time, also when it hangs. Its number is written to REPORT when the memory
 * is filled. It hangs from SIGUSR1 on, while the file system exists: one thread touches a private
 * mapping of the file and waits for its page, another maps the file, for which the kernel, with the
 * lock held, waits for the same page (Linux fs/fuse/file.c, fuse_file_mmap). SIGTERM ends both
 * processes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define FILE_ID 2
#define FILE_BYTES (16 * PAGE)

static volatile sig_atomic_t ended;

static void fail(const char *what)
{
	fprintf(stderr, "hang: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void on_end(int signal)
{
	ended = signal;
}

/* One answer to the kernel. */
static void answer(int device, unsigned long long unique, int error, const void *body, size_t bytes)
{
	char text[sizeof(struct fuse_out_header) + 512];
	struct fuse_out_header head = { .len = sizeof(head) + bytes, .error = -error, .unique = unique };

	memcpy(text, &head, sizeof(head));
	memcpy(text + sizeof(head), body, bytes);
	if (write(device, text, head.len) < 0 && errno != ENOENT)
		fail("answer");
}

static struct fuse_attr attributes(unsigned long long id)
{
	struct fuse_attr attr = { .ino = id, .nlink = 1, .blksize = PAGE };

	attr.mode = id == FILE_ID ? S_IFREG | 0644 : S_IFDIR | 0755;
	attr.size = id == FILE_ID ? FILE_BYTES : 0;
	return attr;
}

/* Answers everything but reads. */
static void serve(int device)
{
	static char text[1 << 18];

	while (!ended) {
		ssize_t bytes = read(device, text, sizeof(text));
		struct fuse_in_header *in = (struct fuse_in_header *)text;
		const void *arguments = in + 1;

		if (bytes < 0) {
			if (errno == EINTR || errno == ENOENT || errno == EAGAIN)
				continue;
			fail("read requests");
		}
		switch (in->opcode) {
		case FUSE_INIT: {
			const struct fuse_init_in *asked = arguments;
			struct fuse_init_out out = { .major = 7, .minor = 31, .max_write = PAGE };

			out.max_readahead = asked->max_readahead;
			answer(device, in->unique, 0, &out, sizeof(out));
			break;
		}
		case FUSE_LOOKUP: {
			struct fuse_entry_out out = { .nodeid = FILE_ID, .attr_valid = 3600, .entry_valid = 3600 };

			out.attr = attributes(FILE_ID);
			answer(device, in->unique, 0, &out, sizeof(out));
			break;
		}
		case FUSE_GETATTR: {
			struct fuse_attr_out out = { .attr_valid = 3600, .attr = attributes(in->nodeid) };

			answer(device, in->unique, 0, &out, sizeof(out));
			break;
		}
		case FUSE_OPEN: {
			struct fuse_open_out out = { .open_flags = FOPEN_DIRECT_IO };

			answer(device, in->unique, 0, &out, sizeof(out));
			break;
		}
		case FUSE_READ:
		case FUSE_FORGET:
		case FUSE_BATCH_FORGET:
		case FUSE_INTERRUPT:
			break;
		case FUSE_FLUSH:
		case FUSE_RELEASE:
			answer(device, in->unique, 0, "", 0);
			break;
		default:
			answer(device, in->unique, ENOSYS, "", 0);
		}
	}
}

static volatile unsigned long *memory;
static size_t words;
static int file;

static void *write_always(void *unused)
{
	for (unsigned long round = 1;; round++)
		for (size_t word = 0; word < words; word += PAGE / sizeof(*memory))
			memory[word] = round;
	return unused;
}

static void *map_file(void *unused)
{
	(void)unused;
	return mmap(NULL, FILE_BYTES, PROT_READ, MAP_PRIVATE, file, 0);
}

static void *touch(void *mapping)
{
	return *(volatile char *)mapping ? mapping : NULL;
}

static void hold(const char *folder, size_t bytes, const char *report)
{
	pthread_t writer, toucher, mapper;
	sigset_t signals;
	char path[4096];
	FILE *told;
	int signal;
	void *mapping;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	snprintf(path, sizeof(path), "%s/file", folder);
	file = open(path, O_RDONLY);
	if (file < 0)
		fail(path);
	mapping = map_file(NULL);
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mapping == MAP_FAILED || memory == MAP_FAILED)
		fail("mmap");
	madvise((void *)memory, bytes, MADV_NOHUGEPAGE);
	words = bytes / sizeof(*memory);
	for (size_t word = 0; word < words; word += PAGE / sizeof(*memory))
		memory[word] = 1;
	told = fopen(report, "w");
	if (!told || fprintf(told, "%d\n", getpid()) < 0 || fclose(told))
		fail(report);
	if (pthread_create(&writer, NULL, write_always, NULL))
		fail("a thread");
	sigwait(&signals, &signal);
	if (pthread_create(&toucher, NULL, touch, mapping))
		fail("a thread");
	/* Until it waits for its page. */
	sleep(1);
	if (pthread_create(&mapper, NULL, map_file, NULL))
		fail("a thread");
	pthread_join(mapper, NULL);
	printf("hangs no more\n");
}

int main(int argc, char **argv)
{
	struct sigaction act = { .sa_handler = on_end };
	char options[128];
	int device;
	pid_t child;

	if (argc != 4) {
		fprintf(stderr, "usage: hang FOLDER MIB REPORT\n");
		return 2;
	}
	device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (device < 0)
		fail("/dev/fuse");
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
	if (mount("hang", argv[1], "fuse.hang", MS_NOSUID | MS_NODEV, options))
		fail("mount");
	sigaction(SIGTERM, &act, NULL);
	child = fork();
	if (child < 0)
		fail("fork");
	if (!child) {
		close(device);
		signal(SIGTERM, SIG_DFL);
		hold(argv[1], strtoul(argv[2], NULL, 10) << 20, argv[3]);
		return 0;
	}
	serve(device);
	/* The file system ends with its last user, and waiting processes get an error. */
	kill(child, SIGKILL);
	close(device);
	waitpid(child, NULL, 0);
	umount2(argv[1], MNT_DETACH);
	return 0;
}
