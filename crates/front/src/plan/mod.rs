//! How much DRAM a recorded program needs.

mod asked;
pub mod text;

pub use asked::{Asked, Size, latency, share, source};

use serde::Serialize;
use thermocline_core::units::PAGE_SIZE;
use thermocline_sim::spec::SpecError;
use thermocline_trace::heat::band::rate_band;
use thermocline_trace::heat::{Checks, Heat, Options, Spectrum, estimate};
use thermocline_trace::plan::{Band, Open, Point, Question, Supply};
use thermocline_trace::reader::Recording;

use crate::words::bytes;
use crate::workload::MEMORY_BOUND;

/// Latencies that are taken where neither the firmware nor the user says any, in ns.
const LATENCY_NS: [f64; 2] = [100.0, 250.0];
/// Shares of time spent waiting for memory that the answer is given for beside the one in question.
const OTHERS: [f64; 4] = [0.1, 0.3, 0.5, 0.8];
/// Sizes of DRAM by default: every so many percent.
const STEP_PERCENT: usize = 5;

/// Estimates heat, and answers.
///
/// # Errors
/// It has no evidence that heat could be estimated from, or a size is larger than the memory that
/// was seen.
pub fn plan(asked: &Asked, recording: &Recording) -> Result<Answer, SpecError> {
    let place = recording.folder().display().to_string();
    let heat = estimate(recording, Options { source: asked.source, epochs: None })
        .map_err(|e| SpecError::new(&place, "heat cannot be estimated from it".to_owned(), e.to_string()))?;
    Answer::new(asked, recording, &heat)
}

/// Memory, in bytes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    /// With evidence or silent: what the answer is about.
    pub seen: u64,
    /// Of these, in use without an access that was seen.
    pub silent: u64,
    /// In use, and not visible to the source.
    pub dark: u64,
}

/// DRAM that keeps the loss, if the program waits for memory for another share of its time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Other {
    /// That share.
    pub memory_bound: f64,
    /// The DRAM, in bytes.
    pub dram: Band,
}

/// What `--json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// The recording.
    pub recording: String,
    /// The source of the evidence.
    pub source: &'static str,
    /// How long it covers; nothing if its times are no time.
    pub seconds: Option<f64>,
    /// What its times are, if they are no time but an order.
    pub untimed: Option<String>,
    /// Parts of that time in which heat differed.
    pub epochs: usize,
    /// Memory, in bytes.
    pub memory: Memory,
    /// Rates above this are alike to the source, in accesses a second to a page.
    pub reach_per_s: Option<f64>,
    /// What checks of several lengths found, which tells how many pages are how hot although pages
    /// of a region are not told apart; empty where checks have one length.
    pub checks: Vec<Checks>,
    /// A silent page had fewer accesses a second than this, at 95 %.
    pub silent_below_per_s: Option<f64>,
    /// By which factor hot pages may be hotter, because evidence costs the program time.
    pub slowed: Option<f64>,
    /// All accesses, a second.
    pub accesses_per_s: Band,
    /// What was asked.
    pub question: Question,
    /// Whether the memory-bound share was given.
    pub memory_bound_given: bool,
    /// The share of the accesses that DRAM has to serve.
    pub share_needed: f64,
    /// The DRAM that keeps the loss, in bytes.
    pub smallest: Band,
    /// The same, if the program waits for memory for another share of its time.
    pub others: Vec<Other>,
    /// Sizes of DRAM.
    pub points: Vec<Point>,
    /// Why shares may be greater than the evidence can tell, if they may.
    pub open: Option<Open>,
    /// What is assumed, in sentences.
    pub assumptions: Vec<String>,
    /// What of the recording could not be used.
    pub notes: Vec<String>,
}

impl Answer {
    /// Answers.
    ///
    /// # Errors
    /// A size is larger than the memory that was seen.
    pub fn new(asked: &Asked, recording: &Recording, heat: &Heat) -> Result<Answer, SpecError> {
        let evidence = heat.evidence();
        let pages = evidence.seen_pages() + evidence.silent_pages;
        let firmware = of_firmware(recording);
        let latency_ns = asked.latency_ns.or(firmware).unwrap_or(LATENCY_NS);
        let memory_bound = asked.memory_bound.unwrap_or(MEMORY_BOUND);
        let question = Question { loss: asked.loss, latency_ns, memory_bound };
        let supply = Supply::new(heat);
        let untimed = recording.untimed();
        let timed = untimed.is_none();
        let sizes = sizes(&asked.sizes, pages)?;
        let silent = (evidence.silent_pages > 0).then(|| rate_band(0.0, evidence.silent.quiet_s, 0.9).1);
        let smallest = |question: &Question| in_bytes(supply.smallest(question));
        let others = OTHERS.into_iter().filter(|share| (share - memory_bound).abs() > 1e-9).map(|share| {
            let question = Question { memory_bound: share, ..question };
            Other { memory_bound: share, dram: smallest(&question) }
        });
        let mut answer = Answer {
            recording: recording.folder().display().to_string(),
            source: evidence.source.text(),
            seconds: timed.then(|| evidence.end.since(evidence.start).0 as f64 / 1e9),
            untimed: untimed.map(str::to_owned),
            epochs: evidence.epochs,
            memory: Memory {
                seen: pages * PAGE_SIZE,
                silent: evidence.silent_pages * PAGE_SIZE,
                dark: evidence.dark_pages * PAGE_SIZE,
            },
            reach_per_s: evidence.reach().filter(|_| timed),
            checks: heat.spectrum().map(Spectrum::checks).unwrap_or_default(),
            silent_below_per_s: silent.filter(|rate| timed && rate.is_finite()),
            slowed: supply.accesses().likely.map(|accesses| evidence.slowed(accesses)),
            accesses_per_s: if timed { supply.accesses() } else { Band::default() },
            question,
            memory_bound_given: asked.memory_bound.is_some(),
            share_needed: question.share_needed(),
            smallest: smallest(&question),
            others: others.collect(),
            points: sizes.into_iter().map(|pages| supply.point(pages, &question)).collect(),
            open: supply.open(),
            assumptions: Vec::new(),
            notes: heat.notes().to_vec(),
        };
        answer.assumptions = assumptions(&answer, asked, firmware.is_some());
        Ok(answer)
    }
}

fn in_bytes(pages: Band) -> Band {
    let bytes = |pages: Option<f64>| pages.map(|pages| pages * PAGE_SIZE as f64);
    Band { low: bytes(pages.low), likely: bytes(pages.likely), high: bytes(pages.high) }
}

/// Latencies of the fastest and the slowest node, if the firmware reported them for two or more.
fn of_firmware(recording: &Recording) -> Option<[f64; 2]> {
    let nodes = recording.topology().nodes.iter().filter(|node| node.capacity_pages > 0);
    let all: Option<Vec<f64>> = nodes.map(|node| node.read_latency_ns.map(f64::from)).collect();
    let all = all?;
    let fast = all.iter().copied().fold(f64::INFINITY, f64::min);
    let slow = all.iter().copied().fold(0.0, f64::max);
    (fast > 0.0 && fast < slow).then_some([fast, slow])
}

/// The sizes in pages, ascending.
fn sizes(asked: &[Size], pages: u64) -> Result<Vec<u64>, SpecError> {
    let of_share = |share: f64| ((pages as f64 * share).round() as u64).max(1);
    let mut sizes = Vec::new();
    for size in asked {
        let size = match size {
            Size::Share(share) => of_share(*share),
            Size::Bytes(bytes) if bytes.pages() > pages => {
                let seen = self::bytes(pages * PAGE_SIZE);
                let message = format!("{bytes} is more than the {seen} of memory that were seen");
                return Err(SpecError::new("--sizes", message, "give less: with all of it there is no loss"));
            }
            Size::Bytes(bytes) => bytes.pages().max(1),
        };
        sizes.push(size);
    }
    if asked.is_empty() {
        sizes.extend((1..=100 / STEP_PERCENT).map(|i| of_share((i * STEP_PERCENT) as f64 / 100.0)));
    }
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes)
}

fn assumptions(answer: &Answer, asked: &Asked, firmware: bool) -> Vec<String> {
    let [fast, slow] = answer.question.latency_ns;
    let memory = &answer.memory;
    let mut out = Vec::new();
    let mut say = |text: String| out.push(text);
    let bound = answer.question.memory_bound * 100.0;
    say(match answer.memory_bound_given {
        true => format!("the program waits for memory {bound:.0} % of its time with all in DRAM (given)"),
        false => format!(
            "the program waits for memory {bound:.0} % of its time with all in DRAM: assumed, not recorded; \
             give --memory-bound"
        ),
    });
    let from = match (asked.latency_ns.is_some(), firmware) {
        (true, _) => "given",
        (false, true) => "as the firmware reported",
        (false, false) => "assumed; give --latency",
    };
    say(format!("latency: DRAM {fast:.0} ns, the slower memory {slow:.0} ns ({from}), whatever the load"));
    say("the best placement: the hottest pages are in DRAM from the start, and moving them costs nothing; \
         `thermocline compare` simulates managers on the recording"
        .to_owned());
    say("the program goes on as it was recorded".to_owned());
    say(match answer.source {
        "hint-faults" => "a page's accesses come at random times: bursts count once, and so does what the \
                          caches serve"
            .to_owned(),
        "samples" => "what was sampled counts: the event that the samples were taken of".to_owned(),
        _ if !answer.checks.is_empty() => format!(
            "a page's accesses come at random times; checks of {} lengths tell how many pages are how hot, not \
             which: the placement is the best page by page, at each moment",
            answer.checks.len()
        ),
        _ => "pages of a region that differ are not told apart: placed page by page, more could be served"
            .to_owned(),
    });
    if memory.silent > 0 {
        let below = answer
            .silent_below_per_s
            .map_or(String::new(), |rate| format!(" (fewer than {rate:.2} accesses a second each, at 95 %)"));
        say(format!(
            "{} in use gave no evidence where it would have been seen, and count as cold{below}; if nobody \
             watched them, they may be hot",
            bytes(memory.silent)
        ));
    }
    if memory.dark > 0 {
        say(format!(
            "{} in use in the top tier cannot be seen by {}: nothing is said of them, and they need DRAM of \
             their own",
            bytes(memory.dark),
            answer.source
        ));
    }
    if let Some(times) = &answer.untimed {
        say(format!("its times are {times}: shares of the accesses are known, how many a second is not"));
    }
    if let Some(reach) = answer.reach_per_s {
        say(format!("rates above {reach:.0} accesses a second to a page are alike to {}", answer.source));
    }
    if let Some(slowed) = answer.slowed.filter(|slowed| *slowed >= 1.05) {
        say(format!(
            "hint faults slowed the program down while they came: hot pages may be up to {slowed:.1} times \
             as hot as estimated, which the band contains"
        ));
    }
    // Checks of several lengths do not say which pages are hot, nor so whether these change.
    if answer.epochs > 1 && answer.checks.is_empty() {
        say(format!(
            "heat changed: in {} parts of the time it is estimated anew; the placement stays the same in all",
            answer.epochs
        ));
    }
    out
}
