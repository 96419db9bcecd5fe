//! A rule that proposes whatever the evidence says, sense or nonsense.

use thermocline_core::access::{Access, Detail, RegionSnapshot, RegionSpace, Source};
use thermocline_core::candidate::{Candidate, Candidates, Reason};
use thermocline_core::moves::{Direction, Move, Outcome};
use thermocline_core::record::Record;
use thermocline_core::rule::{Context, Rule};
use thermocline_core::units::{Nanos, NodeId, Pfn, VirtPage};

/// Reads the candidate out of a sample's latency: direction, explicit target, score.
#[derive(Debug)]
pub struct Wild;

impl Rule for Wild {
    fn name(&self) -> &'static str {
        "wild"
    }

    fn on_access(&mut self, access: &Access, record: &mut Record, ctx: &Context<'_>, out: &mut Candidates) {
        record.frequency = record.frequency.saturating_add(1).min(ctx.frequency_max);
        let Detail::Sample { latency_cycles: bits, .. } = access.detail else { return };
        let direction = match bits >> 4 & 3 {
            0 | 1 => Direction::Promote,
            2 => Direction::Demote,
            _ => Direction::Balance,
        };
        let target = (bits & 0xc == 0).then_some(NodeId((bits >> 6 & 3) as u16));
        // Tens of milliseconds, or as long as the configuration allows.
        let life = match bits >> 8 & 0xff {
            ms @ 0..32 => Nanos::from_ms(ms.into()),
            _ => Nanos(u64::MAX),
        };
        let score = (bits >> 16) as u16;
        out.push(Candidate {
            direction,
            target,
            ..Candidate::promotion(access, score, Reason::Frequent, life)
        });
    }

    /// Proposes the first pages of each region, sane or not.
    fn on_regions(&mut self, snapshot: &RegionSnapshot, _ctx: &Context<'_>, out: &mut Candidates) {
        for region in &snapshot.regions {
            for n in region.start..region.end.min(region.start.saturating_add(4)) {
                let (page, pfn) = match region.space {
                    RegionSpace::Virtual(pid) => (Some(VirtPage { pid, vpn: n }), None),
                    RegionSpace::Physical(_) => (None, Some(Pfn(n))),
                    RegionSpace::Target(_) => (None, None),
                };
                out.push(Candidate {
                    page,
                    pfn,
                    order: (region.access_rate_bp % 256) as u8,
                    from: NodeId(region.access_rate_bp >> 8 & 7),
                    target: None,
                    accessor: None,
                    direction: if region.access_rate_bp & 1 == 0 {
                        Direction::Demote
                    } else {
                        Direction::Promote
                    },
                    score: region.access_rate_bp,
                    reason: Reason::ColdRegion,
                    source: Source::Damon,
                    time: snapshot.time,
                    expires: snapshot.time.plus(region.age),
                });
            }
        }
    }

    /// Wants every fourth page back at once.
    fn on_outcome(&mut self, done: &Move, outcome: Outcome, out: &mut Candidates) {
        if outcome == Outcome::Moved && done.page.vpn.is_multiple_of(4) {
            out.push(Candidate {
                page: Some(done.page),
                pfn: done.pfn,
                order: done.order,
                from: done.from,
                target: None,
                accessor: None,
                direction: Direction::Promote,
                score: 1,
                reason: Reason::Neighbour,
                source: Source::HintFault,
                time: Nanos(0),
                expires: Nanos(u64::MAX),
            });
        }
    }
}
