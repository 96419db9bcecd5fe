//! Tests of decoding the records that the BPF programs write.

use super::*;

const HEADER: &str = include_str!("../../../../../bpf/src/bpf/intf.h");

/// The value of `#define name value` in the shared header.
fn constant(name: &str) -> u64 {
    let line = HEADER
        .lines()
        .find_map(|l| l.strip_prefix("#define ")?.strip_prefix(name)?.strip_prefix(' '))
        .unwrap_or_else(|| panic!("intf.h does not define {name}"));
    match line.trim().strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
        None => line.trim().parse().unwrap(),
    }
}

/// The offset of `field` in `struct name`, and the size of the struct. Both are computed from the
/// header's text by C's layout rules.
fn offset(name: &str, field: &str) -> (usize, usize) {
    let body = HEADER.split(&format!("struct {name} {{")).nth(1).unwrap().split("};").next().unwrap();
    let (mut at, mut found) = (0usize, None);
    for declaration in
        body.lines().filter_map(|l| l.trim().split(';').next()).filter(|l| l.starts_with("__u"))
    {
        let (ty, ident) = declaration.split_once(' ').unwrap();
        let size = ty.trim_start_matches("__u").parse::<usize>().unwrap() / 8;
        let (ident, count) = match ident.split_once('[') {
            Some((ident, count)) => (ident, count.trim_end_matches(']').parse().unwrap()),
            None => (ident, 1),
        };
        at = at.next_multiple_of(size);
        if ident == field {
            found = Some(at);
        }
        at += size * count;
    }
    (found.unwrap_or_else(|| panic!("struct {name} has no field {field}")), at)
}

#[test]
fn constants_are_those_of_the_shared_header() {
    assert_eq!(constant("TC_RECORD_BYTES"), RECORD_BYTES as u64);
    assert_eq!(constant("TC_KIND_FAULT"), u64::from(KIND_FAULT));
    assert_eq!(constant("TC_KIND_SCAN_BEGIN"), u64::from(KIND_SCAN_BEGIN));
    assert_eq!(constant("TC_KIND_SCAN_TICK"), u64::from(KIND_SCAN_TICK));
    assert_eq!(constant("TC_KIND_SCAN_END"), u64::from(KIND_SCAN_END));
    assert_eq!(constant("TC_KIND_EXEC"), u64::from(KIND_EXEC));
    assert_eq!(constant("TC_KIND_EXIT"), u64::from(KIND_EXIT));
    assert_eq!(constant("TC_KIND_STAMP"), u64::from(KIND_STAMP));
    assert_eq!(constant("TC_KIND_CLOCK"), u64::from(KIND_CLOCK));
    assert_eq!(constant("TC_FAULT_PMD"), u64::from(FAULT_PMD));
    assert_eq!(constant("TC_FAULT_PLACE"), u64::from(FAULT_PLACE));
    assert_eq!(constant("TC_PFN_UNKNOWN"), PFN_UNKNOWN);
}

#[test]
fn offsets_are_those_of_the_shared_header() {
    let fault = ["kind", "order", "node", "tgid", "time_ns", "addr", "pfn", "tid", "cpu", "flags"];
    assert_eq!(fault.map(|f| offset("tc_fault", f).0), [0, 1, 2, 4, 8, 16, 24, 32, 36, 38]);
    let scan = ["kind", "tgid", "time_ns", "start", "end", "tid", "updated"];
    assert_eq!(scan.map(|f| offset("tc_scan", f).0), [0, 4, 8, 16, 24, 32, 36]);
    assert_eq!(["kind", "tgid", "time_ns"].map(|f| offset("tc_task", f).0), [0, 4, 8]);
    let stamp = ["kind", "time_ns", "jiffies", "stamp", "tid"];
    assert_eq!(stamp.map(|f| offset("tc_stamp", f).0), [0, 8, 16, 24, 32]);
    for (name, field) in
        [("tc_fault", "kind"), ("tc_scan", "kind"), ("tc_task", "kind"), ("tc_stamp", "kind")]
    {
        assert_eq!(offset(name, field).1, RECORD_BYTES, "size of {name}");
    }
}

fn put(record: &mut [u8], at: usize, bytes: &[u8]) {
    record[at..at + bytes.len()].copy_from_slice(bytes);
}

#[test]
fn decodes_a_fault() {
    let mut record = [0u8; RECORD_BYTES];
    put(&mut record, 0, &[KIND_FAULT, 9]);
    put(&mut record, 2, &2u16.to_ne_bytes());
    put(&mut record, 4, &1234u32.to_ne_bytes());
    put(&mut record, 8, &5_000_000_007u64.to_ne_bytes());
    put(&mut record, 16, &0x7f00_0020_0000u64.to_ne_bytes());
    put(&mut record, 24, &0x80200u64.to_ne_bytes());
    put(&mut record, 32, &1235u32.to_ne_bytes());
    put(&mut record, 36, &3u16.to_ne_bytes());
    put(&mut record, 38, &FAULT_PMD.to_ne_bytes());
    let expect = RawFault {
        pid: Pid(1234),
        tid: 1235,
        time: Nanos(5_000_000_007),
        vpn: 0x7_f000_0200,
        pfn: Some(Pfn(0x80200)),
        place: None,
        order: 9,
        node: NodeId(2),
        cpu: 3,
        pmd: true,
    };
    assert_eq!(decode(&record), Ok(Record::Fault(expect)));
    put(&mut record, 24, &PFN_UNKNOWN.to_ne_bytes());
    assert_eq!(decode(&record), Ok(Record::Fault(RawFault { pfn: None, ..expect })));
    put(&mut record, 24, &0xffff_ea00_0200_8000u64.to_ne_bytes());
    put(&mut record, 38, &(FAULT_PMD | FAULT_PLACE).to_ne_bytes());
    let by_place = RawFault { pfn: None, place: Some(0xffff_ea00_0200_8000), ..expect };
    assert_eq!(decode(&record), Ok(Record::Fault(by_place)));
    record[1] = 200;
    assert_eq!(decode(&record), Err(Malformed::Value(KIND_FAULT)));
}

#[test]
fn decodes_a_scan_and_refuses_one_that_ends_before_it_starts() {
    let mut record = [0u8; RECORD_BYTES];
    put(&mut record, 0, &[KIND_SCAN_END]);
    put(&mut record, 4, &7u32.to_ne_bytes());
    put(&mut record, 16, &0x10_000u64.to_ne_bytes());
    put(&mut record, 24, &0x20_000u64.to_ne_bytes());
    put(&mut record, 32, &8u32.to_ne_bytes());
    put(&mut record, 36, &16u32.to_ne_bytes());
    let expect = RawScan { pid: Pid(7), tid: 8, time: Nanos(0), start: 0x10, end: 0x20, updated: 16 };
    assert_eq!(decode(&record), Ok(Record::ScanEnd(expect)));
    put(&mut record, 24, &0x8_000u64.to_ne_bytes());
    assert_eq!(decode(&record), Err(Malformed::Value(KIND_SCAN_END)));
}

#[test]
fn any_bytes_of_any_length_are_decoded_or_refused() {
    for length in 0..2 * RECORD_BYTES {
        for fill in 0..=u8::MAX {
            let bytes = vec![fill; length];
            let decoded = decode(&bytes);
            assert_eq!(
                length != RECORD_BYTES,
                matches!(decoded, Err(Malformed::Length(_))),
                "{length} {fill}"
            );
        }
    }
    for kind in 0..=u8::MAX {
        let mut record = [0xa5u8; RECORD_BYTES];
        record[0] = kind;
        assert_eq!((1..=8).contains(&kind), !matches!(decode(&record), Err(Malformed::Kind(_))), "{kind}");
    }
}
