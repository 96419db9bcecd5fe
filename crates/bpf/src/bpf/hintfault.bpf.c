// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Watches NUMA hint faults and the scans that cause them.
 *
 * One fentry program sees every hint fault that /proc/vmstat counts as numa_hint_faults: the kernel
 * counts it in the function that the program is attached to, for PTEs and PMDs alike. The function
 * and its parameters depend on the kernel; user space loads the fault_* program that fits. The page
 * table lock is held there, so the program does little: a few loads, one clock read, one ring
 * write. User space reads the ring on a timer; a program wakes it only when much of the ring is in
 * use.
 */
#include "kernel.h"
#include "intf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Set before loading. They are constants to the verifier, so unused branches cost nothing. */
/* Where the node number lies in a folio's flags, from the kernel's BTF. */
const volatile __u32 node_shift = 54;
/* Where the access time lies in a folio's flags, and its mask after the shift; a mask of 0 leaves
 * the kernel's stamps alone. */
const volatile __u32 stamp_shift = 0;
const volatile __u64 stamp_mask = 0;
/* Wake user space once this many bytes wait in the ring; 0 means never. */
const volatile __u64 wake_bytes = 0;

/* How often the amount of waiting data is checked: at every 64th record of a CPU. */
#define WAKE_CHECK_MASK 63

/* Bits of an x86-64 page table entry that hold the page frame, below any encryption bit in use. */
#define X86_PFN_MASK 0x000ffffffffff000ULL
#define PAGE_SHIFT 12
#define PMD_PAGES_MASK 511ULL

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 * 1024 * 1024);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tc_counters);
} counters SEC(".maps");

/* Which of the lists below count. It changes while programs run: a fault that is judged meanwhile
 * may be judged by either filter or a mixture, and user space judges again. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tc_filter);
} filter SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, TC_TGIDS_MAX);
	__type(key, __u32);
	__type(value, __u8);
} included SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, TC_TGIDS_MAX);
	__type(key, __u32);
	__type(value, __u8);
} excluded SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, TC_CGROUPS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} cgroups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, TC_CGROUPS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} excluded_cgroups SEC(".maps");

/* Faults lost to a full ring, by process, so that latencies counted in faults stay correct under
 * overload. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, TC_LOSSES_MAX);
	__type(key, __u32);
	__type(value, __u64);
} losses SEC(".maps");

/* Threads that are scanning now. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TC_SCANNERS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} scanners SEC(".maps");

static __always_inline struct tc_counters *this_cpu_counters(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counters, &zero);
}

static __always_inline bool under_any(void *map, __u32 count)
{
	for (__u32 i = 0; i < TC_CGROUPS_MAX; i++) {
		if (i >= count)
			break;
		if (bpf_current_task_under_cgroup(map, i) == 1)
			return true;
	}
	return false;
}

/* Exclusions take precedence over the whole machine, listed processes and listed cgroups with
 * their subtrees. */
static __always_inline bool in_scope(__u32 tgid)
{
	__u32 zero = 0;
	struct tc_filter *by = bpf_map_lookup_elem(&filter, &zero);

	if (!by)
		return false;
	if (by->exclusions && bpf_map_lookup_elem(&excluded, &tgid))
		return false;
	if (under_any(&excluded_cgroups, by->nr_excluded_cgroups))
		return false;
	if (by->all)
		return true;
	if (by->listed && bpf_map_lookup_elem(&included, &tgid))
		return true;
	return under_any(&cgroups, by->nr_cgroups);
}

/* The process that an address space belongs to. It is not always the running one (ptrace, vhost,
 * io_uring workers). */
static __always_inline __u32 mm_tgid(struct mm_struct *mm, __u32 current_tgid)
{
	__u32 tgid = 0;

	if (bpf_core_field_exists(mm->owner))
		tgid = mm->owner->tgid;
	return tgid ? tgid : current_tgid;
}

static __always_inline unsigned long folio_flags(struct folio *folio)
{
	struct folio___wrapped *wrapped = (void *)folio;

	if (bpf_core_field_exists(wrapped->flags.f))
		return wrapped->flags.f;
	return folio->flags;
}

static __always_inline bool is_large(unsigned long flags)
{
	return flags & (1UL << bpf_core_enum_value(enum pageflags, PG_head));
}

/* The order is in the low byte of the second page's flags, which only large folios have. */
static __always_inline __u8 folio_order(struct folio *folio, unsigned long flags)
{
	return is_large(flags) ? folio->_flags_1 : 0;
}

/* The order of the folio whose first page this is, on kernels of any age. */
static __always_inline __u8 first_page_order(void *page, unsigned long flags)
{
	struct page *second = page + bpf_core_type_size(struct page);
	struct folio___ordered *ordered = page;
	struct folio *folio = page;
	unsigned char order = 0;

	if (!is_large(flags))
		return 0;
	if (bpf_core_field_exists(ordered->_folio_order))
		bpf_probe_read_kernel(&order, sizeof(order), &ordered->_folio_order);
	else if (bpf_core_field_exists(second->compound_order))
		bpf_probe_read_kernel(&order, sizeof(order), &second->compound_order);
	else
		bpf_probe_read_kernel(&order, sizeof(order), &folio->_flags_1);
	return order;
}

/*
 * The frame of the page that faulted, from the entry that faulted. x86-64 inverts the frame bits of
 * an entry that is not present (L1TF mitigation), and a hint entry is not present.
 */
static __always_inline __u64 entry_pfn(unsigned long entry, bool pmd)
{
#if defined(__TARGET_ARCH_x86)
	__u64 pfn = (~entry & X86_PFN_MASK) >> PAGE_SHIFT;

	return pmd ? pfn & ~PMD_PAGES_MASK : pfn;
#else
	return TC_PFN_UNKNOWN;
#endif
}

static __always_inline __u64 wake_flags(__u64 written)
{
	if (wake_bytes && !(written & WAKE_CHECK_MASK) && bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) > wake_bytes)
		return BPF_RB_FORCE_WAKEUP;
	return BPF_RB_NO_WAKEUP;
}

static __always_inline void count_loss(__u32 tgid)
{
	__u64 one = 1, *lost = bpf_map_lookup_elem(&losses, &tgid);

	if (lost)
		__sync_fetch_and_add(lost, 1);
	else
		bpf_map_update_elem(&losses, &tgid, &one, BPF_NOEXIST);
}

/* Counts a fault in an address space and begins its record; NULL if it is out of scope or lost. */
static __always_inline struct tc_fault *begin_fault(struct tc_counters *count, struct mm_struct *mm)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct tc_fault *record;
	__u32 tgid;

	if (!count)
		return NULL;
	count->seen++;
	tgid = mm_tgid(mm, pid_tgid >> 32);
	if (!in_scope(tgid)) {
		count->filtered++;
		return NULL;
	}

	/* Reserved and filled in place: bpf_ringbuf_output would copy the record. */
	record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);
	if (!record) {
		count->dropped++;
		count_loss(tgid);
		return NULL;
	}
	record->kind = TC_KIND_FAULT;
	record->tgid = tgid;
	record->time_ns = bpf_ktime_get_ns();
	record->tid = (__u32)pid_tgid;
	record->cpu = bpf_get_smp_processor_id();
	return record;
}

static __always_inline void end_fault(struct tc_counters *count, struct tc_fault *record)
{
	bpf_ringbuf_submit(record, wake_flags(count->submitted++));
}

/* A fault in a function that is passed the entry that faulted. */
static __always_inline int entry_fault(struct folio *folio, struct vm_fault *vmf, unsigned long addr)
{
	struct tc_counters *count = this_cpu_counters();
	struct tc_fault *record = begin_fault(count, vmf->vma->vm_mm);
	unsigned long flags;

	if (!record)
		return 0;
	flags = folio_flags(folio);
	record->order = folio_order(folio, flags);
	record->node = flags >> node_shift;
	record->addr = addr;
	/* The fault handler sets pte unless a PMD faulted. */
	record->flags = vmf->pte ? 0 : TC_FAULT_PMD;
	record->pfn = entry_pfn(vmf->orig_pte.pte, record->flags);
	end_fault(count, record);
	return 0;
}

/*
 * A fault in a function that is passed only the page. Such kernels do nothing about a fault in a
 * large folio whose pages are mapped one by one. So the page here is the first of its folio, and a
 * large folio has faulted as a whole.
 */
static __always_inline int page_fault(void *page, unsigned long flags, struct mm_struct *mm, unsigned long addr)
{
	struct tc_counters *count = this_cpu_counters();
	struct tc_fault *record = begin_fault(count, mm);

	if (!record)
		return 0;
	record->order = first_page_order(page, flags);
	record->node = flags >> node_shift;
	record->addr = addr;
	record->flags = TC_FAULT_PLACE | (is_large(flags) ? TC_FAULT_PMD : 0);
	record->pfn = (__u64)page;
	end_fault(count, record);
	return 0;
}

/* The four forms of the function that counts a hint fault: see ENTRIES in layout.rs. */
SEC("fentry/numa_migrate_check")
int BPF_PROG(fault_check, struct folio *folio, struct vm_fault *vmf, unsigned long addr)
{
	return entry_fault(folio, vmf, addr);
}

SEC("fentry/numa_migrate_prep")
int BPF_PROG(fault_prep_vmf, struct folio *folio, struct vm_fault *vmf, unsigned long addr)
{
	return entry_fault(folio, vmf, addr);
}

SEC("fentry/numa_migrate_prep")
int BPF_PROG(fault_prep_folio, struct folio *folio, struct vm_area_struct *vma, unsigned long addr)
{
	return page_fault(folio, folio_flags(folio), vma->vm_mm, addr);
}

SEC("fentry/numa_migrate_prep")
int BPF_PROG(fault_prep_page, struct page *page, struct vm_area_struct *vma, unsigned long addr)
{
	return page_fault(page, page->flags, vma->vm_mm, addr);
}

static __always_inline void put(void *record)
{
	struct tc_counters *count = this_cpu_counters();

	if (!count)
		return;
	if (bpf_ringbuf_output(&ring, record, TC_RECORD_BYTES, BPF_RB_NO_WAKEUP))
		count->scans_dropped++;
	else
		count->scans++;
}

static __always_inline void put_scan(__u8 kind, __u32 tgid, unsigned long start, unsigned long end, __u32 updated)
{
	struct tc_scan record = {
		.kind = kind,
		.tgid = tgid,
		.time_ns = bpf_ktime_get_ns(),
		.start = start,
		.end = end,
		.tid = (__u32)bpf_get_current_pid_tgid(),
		.updated = updated,
	};

	put(&record);
}

static __always_inline void put_stamp(__u8 kind, __u32 tgid, __u32 tid, __u64 stamp)
{
	struct tc_stamp record = {
		.kind = kind,
		.tgid = tgid,
		.time_ns = bpf_ktime_get_ns(),
		.jiffies = bpf_jiffies64(),
		.stamp = stamp,
		.tid = tid,
	};

	put(&record);
}

/* A thread scans its own process, so the current process owns the address space. */
SEC("fentry/change_prot_numa")
int BPF_PROG(scan_begin, struct vm_area_struct *vma, unsigned long start, unsigned long end)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tid = pid_tgid, tgid = mm_tgid(vma->vm_mm, pid_tgid >> 32);

	if (!in_scope(tgid))
		return 0;
	bpf_map_update_elem(&scanners, &tid, &tgid, BPF_ANY);
	put_scan(TC_KIND_SCAN_BEGIN, tgid, start, end, 0);
	return 0;
}

/*
 * Called once for each page table whose entries are changed or dropped, with its lock held. A scan
 * of 256 MiB takes long enough for its pages to be stamped at measurably different times; the ticks
 * show its progress.
 */
SEC("fentry/flush_tlb_batched_pending")
int BPF_PROG(scan_tick)
{
	__u32 tid = bpf_get_current_pid_tgid();
	__u32 *tgid = bpf_map_lookup_elem(&scanners, &tid);

	if (!tgid)
		return 0;
	put_scan(TC_KIND_SCAN_TICK, *tgid, 0, 0, 0);
	if (stamp_mask)
		put_stamp(TC_KIND_CLOCK, *tgid, tid, 0);
	return 0;
}

SEC("fexit/change_prot_numa")
int BPF_PROG(scan_end, struct vm_area_struct *vma, unsigned long start, unsigned long end, unsigned long updated)
{
	__u32 tid = bpf_get_current_pid_tgid();
	__u32 *scanner = bpf_map_lookup_elem(&scanners, &tid);
	__u32 tgid;

	if (!scanner)
		return 0;
	tgid = *scanner;
	bpf_map_delete_elem(&scanners, &tid);
	put_scan(TC_KIND_SCAN_END, tgid, start, end, updated);
	return 0;
}

static __always_inline int put_task(__u8 kind, __u32 tgid)
{
	struct tc_task record = { .kind = kind, .tgid = tgid };

	if (!in_scope(tgid))
		return 0;
	record.time_ns = bpf_ktime_get_ns();
	put(&record);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(process_exit, struct task_struct *task)
{
	/* The kernel has already subtracted this thread from the count, so 0 means that the process
	 * is gone. */
	if (task->signal->live.counter != 0)
		return 0;
	return put_task(TC_KIND_EXIT, task->tgid);
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(process_exec, struct task_struct *task)
{
	return put_task(TC_KIND_EXEC, task->tgid);
}

SEC("fentry/should_numa_migrate_memory")
int BPF_PROG(kernel_stamp, struct task_struct *task, struct folio *folio)
{
	if (in_scope(task->tgid))
		put_stamp(TC_KIND_STAMP, task->tgid, task->pid, (folio_flags(folio) >> stamp_shift) & stamp_mask);
	return 0;
}
