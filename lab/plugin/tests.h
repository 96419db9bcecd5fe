/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef TESTS_H
#define TESTS_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                     \
	do {                                                                                 \
		if (!(condition)) {                                                          \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			exit(1);                                                             \
		}                                                                            \
	} while (0)

/* Runs the tests of modelled time; how many. */
unsigned int modelled_tests(void);

#endif
