//! Decisions of the journal as rows.

use thermocline_core::access::Source;
use thermocline_core::candidate::Reason;
use thermocline_core::journal::{Decision, What};
use thermocline_core::label::Label;
use thermocline_core::moves::{BatchId, Direction, Outcome};
use thermocline_core::refusal::RefusalReason;
use thermocline_core::units::{Nanos, NodeId, Pid, VirtPage};
use thermocline_core::weigh::Sources;

use super::get::frame;
use super::put::offset;
use crate::column::{Bad, RowValues, Rows};

/// What a decision is called, its reason and its batch.
pub fn columns(what: What) -> (&'static str, Option<&'static str>, Option<BatchId>) {
    match what {
        What::Proposed => ("proposed", None, None),
        What::Refused { reason } => ("refused", Some(reason.name()), None),
        What::Held { reason } => ("held", Some(reason.name()), None),
        What::Expired { held } => ("expired", held.map(RefusalReason::name), None),
        What::Evicted => ("evicted", None, None),
        What::Exited => ("exited", None, None),
        What::Issued { batch } => ("issued", None, Some(batch)),
        What::Moved { batch } => ("moved", None, Some(batch)),
        What::Failed { batch, outcome } => ("failed", Some(outcome.name()), Some(batch)),
        What::Lost { batch } => ("lost", None, Some(batch)),
    }
}

fn what(name: &str, reason: Option<&str>, batch: Option<u64>) -> Option<What> {
    let refusal = || reason.and_then(RefusalReason::named);
    let batch = batch.map(BatchId);
    Some(match name {
        "proposed" => What::Proposed,
        "refused" => What::Refused { reason: refusal()? },
        "held" => What::Held { reason: refusal()? },
        "expired" => match reason {
            None => What::Expired { held: None },
            Some(_) => What::Expired { held: Some(refusal()?) },
        },
        "evicted" => What::Evicted,
        "exited" => What::Exited,
        "issued" => What::Issued { batch: batch? },
        "moved" => What::Moved { batch: batch? },
        "failed" => What::Failed { batch: batch?, outcome: Outcome::named(reason?)? },
        "lost" => What::Lost { batch: batch? },
        _ => return None,
    })
}

/// The names of a set of sources.
fn names(sources: Sources) -> String {
    sources.iter().map(Source::name).collect::<Vec<_>>().join(" ")
}

fn sources(text: &str) -> Option<Sources> {
    let add = |all: Sources, name| Source::named(name).map(|source| all.and(source));
    text.split_whitespace().try_fold(Sources::default(), add)
}

pub fn put(rows: &mut Rows, event: u64, decision: &Decision) {
    let (name, reason, batch) = columns(decision.what);
    rows.add(event)
        .number(decision.time.0)
        .text(name)
        .maybe_text(reason)
        .maybe(batch.map(|batch| batch.0))
        .number(decision.page.pid.0)
        .number(decision.page.vpn)
        .maybe(offset(decision.pfn, decision.page.vpn))
        .number(decision.pages)
        .text(decision.direction.name())
        .number(decision.from.0)
        .maybe(decision.to.map(|to| to.0))
        .number(decision.score)
        .text(decision.why.name())
        .text(&names(decision.sources));
}

pub fn get(mut row: RowValues<'_>) -> Result<Decision, Bad> {
    let time = Nanos(row.number()?);
    let name = row.text()?;
    let reason = row.maybe_text()?;
    let batch = row.maybe()?;
    let what = what(name, reason, batch).ok_or_else(|| row.bad())?;
    let page = VirtPage { pid: Pid(row.number()?), vpn: row.number()? };
    Ok(Decision {
        time,
        what,
        page,
        pfn: frame(row.maybe()?, page.vpn),
        pages: row.number()?,
        direction: row.named(Direction::named)?,
        from: NodeId(row.number()?),
        to: row.maybe()?.map(NodeId),
        score: row.number()?,
        why: row.named(Reason::named)?,
        sources: row.named(sources)?,
    })
}
