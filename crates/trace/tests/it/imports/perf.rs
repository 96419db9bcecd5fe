//! Page faults and samples of memory as perf prints them.

use thermocline_core::access::{Access, Detail};
use thermocline_core::units::{Nanos, NodeId, Pfn, Pid, VirtPage};
use thermocline_trace::import::{Fields, Options};

use super::{fixture, got};

fn fault(us: u64, pid: u32, vpn: u64) -> Access {
    Access {
        time: Nanos(us * 1000),
        pfn: None,
        page: Some(VirtPage { pid: Pid(pid), vpn }),
        order: 0,
        node: NodeId::UNKNOWN,
        accessor: None,
        detail: Detail::Sample { latency_cycles: 0, store: None, period: 0 },
    }
}

fn fields(text: &str) -> Options {
    Options { fields: Some(text.parse::<Fields>().expect("fields")), ..Options::default() }
}

/// The program touches its code and its three pages, and the second again when it writes to it.
fn wanted() -> Vec<Access> {
    let faults = [(15, 0x400), (24, 0x402), (28, 0x403), (29, 0x404), (32, 0x403)];
    faults.map(|(us, vpn)| fault(1_781_985_000 + us, 22701, vpn)).to_vec()
}

#[test]
fn a_page_fault_is_one_access_and_says_not_how_many_there_are() {
    let got = got(&fixture("perf-6.1.187-faults.txt"), &Options::default());
    assert_eq!(got.accesses(), wanted());
    assert_eq!(got.settings, [("events".to_owned(), "page-faults".to_owned())]);
    assert!(got.result.expect("it is whole").left_out.is_empty());
}

/// perf has found no frame: it prints 0, which is no frame here either.
#[test]
fn fields_are_read_as_they_were_printed() {
    let bytes = fixture("perf-6.1.187-fields.txt");
    let asked = fields("comm,pid,tid,time,period,event,addr,data_src,ip,sym,dso,phys_addr");
    assert_eq!(got(&bytes, &asked).accesses(), wanted());
    let error = got(&bytes, &Options::default()).result.expect_err("what follows is not known").to_string();
    assert!(error.starts_with("line 1: ") && error.contains("--fields"), "{error}");
    let other = fields("comm,pid,tid,time,period,event,addr,phys_addr");
    let error = got(&bytes, &other).result.expect_err("it has other fields").to_string();
    assert!(error.contains("data_src"), "{error}");
}

#[test]
fn call_chains_are_no_samples() {
    let asked = fields("comm,pid,tid,time,period,event,addr,ip,sym,dso");
    let got = got(&fixture("perf-6.1.187-chains.txt"), &asked);
    let vpns: Vec<u64> = got.accesses().iter().filter_map(|access| Some(access.page?.vpn)).collect();
    assert_eq!(vpns, [0x400, 0x400, 0x402, 0x402, 0x403, 0x403, 0x404, 0x404, 0x403, 0x403]);
    assert_eq!(got.settings.last().map(|(_, names)| names.as_str()), Some("minor-faults page-faults:u"));
}

/// Lines in the form of perf's source; they are of no machine.
#[test]
fn a_sample_of_memory_has_latency_operation_period_and_frame() {
    let text = "  app 7/9 12.000000001:      10007 cpu/mem-loads,ldlat=30/P:     7f0000001234 \
        68100142 |OP LOAD|LVL L3 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A        321     12345678\n  \
        app 7/9 12.000000002:      10007 cpu/mem-stores/P:     7f0000001234 \
        5080184 |OP STORE|LVL L1 hit|SNP N/A|TLB N/A|LCK Yes|BLK  Data          0     12345678\n  \
        app 7/9 12.000000003:     262144 ibs_op//:     ffff888000001234 \
        68100142 |OP LOAD|LVL Remote RAM (1 hop) hit|SNP None|TLB L2 miss|LCK No|BLK  N/A   900   200000000\n  \
        app 7/9 12.000000004:     262144 ibs_op//:     ffff888000001234 \
        68100142 |OP LOAD|LVL L1 hit|SNP None|TLB L2 miss|LCK No|BLK  N/A   900   0\n";
    let asked = fields("comm,pid,tid,time,period,event,addr,data_src,weight,phys_addr");
    let got = got(text.as_bytes(), &asked);
    let base = Access { pfn: Some(Pfn(0x12345)), ..fault(12_000_000, 7, 0x7_f000_0001) };
    let detail =
        |latency_cycles, store, period| Detail::Sample { latency_cycles, store: Some(store), period };
    let wanted = [
        Access { time: Nanos(12_000_000_001), detail: detail(321, false, 10007), ..base },
        Access { time: Nanos(12_000_000_002), detail: detail(0, true, 10007), ..base },
        // Its period counts instructions, and its page is the kernel's.
        Access {
            time: Nanos(12_000_000_003),
            pfn: Some(Pfn(0x20_0000)),
            page: None,
            detail: detail(900, false, 0),
            ..base
        },
    ];
    assert_eq!(got.accesses(), wanted);
    let left_out = got.result.expect("it is whole").left_out;
    assert_eq!(left_out.into_iter().collect::<Vec<_>>(), [("samples of the kernel's memory", 1)]);
}

#[test]
fn what_perf_prints_by_default_is_refused_with_the_command_that_helps() {
    let text =
        "true 10035   324.919384:          1 page-faults:  ffffffff8175336a elf_load+0x28a ([kernel])\n";
    let error = got(text.as_bytes(), &Options::default()).result.expect_err("no process").to_string();
    assert!(error.contains("perf script -F comm,pid,tid,time,period,event,addr"), "{error}");
}
