//! For any behaviour of the machine, outcomes match what happened to the pages.

use proptest::prelude::*;

use super::super::fake::{HEAD, LOCKED, TAIL, errors};
use super::*;

/// A page of the random machine: node, what is wrong with it.
fn page() -> impl Strategy<Value = (u16, u8)> {
    (prop_oneof![6 => Just(2u16), 1 => Just(0), 1 => Just(1)], 0u8..12)
}

proptest! {
    #[test]
    fn moved_pages_and_only_they_are_reported_as_moved(
        pages in prop::collection::vec(page(), 1..80),
        orders in prop::collection::vec(prop_oneof![4 => Just(0u8), 1 => 1u8..4], 1..80),
        room in 0u64..100,
        free in prop_oneof![Just(u64::MAX), 0u64..60],
        error in prop::option::weighted(0.1, 0usize..8),
        leave in any::<bool>(),
        hide_frames in any::<bool>(),
    ) {
        let fake = Fake::new();
        for (i, &(node, defect)) in pages.iter().enumerate() {
            let vpn = 0x100 + i as u64;
            fake.map(vpn, node);
            fake.change(vpn, |p| match defect {
                0 => p.shared = true,
                1 => p.pinned = true,
                2 => p.off_lru = true,
                3 => (p.pinned, p.flags) = (true, LOCKED),
                4 => p.pfn += 1 << 20,
                _ => {}
            });
            if defect == 5 {
                fake.state().pages.remove(&vpn);
            }
        }
        // Folios: moves of some order at consecutive pages; those whose first page is sound are
        // real ones.
        let mut moves = Vec::new();
        let mut vpn = 0x100u64;
        for &order in &orders {
            vpn = vpn.next_multiple_of(1 << order);
            let vpns = vpn..vpn + (1 << order);
            let sound = |v: u64| fake.state().pages.get(&v).is_some_and(|p| p.pfn == v + 0x10_0000 && p.flags == 0);
            if order > 0 && vpns.clone().all(sound) {
                let first = fake.state().pages[&vpn];
                for v in vpns.clone() {
                    fake.change(v, |p| {
                        *p = super::super::fake::FakePage { pfn: p.pfn, ..first };
                        p.flags = if v == vpn { HEAD } else { TAIL };
                    });
                }
            }
            moves.push(mv(vpn, order));
            vpn = vpns.end;
        }
        {
            let mut state = fake.state();
            state.free = free;
            state.hide_frames = hide_frames;
            state.error = error.map(|e| errors(PID, FAST)[e]);
        }
        let before = fake.state().pages.clone();
        let shared_pages = if leave { SharedPages::Leave } else { SharedPages::Move };
        let mut bench = Bench::with(&fake, shared_pages, room);
        let ends = bench.run(moves.clone());
        let after = fake.state().pages.clone();
        prop_assert_eq!(ends.len(), moves.len());
        let mut arrived = 0;
        for (m, end) in moves.iter().zip(&ends) {
            let vpns = m.page.vpn..m.page.vpn + m.pages();
            let came: Vec<bool> = vpns
                .filter(|v| after.contains_key(v))
                .map(|v| before[&v].node != 0 && after[&v].node == 0)
                .collect();
            arrived += came.iter().filter(|&&c| c).count() as u64;
            match end {
                Outcome::Moved => prop_assert!(came.contains(&true), "{:?} has not moved", m),
                // A split folio may move in part, whatever the outcome of the rest.
                _ if m.order > 0 => {}
                _ => prop_assert!(!came.contains(&true), "{:?} ended as {:?} and moved", m, end),
            }
            if *end == Outcome::Moved && m.order == 0 {
                prop_assert_eq!(m.pfn.unwrap().0 == before[&m.page.vpn].pfn || hide_frames, true);
            }
        }
        prop_assert!(arrived <= room, "{} pages for {} places", arrived, room);
        prop_assert!(fake.state().calls.len() <= 4);
        prop_assert!(leave || !ends.contains(&Outcome::Shared));
    }
}
