//! Rows as pieces.

use thermocline_core::access::{
    Access, Detail, FaultLatency, Holding, Marked, Pressure, Programs, Region, RegionPage, RegionSnapshot,
    Scans,
};
use thermocline_core::demand::{Allowance, Demand, Demoted};
use thermocline_core::label::Label;
use thermocline_core::moves::{Batch, BatchId, BatchOutcome, Direction, Move, Outcome};
use thermocline_core::pace::ScanPace;
use thermocline_core::topology::{Node, NodeState, Topology, Watermarks};
use thermocline_core::units::{Nanos, NodeId, PageSize, Pfn, Pid, ScopeId, TierId, VirtPage};

use super::{Ranks, decision, kind, names};
use crate::column::{Bad, RowValues};
use crate::piece::{Answer, Phase, Piece, RegionCount, Step};
use crate::schema::TableId;

/// A row of `events`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Where in a step it happened.
    pub phase: Phase,
    /// Its kind.
    pub kind: String,
    /// The time of the step.
    pub time: Nanos,
    /// Rows in the table of its kind.
    pub rows: usize,
    /// Of a batch, an outcome or a demand: its number.
    pub number: Option<u64>,
    /// The time that the evidence names.
    pub at: Option<Nanos>,
}

impl Header {
    /// Reads the row.
    ///
    /// # Errors
    /// A value that it cannot have.
    pub fn of(row: &mut RowValues<'_>) -> Result<Header, Bad> {
        Ok(Header {
            phase: row.named(Phase::named)?,
            kind: row.text()?.to_owned(),
            time: Nanos(row.number()?),
            rows: row.number()?,
            number: row.maybe()?,
            at: row.maybe()?.map(Nanos),
        })
    }
}

/// Where the rows of an event come from.
pub trait Take {
    /// Why they cannot be had.
    type Error: From<Bad>;

    /// Passes the event's rows of a table to `each`, in order.
    ///
    /// # Errors
    /// The table cannot be read, or `each` complains.
    fn take(
        &mut self,
        table: TableId,
        each: &mut dyn FnMut(RowValues<'_>) -> Result<(), Bad>,
    ) -> Result<(), Self::Error>;

    /// What to say about a row of `events` that does not describe what is there.
    fn bad(&self) -> Self::Error;
}

/// The event's rows of a table, each as `read` reads it.
fn all<T, F: Take>(
    from: &mut F,
    table: TableId,
    read: impl Fn(RowValues<'_>) -> Result<T, Bad>,
) -> Result<Vec<T>, F::Error> {
    let mut out = Vec::new();
    from.take(table, &mut |row| {
        out.push(read(row)?);
        Ok(())
    })?;
    Ok(out)
}

/// The only row.
fn one<T, F: Take>(
    from: &mut F,
    table: TableId,
    read: impl Fn(RowValues<'_>) -> Result<T, Bad>,
) -> Result<T, F::Error> {
    let mut rows = all(from, table, read)?;
    match (rows.pop(), rows.is_empty()) {
        (Some(row), true) => Ok(row),
        _ => Err(from.bad()),
    }
}

/// The piece that the rows of an event are; `ranks` belongs to the part.
///
/// # Errors
/// They are not there, or have values that they cannot have.
pub fn get<F: Take>(head: &Header, ranks: &mut Ranks, from: &mut F) -> Result<Piece, F::Error> {
    let number = |from: &mut F| head.number.ok_or_else(|| from.bad());
    let at = |from: &mut F| head.at.ok_or_else(|| from.bad());
    let (piece, rows) = match head.kind.as_str() {
        kind::STEP => (Piece::Step(one(from, TableId::Steps, step)?), 1),
        kind::ACCESSES => {
            let mut batch = Vec::with_capacity(head.rows.min(1 << 16));
            from.take(TableId::Accesses, &mut |row| {
                batch.push(access(row, ranks)?);
                Ok(())
            })?;
            let rows = batch.len();
            (Piece::Accesses(batch, all(from, TableId::Answers, answer)?), rows)
        }
        kind::REGIONS => {
            let regions = all(from, TableId::Regions, |mut row| region(&mut row))?;
            let rows = regions.len();
            (Piece::Regions(RegionSnapshot { time: at(from)?, regions }), rows)
        }
        kind::REGION_COUNTS => {
            let regions = all(from, TableId::RegionCounts, region_count)?;
            let rows = regions.len();
            (Piece::RegionCounts(at(from)?, regions), rows)
        }
        kind::REGION_PAGES => {
            let pages = all(from, TableId::RegionPages, region_page)?;
            let rows = pages.len();
            (Piece::RegionPages(pages), rows)
        }
        kind::ONLINE | kind::OFFLINE => (one(from, TableId::Memory, memory)?, 1),
        kind::TOPOLOGY => topology(all(from, TableId::Topology, node)?).ok_or_else(|| from.bad())?,
        kind::PROCESS => (one(from, TableId::Processes, process)?, 1),
        kind::OUTCOME => {
            let outcomes = all(from, TableId::Outcomes, |mut row| row.named(Outcome::named))?;
            let rows = outcomes.len();
            (Piece::Outcome(BatchOutcome { id: BatchId(number(from)?), time: at(from)?, outcomes }), rows)
        }
        kind::DEMOTED => {
            let rows = all(from, TableId::Demoted, demoted)?;
            let Some((&(node, None, pages, Some(cpu)), scopes)) = rows.split_first() else {
                return Err(from.bad());
            };
            let by_scope = scopes.iter().map(|(_, scope, pages, _)| Some(((*scope)?, *pages)));
            let by_scope: Option<Vec<_>> = by_scope.collect();
            let by_scope = by_scope.ok_or_else(|| from.bad())?;
            (Piece::Demoted(Demoted { id: number(from)?, node, pages, cpu, by_scope }), rows.len())
        }
        kind::HOLDING => (Piece::Holding(one(from, TableId::Holdings, holding)?), 1),
        kind::PRESSURE => (Piece::Pressure(one(from, TableId::Pressures, pressure)?), 1),
        kind::SCANS => (Piece::Scans(one(from, TableId::Scans, scans)?), 1),
        kind::PROGRAMS => (Piece::Programs(one(from, TableId::Programs, programs)?), 1),
        kind::READ => (Piece::Read, 0),
        kind::NODES => {
            let states = all(from, TableId::Nodes, state)?;
            let rows = states.len();
            (Piece::Nodes(states), rows)
        }
        kind::BATCH => {
            let rows = all(from, TableId::Moves, one_move)?;
            let Some(&((pid, target, direction), _)) = rows.first() else { return Err(from.bad()) };
            let moves: Vec<Move> = rows.into_iter().map(|(_, one)| one).collect();
            let rows = moves.len();
            (Piece::Batch(Batch { id: BatchId(number(from)?), pid, target, direction, moves }), rows)
        }
        kind::DEMAND => {
            let rows = all(from, TableId::Demands, limit)?;
            let demand = demand(number(from)?, &rows).ok_or_else(|| from.bad())?;
            (Piece::Demand(demand), rows.len())
        }
        kind::DECISIONS => {
            let decisions = all(from, TableId::Decisions, decision::get)?;
            let rows = decisions.len();
            (Piece::Decisions(decisions), rows)
        }
        kind::SETTING => {
            let of =
                |mut row: RowValues<'_>| Ok(Piece::Setting(row.text()?.to_owned(), row.text()?.to_owned()));
            (one(from, TableId::Settings, of)?, 1)
        }
        kind::LOSS => {
            let of =
                |mut row: RowValues<'_>| Ok(Piece::Loss { events: row.number()?, pieces: row.number()? });
            (one(from, TableId::Losses, of)?, 1)
        }
        _ => return Err(from.bad()),
    };
    if rows == head.rows { Ok(piece) } else { Err(from.bad()) }
}

fn step(mut row: RowValues<'_>) -> Result<Step, Bad> {
    let time = Nanos(row.number()?);
    let (due, last, looking, demotes) = (row.flag()?, row.flag()?, row.flag()?, row.flag()?);
    let pacing =
        row.named(|name| names::PACINGS.iter().find(|(of, _)| *of == name).map(|(_, pacing)| *pacing))?;
    let (step_mb, period_min_ms, period_max_ms) = (row.maybe()?, row.maybe()?, row.maybe()?);
    let renewing = row.maybe_flag()?;
    let wish = step_mb.zip(renewing);
    let wish = wish.map(|(step_mb, renewing)| ScanPace { step_mb, period_min_ms, period_max_ms, renewing });
    Ok(Step { time, due, last, looking, demotes, pacing, wish })
}

/// A page, if one is known; of one without a process, that is not known.
fn page(row: &mut RowValues<'_>) -> Result<Option<VirtPage>, Bad> {
    match (row.maybe()?, row.maybe()?) {
        (Some(pid), Some(vpn)) => Ok(Some(VirtPage { pid: Pid(pid), vpn })),
        (None, Some(vpn)) => Ok(Some(VirtPage { pid: Pid::UNKNOWN, vpn })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(row.bad()),
    }
}

/// A frame of what tables keep.
pub(super) fn frame(offset: Option<u64>, vpn: u64) -> Option<Pfn> {
    offset.map(|offset| Pfn(offset.wrapping_add(vpn)))
}

#[inline]
fn access(mut row: RowValues<'_>, ranks: &mut Ranks) -> Result<Access, Bad> {
    let time: u64 = row.number()?;
    let page = page(&mut row)?;
    let pfn = frame(row.maybe()?, page.map_or(0, |page| page.vpn));
    let (order, node, accessor) = (row.number()?, row.maybe()?.map(NodeId), row.maybe()?.map(NodeId));
    let node = node.unwrap_or(NodeId::UNKNOWN);
    let source: u8 = row.number()?;
    let (scanned, scan_rank) = (row.maybe::<u64>()?, row.maybe::<u64>()?);
    let detail = match source {
        0 => {
            let rank = ranks.next(page);
            let latency = scanned.zip(scan_rank).map(|(at, scan_rank)| {
                let faults = u32::try_from(rank.wrapping_sub(scan_rank)).map_err(|_| row.bad())?;
                Ok(FaultLatency { time: Nanos(time.wrapping_sub(at)), faults })
            });
            Detail::HintFault { latency: latency.transpose()? }
        }
        1 => {
            Detail::Sample { latency_cycles: row.number()?, store: row.maybe_flag()?, period: row.number()? }
        }
        2 => {
            let _: (Option<u32>, Option<bool>, Option<u32>) = (row.maybe()?, row.maybe_flag()?, row.maybe()?);
            Detail::Count { count: row.number()?, gap: row.maybe()?.map(Nanos) }
        }
        _ => return Err(row.bad()),
    };
    Ok(Access { time: Nanos(time), pfn, page, order, node, accessor, detail })
}

fn answer(mut row: RowValues<'_>) -> Result<Answer, Bad> {
    let bounds = row.named(|asked| match asked {
        "bounds" => Some(true),
        "marked" => Some(false),
        _ => None,
    })?;
    let page = VirtPage { pid: Pid(row.number()?), vpn: row.number()? };
    let known = row.flag()?;
    let (start, end): (Option<u64>, Option<u64>) = (row.maybe()?, row.maybe()?);
    Ok(if bounds {
        let bounds = start.zip(end).map(|(start, end)| start..end);
        if bounds.is_some() != known {
            return Err(row.bad());
        }
        Answer::Bounds(page, bounds)
    } else {
        let marked = Marked { node: row.maybe()?.map(NodeId), pfn: frame(row.maybe()?, page.vpn) };
        Answer::Marked(page, known.then_some(marked))
    })
}

fn region(row: &mut RowValues<'_>) -> Result<Region, Bad> {
    let space = row.text()?;
    let of = row.number()?;
    let space = names::space_of(space, of).ok_or_else(|| row.bad())?;
    let (start, end, access_rate_bp) = (row.number()?, row.number()?, row.number()?);
    let (age, check) = (Nanos(row.number()?), Nanos(row.number()?));
    Ok(Region { space, start, end, access_rate_bp, age, check })
}

fn region_count(mut row: RowValues<'_>) -> Result<RegionCount, Bad> {
    let space = row.text()?;
    let of = row.number()?;
    let space = names::space_of(space, of).ok_or_else(|| row.bad())?;
    let (start, end, accesses) = (row.number()?, row.number()?, row.number()?);
    Ok(RegionCount { space, start, end, accesses, writes: row.maybe()?, age: row.maybe()? })
}

fn region_page(mut row: RowValues<'_>) -> Result<RegionPage, Bad> {
    let time = Nanos(row.number()?);
    let page = VirtPage { pid: Pid(row.number()?), vpn: row.number()? };
    Ok(RegionPage {
        time,
        page,
        pfn: frame(row.maybe()?, page.vpn),
        order: row.number()?,
        node: NodeId(row.number()?),
        region: region(&mut row)?,
    })
}

fn memory(mut row: RowValues<'_>) -> Result<Piece, Bad> {
    let (node, start, end) = (row.maybe()?, Pfn(row.number()?), Pfn(row.number()?));
    Ok(match node {
        Some(node) => Piece::Online(NodeId(node), start, end),
        None => Piece::Offline(start, end),
    })
}

/// A node, and the size of the machine's pages in bytes.
///
/// # Errors
/// A value that it cannot have.
pub fn node(mut row: RowValues<'_>) -> Result<(Node, u64), Bad> {
    let (id, tier) = (NodeId(row.number()?), TierId(row.number()?));
    let cpus = row.named(names::listed)?;
    let (capacity_pages, page_bytes) = (row.number()?, row.number()?);
    let (read_latency_ns, read_bandwidth_mbps) = (row.maybe()?, row.maybe()?);
    let distances = row.named(names::listed)?;
    let node = Node { id, tier, cpus, capacity_pages, read_latency_ns, read_bandwidth_mbps, distances };
    Ok((node, page_bytes))
}

/// The machine of these nodes, and their number; `None` if no machine has such nodes.
pub fn topology(nodes: Vec<(Node, u64)>) -> Option<(Piece, usize)> {
    let size = PageSize::of_bytes(nodes.first()?.1)?;
    let rows = nodes.len();
    let topology = Topology::new(nodes.into_iter().map(|(node, _)| node).collect()).ok()?;
    Some((Piece::Topology(topology.with_page_size(size)), rows))
}

fn process(mut row: RowValues<'_>) -> Result<Piece, Bad> {
    let pid = Pid(row.number()?);
    let what = row.text()?;
    let scope = row.maybe()?;
    match what {
        "exec" => Ok(Piece::Exec(pid)),
        "exit" => Ok(Piece::Exit(pid)),
        _ => names::membership_of(what, scope).map(|of| Piece::Process(pid, of)).ok_or_else(|| row.bad()),
    }
}

type DemotedRow = (NodeId, Option<ScopeId>, u64, Option<Nanos>);

fn demoted(mut row: RowValues<'_>) -> Result<DemotedRow, Bad> {
    let (node, scope) = (NodeId(row.number()?), row.maybe()?.map(ScopeId));
    Ok((node, scope, row.number()?, row.maybe()?.map(Nanos)))
}

fn holding(mut row: RowValues<'_>) -> Result<Holding, Bad> {
    let scope = ScopeId(row.number()?);
    Ok(Holding { scope, time: Nanos(row.number()?), pages: row.number()? })
}

fn pressure(mut row: RowValues<'_>) -> Result<Pressure, Bad> {
    let (scope, time) = (ScopeId(row.number()?), Nanos(row.number()?));
    Ok(Pressure { scope, time, some_us: row.number()?, full_us: row.number()? })
}

fn scans(mut row: RowValues<'_>) -> Result<Option<Scans>, Bad> {
    let (pid, interval, mib, passes) = (row.maybe()?, row.maybe()?, row.maybe()?, row.maybe()?);
    let (Some(pid), Some(interval), Some(mib), Some(passes)) = (pid, interval, mib, passes) else {
        return Ok(None);
    };
    Ok(Some(Scans { pid: Pid(pid), interval: Nanos(interval), mib, passes }))
}

fn programs(mut row: RowValues<'_>) -> Result<Programs, Bad> {
    Ok(Programs { time: Nanos(row.number()?), cpu: Nanos(row.number()?) })
}

fn state(mut row: RowValues<'_>) -> Result<NodeState, Bad> {
    let node = NodeId(row.number()?);
    let (free_pages, managed_pages) = (row.number()?, row.number()?);
    let (min_pages, low_pages) = (row.number()?, row.number()?);
    let (high_pages, promo_pages) = (row.number()?, row.number()?);
    let watermarks = Watermarks { min_pages, low_pages, high_pages, promo_pages };
    Ok(NodeState { node, free_pages, managed_pages, watermarks })
}

type MoveRow = ((Pid, NodeId, Direction), Move);

fn one_move(mut row: RowValues<'_>) -> Result<MoveRow, Bad> {
    let batch = (Pid(row.number()?), NodeId(row.number()?), row.named(Direction::named)?);
    let page = VirtPage { pid: Pid(row.number()?), vpn: row.number()? };
    let (pfn, order) = (frame(row.maybe()?, page.vpn), row.number()?);
    Ok((batch, Move { page, pfn, order, from: NodeId(row.number()?) }))
}

type LimitRow = (String, Option<ScopeId>, NodeId, u64, Nanos);

fn limit(mut row: RowValues<'_>) -> Result<LimitRow, Bad> {
    let (limit, scope) = (row.text()?.to_owned(), row.maybe()?.map(ScopeId));
    Ok((limit, scope, NodeId(row.number()?), row.number()?, Nanos(row.number()?)))
}

fn demand(id: u64, rows: &[LimitRow]) -> Option<Demand> {
    let ((limit, only, node, pages, idle), scopes) = rows.split_first()?;
    if limit != if only.is_some() { "only" } else { "all" } {
        return None;
    }
    let (allowances, braked) = (Vec::new(), Vec::new());
    let mut demand = Demand { id, node: *node, pages: *pages, idle: *idle, allowances, braked, only: *only };
    for (limit, scope, _, pages, _) in scopes {
        let allowance = Allowance { scope: (*scope)?, pages: *pages };
        match limit.as_str() {
            "floor" => demand.allowances.push(allowance),
            "braked" => demand.braked.push(allowance),
            _ => return None,
        }
    }
    Some(demand)
}
