// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The control socket: a Unix stream socket, one command a line, one line of JSON back. Several
 * clients may be connected. One of them may be a port of the guest, so that programs inside can ask
 * as well: QEMU listens there and we connect, because QEMU makes its ports before it loads plugins.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "misses.h"

#define CLIENTS_MAX 8
#define LINE_MAX_BYTES 512
#define REPLY_MAX_BYTES 8192

struct client {
	int fd;		/* -1: free */
	size_t used;
	bool too_long;	/* the rest of an overlong line is being skipped */
	char line[LINE_MAX_BYTES];
};

struct reply {
	size_t used;
	char text[REPLY_MAX_BYTES];
};

static int listener = -1;
static int guest_port = -1;

static void say(struct reply *reply, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct reply *reply, const char *format, ...)
{
	size_t room = sizeof(reply->text) - reply->used;
	va_list arguments;
	int n;

	va_start(arguments, format);
	n = vsnprintf(reply->text + reply->used, room, format, arguments);
	va_end(arguments);
	if (n > 0)
		reply->used += (size_t)n < room ? (size_t)n : room - 1;
}

static uint64_t instructions_ns(uint64_t instructions, uint64_t cpi_fs)
{
	return (uint64_t)((double)instructions * (double)cpi_fs / 1e6);
}

/* Appends the vCPUs' clocks, added up, and the part of them that belongs to the named program and
 * the misses that are counted. */
static void say_modelled(struct reply *reply, const struct modelled_settings *model, const struct totals *totals)
{
	uint64_t all_ns = instructions_ns(totals->instructions, model->cpi_fs);
	uint64_t program_ns = instructions_ns(totals->program, model->cpi_fs);
	uint64_t counted_ps = 0;

	for (unsigned int n = 0; n < options.layout.nodes; n++)
		counted_ps += totals->latency_ps[n] + totals->queueing_ps[n];
	say(reply,
	    "{\"ns\":%" PRIu64 ",\"reference_ns\":%" PRIu64 ",\"program_ns\":%" PRIu64 ",\"program_reference_ns\":%" PRIu64 "}",
	    all_ns + totals->waited_ps / 1000, all_ns + totals->reference_ps / 1000, program_ns + counted_ps / 1000,
	    program_ns + totals->counted_reference_ps / 1000);
}

static void say_counts(struct reply *reply)
{
	static const char *const states[] = { "off", "stopped", "counting" };
	struct timespec now;
	struct modelled_settings model;
	struct totals totals;
	bool on = misses_modelled(&model);

	misses_totals(&totals);
	clock_gettime(CLOCK_MONOTONIC, &now);
	say(reply, "{\"state\":\"%s\",\"epoch\":%" PRIu32 ",\"host_ns\":%" PRIu64 ",\"nodes\":[", states[misses_state()],
	    misses_epoch(), (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
	for (unsigned int n = 0; n < options.layout.nodes; n++) {
		const uint64_t *kind = totals.node[n];

		say(reply,
		    "%s{\"loads\":%" PRIu64 ",\"stores\":%" PRIu64 ",\"load_misses\":%" PRIu64 ",\"store_misses\":%" PRIu64
		    ",\"latency_ns\":%" PRIu64 ",\"queueing_ns\":%" PRIu64 "}",
		    n ? "," : "", kind[ACCESS_LOAD], kind[ACCESS_STORE], kind[ACCESS_LOAD_MISS],
		    kind[ACCESS_STORE_MISS], totals.latency_ps[n] / 1000, totals.queueing_ps[n] / 1000);
	}
	say(reply,
	    "],\"io\":%" PRIu64 ",\"outside\":%" PRIu64 ",\"unresolved\":%" PRIu64 ",\"pages\":%" PRIu64
	    ",\"pages_lost\":%" PRIu64
	    ",\"instructions\":%" PRIu64 ",\"program_instructions\":%" PRIu64 ",\"modelled\":",
	    totals.io, totals.outside, totals.unresolved, totals.pages, totals.pages_lost, totals.instructions,
	    totals.program);
	if (on)
		say_modelled(reply, &model, &totals);
	else
		say(reply, "null");
	say(reply, "}\n");
}

static void say_dump(struct reply *reply, const char *name)
{
	char path[4096];
	int64_t records;

	if (!options.dump_dir) {
		say(reply, "{\"error\":\"the plugin was loaded without dir=PATH, so there is no place for dumps\"}\n");
		return;
	}
	/* The client may be in the guest: it may name a file, never a folder. */
	for (const char *c = name; *c; c++) {
		if ((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '-' ||
		    *c == '_' || (*c == '.' && c != name))
			continue;
		say(reply, "{\"error\":\"a dump's name is letters, digits, '-', '_' and '.', without a folder\"}\n");
		return;
	}
	if (snprintf(path, sizeof(path), "%s/%s", options.dump_dir, name) >= (int)sizeof(path)) {
		say(reply, "{\"error\":\"the dump's path is too long\"}\n");
		return;
	}
	records = misses_dump(path);
	if (records < 0)
		say(reply, "{\"error\":\"writing the dump failed, errno %d\"}\n", errno);
	else
		say(reply, "{\"ok\":true,\"records\":%" PRId64 "}\n", records);
}

/* Reads pairs of hexadecimal bounds to the end of the line. */
static bool parse_program(struct program *named, const char *at)
{
	uint64_t start, end;
	int used = 0;

	for (named->ranges = 0; *at; at += used) {
		if (named->ranges == PROGRAM_RANGES_MAX ||
		    sscanf(at, " %" SCNx64 " %" SCNx64 "%n", &start, &end, &used) != 2 || start >= end)
			return false;
		named->start[named->ranges] = start;
		named->bytes[named->ranges++] = end - start;
	}
	return named->ranges > 0;
}

/* Reads a latency for each node to the end of the line, or "none". */
static bool parse_latency(uint32_t ns[LAYOUT_NODES_MAX], const char *at)
{
	unsigned int nodes = 0;
	int used = 0;

	memset(ns, 0, LAYOUT_NODES_MAX * sizeof(*ns));
	if (!strcmp(at, "none"))
		return true;
	for (; *at; at += used) {
		if (nodes == options.layout.nodes || sscanf(at, " %9" SCNu32 "%n", &ns[nodes], &used) != 1 ||
		    ns[nodes++] > LATENCY_NS_MAX)
			return false;
	}
	return nodes == options.layout.nodes;
}

static void obey(struct reply *reply, const char *line)
{
	char word[16] = "", name[256] = "";
	struct program named = { .ranges = 0 };
	struct modelled_settings model = { .cpi_fs = 0 };
	uint32_t ns[LAYOUT_NODES_MAX];
	uint64_t start, end;
	int rest = 0;

	if (!strcmp(line, "counts")) {
		say_counts(reply);
		return;
	}
	if (sscanf(line, "pages %255s%n", name, &rest) == 1 && !line[rest]) {
		say_dump(reply, name);
		return;
	}
	if (!strcmp(line, "start")) {
		if (!misses_start()) {
			say(reply, "{\"error\":\"no vCPU passed by to switch the counting on; run any command in the "
				   "guest and try again\"}\n");
			return;
		}
	} else if (!strcmp(line, "stop")) {
		misses_stop();
	} else if (!strcmp(line, "reset")) {
		misses_reset();
	} else if (!strcmp(line, "filter none")) {
		misses_filter(0, UINT64_MAX);
	} else if (sscanf(line, "filter %" SCNx64 " %" SCNx64 "%n", &start, &end, &rest) == 2 && !line[rest] &&
		   start < end) {
		misses_filter(start, end - start);
	} else if (!strcmp(line, "program none") || (!strncmp(line, "program ", 8) && parse_program(&named, line + 8))) {
		misses_program(&named);
	} else if (!strncmp(line, "latency ", 8) && parse_latency(ns, line + 8)) {
		misses_latency(ns);
	} else if (!strcmp(line, "model none") || (!strncmp(line, "model ", 6) && modelled_parse(&model, options.layout.nodes, line + 6))) {
		misses_model(line[6] != 'n', &model);
	} else if (!strcmp(line, "sample none") || !strcmp(line, "sample asked") ||
		   (sscanf(line, "sample %9" SCNu64 "%n", &start, &rest) == 1 && !line[rest] && start)) {
		if (!misses_sample(line[7] == 'n' ? 0 : line[7] == 'a' ? SAMPLER_ASKED : start)) {
			say(reply, "{\"error\":\"the plugin was loaded without ring=PATH, so there is no place for "
				   "samples\"}\n");
			return;
		}
	} else {
		/* Only the command's word is repeated, and only if it needs no escaping. */
		if (sscanf(line, "%15[a-z]", word) != 1)
			word[0] = '\0';
		say(reply,
		    "{\"error\":\"not understood: %s...; commands are start, stop, reset, counts, pages NAME, "
		    "filter HEX HEX, filter none, program HEX HEX ..., program none, latency NS (one for each node, at most a million), latency none, "
		    "model NS NS[:GBPS] ... (ns an instruction, then ns a miss and GB/s of each node), model none, sample N, sample asked, sample none\"}\n",
		    word);
		return;
	}
	say(reply, "{\"ok\":true}\n");
}

static void hang_up(struct client *client)
{
	close(client->fd);
	client->fd = -1;
}

static bool send_all(int fd, const char *text, size_t bytes)
{
	while (bytes) {
		ssize_t n = send(fd, text, bytes, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		text += n;
		bytes -= (size_t)n;
	}
	return true;
}

static void serve_byte(struct client *client, char byte)
{
	struct reply reply = { .used = 0 };

	if (byte != '\n') {
		if (byte == '\r')
			return;
		if (client->used + 1 == sizeof(client->line))
			client->too_long = true;
		else
			client->line[client->used++] = byte;
		return;
	}
	client->line[client->used] = '\0';
	if (client->too_long)
		say(&reply, "{\"error\":\"a line is at most %d bytes\"}\n", LINE_MAX_BYTES - 1);
	else if (client->used)
		obey(&reply, client->line);
	client->used = 0;
	client->too_long = false;
	if (!send_all(client->fd, reply.text, reply.used))
		hang_up(client);
}

static void serve(struct client *client)
{
	char bytes[LINE_MAX_BYTES];
	ssize_t n = recv(client->fd, bytes, sizeof(bytes), 0);

	if (n < 0 && errno == EINTR)
		return;
	if (n <= 0) {
		hang_up(client);
		return;
	}
	for (ssize_t i = 0; i < n && client->fd >= 0; i++)
		serve_byte(client, bytes[i]);
}

static void welcome(struct client *clients, int fd)
{
	/* A client that does not take its replies is dropped rather than waited for. */
	struct timeval patience = { .tv_sec = 1 };

	if (fd < 0)
		return;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	for (int i = 0; i < CLIENTS_MAX; i++) {
		if (clients[i].fd < 0) {
			clients[i] = (struct client){ .fd = fd };
			return;
		}
	}
	close(fd);
}

static void *control_thread(void *unused)
{
	static struct client clients[CLIENTS_MAX];
	struct pollfd polled[CLIENTS_MAX + 1];

	(void)unused;
	for (int i = 0; i < CLIENTS_MAX; i++)
		clients[i].fd = -1;
	welcome(clients, guest_port);
	for (;;) {
		/* poll() ignores negative descriptors. */
		for (int i = 0; i < CLIENTS_MAX; i++)
			polled[i] = (struct pollfd){ .fd = clients[i].fd, .events = POLLIN };
		polled[CLIENTS_MAX] = (struct pollfd){ .fd = listener, .events = POLLIN };
		if (poll(polled, CLIENTS_MAX + 1, -1) < 0)
			continue;
		for (int i = 0; i < CLIENTS_MAX; i++)
			if (polled[i].revents && clients[i].fd >= 0)
				serve(&clients[i]);
		if (polled[CLIENTS_MAX].revents)
			welcome(clients, accept(listener, NULL, NULL));
	}
	return NULL;
}

static bool set_path(struct sockaddr_un *address, const char *path)
{
	if (strlen(path) >= sizeof(address->sun_path))
		return false;
	strcpy(address->sun_path, path);
	return true;
}

const char *control_start(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	sigset_t all, before;
	struct stat stale;
	pthread_t thread;
	int failed;

	if (options.guest) {
		guest_port = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (!set_path(&address, options.guest) ||
		    connect(guest_port, (struct sockaddr *)&address, sizeof(address)) < 0)
			return "guest=PATH cannot be connected to; is it a -chardev socket,server=on,wait=off of this QEMU, "
			       "with a path of at most 107 bytes?";
	}
	if (!set_path(&address, options.socket))
		return "socket=PATH is longer than the 107 bytes that a Unix socket's path may have";
	/* A socket left over from a QEMU that was killed; anything else by that name is not ours to
	 * remove. */
	if (lstat(options.socket, &stale) == 0 && S_ISSOCK(stale.st_mode))
		unlink(options.socket);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0)
		return "no socket could be made";
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(listener, CLIENTS_MAX) < 0)
		return "socket=PATH cannot be bound; is its folder there and writable, and the name free?";
	/* Signals are left to QEMU's own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	failed = pthread_create(&thread, NULL, control_thread, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed)
		return "no thread for the control socket";
	pthread_detach(thread);
	return NULL;
}

void control_end(void)
{
	unlink(options.socket);
}
