//! Tables against hand-computed cases and against a model with exact times.

use super::*;
use crate::access::Detail;
use crate::units::NodeId;

fn table(layout: RecordLayout) -> RecordTable {
    RecordTable::new(RecordParams { layout, sections_max: 64, ..RecordParams::default() }).unwrap()
}

fn access(pfn: u64, time: Nanos) -> Access {
    Access {
        time,
        pfn: Some(Pfn(pfn)),
        page: None,
        order: 0,
        node: NodeId(2),
        accessor: None,
        detail: Detail::Count { count: 1 },
    }
}

/// The record that an access meets; it leaves one access more.
fn touch(table: &mut RecordTable, access: Access) -> Record {
    let mut seen = Record::default();
    table.observe(&[access], |_, record| {
        seen = *record;
        record.frequency += 1;
    });
    seen
}

#[test]
fn an_access_meets_what_the_one_before_left() {
    for layout in [RecordLayout::Byte, RecordLayout::Word, RecordLayout::PghotByte, RecordLayout::PghotWord] {
        let mut table = table(layout);
        assert_eq!(touch(&mut table, access(77, Nanos(0))), Record::default());
        let second = touch(&mut table, access(77, Nanos(0)));
        assert_eq!((second.frequency, second.gap), (1, Some(Nanos(0))), "{layout:?}");
    }
}
