/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The file that QEMU shows the guest as a device's memory: the sampler's rings, then the vCPUs'
 * modelled time, and the hot list at the end. */
#ifndef SHARED_H
#define SHARED_H

#include "counts.h"
#include "hotlist.h"
#include "modelled.h"
#include "sampler.h"

/* Creates the file `options.ring` and lays all of this out for the vCPUs of the model. Returns
 * NULL, or what failed. */
const char *shared_prepare(struct sampler *samplers, struct hotlist *hotlist, struct modelled *modelled, struct counts *const *vcpus);

#endif
