//! Pieces as rows.

use thermocline_core::access::{Access, Detail, FaultLatency, Region};
use thermocline_core::demand::Demand;
use thermocline_core::label::Label;
use thermocline_core::moves::Batch;
use thermocline_core::topology::Topology;
use thermocline_core::units::{Nanos, NodeId, Pfn, Pid};

use super::{Ranks, decision, kind, names};
use crate::column::{Cell, Rows};
use crate::piece::{Answer, Phase, Piece, Step};
use crate::schema::{TABLES, TableId};

/// Rows of every table that wait to be written.
#[derive(Debug)]
pub struct Tables {
    all: Vec<Rows>,
    ranks: Ranks,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables { all: TABLES.iter().map(Rows::new).collect(), ranks: Ranks::default() }
    }
}

impl Tables {
    /// The rows of a table.
    pub fn rows(&mut self, table: TableId) -> &mut Rows {
        &mut self.all[table as usize]
    }

    /// Every table's rows, in the order of [`TABLES`].
    pub fn all(&mut self) -> impl Iterator<Item = &mut Rows> {
        self.all.iter_mut()
    }

    /// Adds the nodes of a machine as rows of event number `event`.
    pub fn topology(&mut self, event: u64, topology: &Topology) {
        put_topology(self.rows(TableId::Topology), event, topology);
    }

    /// Adds a piece as event number `event` of the step at `time`.
    pub fn put(&mut self, event: u64, phase: Phase, time: Nanos, piece: &Piece) {
        let mut head = Head { number: None, at: None };
        let (name, rows) = self.body(event, piece, &mut head);
        self.rows(TableId::Events)
            .add(event)
            .text(phase.name())
            .text(name)
            .number(time.0)
            .number(rows as u64)
            .maybe(head.number)
            .maybe(head.at.map(|at| at.0));
    }

    fn body(&mut self, event: u64, piece: &Piece, head: &mut Head) -> (&'static str, usize) {
        match piece {
            Piece::Step(step) => put_step(self.rows(TableId::Steps), event, step),
            Piece::Accesses(batch, answers) => {
                let Tables { all, ranks } = self;
                let rows = &mut all[TableId::Accesses as usize];
                batch.iter().for_each(|access| put_access(rows, ranks, event, access));
                let rows = self.rows(TableId::Answers);
                answers.iter().for_each(|answer| put_answer(rows, event, answer));
                return (kind::ACCESSES, batch.len());
            }
            Piece::Regions(snapshot) => {
                head.at = Some(snapshot.time);
                let rows = self.rows(TableId::Regions);
                for region in &snapshot.regions {
                    put_region(rows.add(event), region);
                }
                return (kind::REGIONS, snapshot.regions.len());
            }
            Piece::RegionCounts(at, regions) => {
                head.at = Some(*at);
                let rows = self.rows(TableId::RegionCounts);
                for region in regions {
                    let (space, of) = names::space(region.space);
                    let row = rows.add(event).text(space).number(of).number(region.start).number(region.end);
                    row.number(region.accesses).maybe(region.writes).maybe(region.age);
                }
                return (kind::REGION_COUNTS, regions.len());
            }
            Piece::RegionPages(pages) => {
                let rows = self.rows(TableId::RegionPages);
                for at in pages {
                    let row = rows.add(event).number(at.time.0);
                    let row =
                        row.number(at.page.pid.0).number(at.page.vpn).maybe(offset(at.pfn, at.page.vpn));
                    put_region(row.number(at.order).number(at.node.0), &at.region);
                }
                return (kind::REGION_PAGES, pages.len());
            }
            Piece::Online(node, start, end) => {
                self.rows(TableId::Memory).add(event).maybe(Some(node.0)).number(start.0).number(end.0);
                return (kind::ONLINE, 1);
            }
            Piece::Offline(start, end) => {
                self.rows(TableId::Memory).add(event).maybe(None::<u64>).number(start.0).number(end.0);
                return (kind::OFFLINE, 1);
            }
            Piece::Topology(topology) => {
                self.topology(event, topology);
                return (kind::TOPOLOGY, topology.nodes.len());
            }
            Piece::Process(pid, membership) => {
                let (what, scope) = names::membership(*membership);
                self.rows(TableId::Processes).add(event).number(pid.0).text(what).maybe(scope);
                return (kind::PROCESS, 1);
            }
            Piece::Exec(pid) => {
                self.rows(TableId::Processes).add(event).number(pid.0).text("exec").maybe(None::<u64>);
                return (kind::PROCESS, 1);
            }
            Piece::Exit(pid) => {
                self.rows(TableId::Processes).add(event).number(pid.0).text("exit").maybe(None::<u64>);
                return (kind::PROCESS, 1);
            }
            Piece::Outcome(done) => {
                (head.number, head.at) = (Some(done.id.0), Some(done.time));
                let rows = self.rows(TableId::Outcomes);
                for outcome in &done.outcomes {
                    rows.add(event).text(outcome.name());
                }
                return (kind::OUTCOME, done.outcomes.len());
            }
            Piece::Demoted(done) => {
                head.number = Some(done.id);
                let rows = self.rows(TableId::Demoted);
                let total = rows.add(event).number(done.node.0).maybe(None::<u64>);
                total.number(done.pages).maybe(Some(done.cpu.0));
                for (scope, pages) in &done.by_scope {
                    let row = rows.add(event).number(done.node.0).maybe(Some(scope.0));
                    row.number(*pages).maybe(None::<u64>);
                }
                return (kind::DEMOTED, 1 + done.by_scope.len());
            }
            Piece::Holding(holding) => {
                let row = self.rows(TableId::Holdings).add(event).number(holding.scope.0);
                row.number(holding.time.0).number(holding.pages);
                return (kind::HOLDING, 1);
            }
            Piece::Pressure(pressure) => {
                let row = self.rows(TableId::Pressures).add(event).number(pressure.scope.0);
                row.number(pressure.time.0).number(pressure.some_us).number(pressure.full_us);
                return (kind::PRESSURE, 1);
            }
            Piece::Scans(scans) => {
                let row = self.rows(TableId::Scans).add(event);
                row.maybe(scans.map(|scans| scans.pid.0))
                    .maybe(scans.map(|scans| scans.interval.0))
                    .maybe(scans.map(|scans| scans.mib))
                    .maybe(scans.map(|scans| scans.passes));
                return (kind::SCANS, 1);
            }
            Piece::Programs(programs) => {
                let row = self.rows(TableId::Programs).add(event);
                row.number(programs.time.0).number(programs.cpu.0);
                return (kind::PROGRAMS, 1);
            }
            Piece::Read => return (kind::READ, 0),
            Piece::Nodes(states) => {
                let rows = self.rows(TableId::Nodes);
                for state in states {
                    let marks = &state.watermarks;
                    let row = rows.add(event).number(state.node.0).number(state.free_pages);
                    let row = row.number(state.managed_pages).number(marks.min_pages);
                    row.number(marks.low_pages).number(marks.high_pages).number(marks.promo_pages);
                }
                return (kind::NODES, states.len());
            }
            Piece::Batch(batch) => {
                head.number = Some(batch.id.0);
                put_batch(self.rows(TableId::Moves), event, batch);
                return (kind::BATCH, batch.moves.len());
            }
            Piece::Demand(demand) => {
                head.number = Some(demand.id);
                return (kind::DEMAND, put_demand(self.rows(TableId::Demands), event, demand));
            }
            Piece::Decisions(decisions) => {
                let rows = self.rows(TableId::Decisions);
                decisions.iter().for_each(|decision| decision::put(rows, event, decision));
                return (kind::DECISIONS, decisions.len());
            }
            Piece::Setting(key, value) => {
                self.rows(TableId::Settings).add(event).text(key).text(value);
                return (kind::SETTING, 1);
            }
            Piece::Loss { events, pieces } => {
                self.rows(TableId::Losses).add(event).number(*events).number(*pieces);
                return (kind::LOSS, 1);
            }
        }
        (kind::STEP, 1)
    }
}

/// A frame as tables keep it: less its page, since memory is often contiguous.
pub(super) fn offset(pfn: Option<Pfn>, vpn: u64) -> Option<u64> {
    pfn.map(|pfn| pfn.0.wrapping_sub(vpn))
}

/// What of a piece stands in its row of `events`.
struct Head {
    number: Option<u64>,
    at: Option<Nanos>,
}

fn put_step(rows: &mut Rows, event: u64, step: &Step) {
    rows.add(event)
        .number(step.time.0)
        .flag(step.due)
        .flag(step.last)
        .flag(step.looking)
        .flag(step.demotes)
        .text(names::pacing(step.pacing))
        .maybe(step.wish.map(|wish| wish.step_mb))
        .maybe(step.wish.and_then(|wish| wish.period_min_ms))
        .maybe(step.wish.and_then(|wish| wish.period_max_ms))
        .maybe_flag(step.wish.map(|wish| wish.renewing));
}

fn put_access(rows: &mut Rows, ranks: &mut Ranks, event: u64, access: &Access) {
    let (mut fault, mut sample, mut count, mut gap) = (None, None, None, None);
    let source = match access.detail {
        Detail::HintFault { latency } => {
            let rank = ranks.next(access.page);
            fault = latency.map(|FaultLatency { time, faults }| (time, rank.wrapping_sub(faults.into())));
            0u64
        }
        Detail::Sample { latency_cycles, store, period } => {
            sample = Some((latency_cycles, store, period));
            1
        }
        Detail::Count { count: n, gap: mean } => {
            (count, gap) = (Some(n), mean);
            2
        }
    };
    // It wraps for a latency that is longer than the machine has run; reading wraps it back.
    let scanned = |(latency, _): (Nanos, u64)| access.time.0.wrapping_sub(latency.0);
    rows.add(event)
        .number(access.time.0)
        .maybe(access.page.map(|page| page.pid).filter(|pid| *pid != Pid::UNKNOWN).map(|pid| pid.0))
        .maybe(access.page.map(|page| page.vpn))
        .maybe(offset(access.pfn, access.page.map_or(0, |page| page.vpn)))
        .number(access.order)
        .maybe(Some(access.node).filter(|node| *node != NodeId::UNKNOWN).map(|node| node.0))
        .maybe(access.accessor.map(|node| node.0))
        .number(source)
        .maybe(fault.map(scanned))
        .maybe(fault.map(|(_, rank)| rank))
        .maybe(sample.map(|(cycles, ..)| cycles))
        .maybe_flag(sample.and_then(|(_, store, _)| store))
        .maybe(sample.map(|(.., period)| period))
        .maybe(count)
        .maybe(gap.map(|gap| gap.0));
}

fn put_answer(rows: &mut Rows, event: u64, answer: &Answer) {
    let (asked, page) = match answer {
        Answer::Bounds(page, _) => ("bounds", page),
        Answer::Marked(page, _) => ("marked", page),
    };
    let row = rows.add(event).text(asked).number(page.pid.0).number(page.vpn);
    match answer {
        Answer::Bounds(_, bounds) => {
            let row = row.flag(bounds.is_some()).maybe(bounds.as_ref().map(|b| b.start));
            row.maybe(bounds.as_ref().map(|b| b.end)).maybe(None::<u64>).maybe(None::<u64>);
        }
        Answer::Marked(_, marked) => {
            let row = row.flag(marked.is_some()).maybe(None::<u64>).maybe(None::<u64>);
            let row = row.maybe(marked.and_then(|marked| marked.node).map(|node| node.0));
            row.maybe(offset(marked.and_then(|marked| marked.pfn), page.vpn));
        }
    }
}

fn put_region<'a>(row: Cell<'a>, region: &Region) -> Cell<'a> {
    let (space, of) = names::space(region.space);
    let row = row.text(space).number(of).number(region.start).number(region.end);
    row.number(region.access_rate_bp).number(region.age.0).number(region.check.0)
}

fn put_topology(rows: &mut Rows, event: u64, topology: &Topology) {
    for node in &topology.nodes {
        rows.add(event)
            .number(node.id.0)
            .number(node.tier.0)
            .text(&names::list(&node.cpus))
            .number(node.capacity_pages)
            .number(topology.page_bytes.bytes())
            .maybe(node.read_latency_ns)
            .maybe(node.read_bandwidth_mbps)
            .text(&names::list(&node.distances));
    }
}

fn put_batch(rows: &mut Rows, event: u64, batch: &Batch) {
    for one in &batch.moves {
        rows.add(event)
            .number(batch.pid.0)
            .number(batch.target.0)
            .text(batch.direction.name())
            .number(one.page.pid.0)
            .number(one.page.vpn)
            .maybe(offset(one.pfn, one.page.vpn))
            .number(one.order)
            .number(one.from.0);
    }
}

fn put_demand(rows: &mut Rows, event: u64, demand: &Demand) -> usize {
    let mut put = |limit: &str, scope: Option<u16>, pages: u64| {
        let row = rows.add(event).text(limit).maybe(scope).number(demand.node.0);
        row.number(pages).number(demand.idle.0);
    };
    let of = if demand.only.is_some() { "only" } else { "all" };
    put(of, demand.only.map(|scope| scope.0), demand.pages);
    demand.allowances.iter().for_each(|a| put("floor", Some(a.scope.0), a.pages));
    demand.braked.iter().for_each(|a| put("braked", Some(a.scope.0), a.pages));
    1 + demand.allowances.len() + demand.braked.len()
}
