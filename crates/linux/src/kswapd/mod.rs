//! Nodes of the top tier on which kswapd has given up: reports them, and brings kswapd back.
//!
//! After sixteen failed attempts kswapd leaves a node alone (Linux 6.12 mm/vmscan.c,
//! MAX_RECLAIM_RETRIES): if DRAM was filled while demotion was off, kswapd demotes nothing once
//! demotion is on. Two things bring it back without touching memory of others. Newer kernels reset
//! the count of failures when demotion is switched on, so it is switched off and on again. All
//! kernels reset it when any page of the node is reclaimed, so a few pages of our own cgroup are
//! reclaimed (`revive`); some of the newest do so only if that has balanced the node.

mod revive;

use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use serde::{Deserialize, Serialize};
use thermocline_core::config::Config;
use thermocline_core::topology::Topology;
use thermocline_core::units::{Nanos, NodeId};

use crate::actuator::{Actuator, Commands};
use crate::demoter::{demotion_enabled, demotion_is_on};
use crate::lists::nodes_text;
use crate::root::{Root, read_optional};
use crate::zoneinfo;
use revive::Reclaim;

/// Time between two checks: the file lists every CPU's page sets, and a second's delay does not
/// matter.
const LOOK_EVERY: Nanos = Nanos::from_s(10);
/// Time from one attempt to the next.
const TRY_EVERY: Nanos = Nanos::from_s(60);

/// The state of kswapd, for `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KswapdStats {
    /// Nodes of the top tier on which it has given up, as of the last check.
    pub given_up: Vec<NodeId>,
    /// Times that it was brought back.
    pub brought_back: u64,
    /// Why it has not come back, after the last attempt.
    pub why: Option<String>,
}

/// Monitors kswapd.
#[derive(Debug)]
pub struct Kswapd {
    root: Root,
    /// No scope is named, so no process is excluded.
    anybody: bool,
    /// Whether to bring it back.
    wanted: bool,
    looked: Option<Nanos>,
    tried: Option<Nanos>,
    /// The last attempt, while it is under way.
    attempt: Option<Receiver<Result<(), String>>>,
    /// Switching demotion off and on has been tried on this kernel without success.
    switching_is_vain: bool,
    /// The last message, so that a state in which nothing is tried is reported once.
    said: Option<String>,
    stats: KswapdStats,
}

impl Kswapd {
    /// For the machine at `root`. Unless settings `may_change`, kswapd is only observed.
    pub fn new(root: &Root, config: &Config, may_change: bool) -> Kswapd {
        Kswapd {
            root: root.clone(),
            anybody: config.scope.is_empty(),
            wanted: may_change && config.demotion.revive_kswapd,
            looked: None,
            tried: None,
            attempt: None,
            switching_is_vain: false,
            said: None,
            stats: KswapdStats::default(),
        }
    }

    /// Takes other scopes.
    pub fn reload(&mut self, config: &Config) {
        self.anybody = config.scope.is_empty();
    }

    /// The present state.
    pub fn stats(&self) -> KswapdStats {
        self.stats.clone()
    }

    /// Whether it has given up on a node of the top tier.
    pub fn has_given_up(&self) -> bool {
        !self.stats.given_up.is_empty()
    }

    /// Checks every ten seconds, and tries once a minute to bring kswapd back; never blocks.
    /// Returns messages to report.
    pub fn look(&mut self, now: Nanos, topology: &Topology, actuator: &mut Actuator) -> Option<String> {
        if let Some(attempt) = &self.attempt {
            let ended = match attempt.try_recv() {
                Ok(ended) => ended,
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => Err("the attempt was broken off".to_owned()),
            };
            self.attempt = None;
            return Some(self.ended(ended, "a few pages of our own cgroup were reclaimed"));
        }
        if self.looked.is_some_and(|looked| now.since(looked) < LOOK_EVERY) {
            return None;
        }
        self.looked = Some(now);
        self.stats.given_up = given_up(&self.root, topology);
        if !self.has_given_up() {
            (self.said, self.stats.why) = (None, None);
            return None;
        }
        match self.obstacle() {
            Some(why) => self.say_once(why),
            None if self.tried.is_some_and(|tried| now.since(tried) < TRY_EVERY) => None,
            None => {
                self.tried = Some(now);
                self.begin(topology, actuator)
            }
        }
    }

    /// Why nothing is tried.
    fn obstacle(&self) -> Option<String> {
        if !demotion_is_on(&self.root) {
            return Some("demotion is off, so that it would find nothing to do there".to_owned());
        }
        let why = "it is left so, because pages are only observed or demotion.revive_kswapd is false";
        (!self.wanted).then(|| why.to_owned())
    }

    fn begin(&mut self, topology: &Topology, actuator: &mut Actuator) -> Option<String> {
        if !self.switching_is_vain {
            // A setting that cannot be changed has been reported before.
            let switched = actuator.switch_over(&demotion_enabled(&self.root), "0").is_ok();
            if switched && given_up(&self.root, topology).is_empty() {
                return Some(self.ended(Ok(()), "demotion was switched off and on again"));
            }
            self.switching_is_vain = true;
        }
        let reclaim = Reclaim::new(&self.root, self.anybody, actuator.commands()?);
        let (root, topology) = (self.root.clone(), topology.clone());
        let (tell, told) = sync_channel(1);
        let work = move || {
            // The receiver may have ended.
            let _ = tell.send(reclaim.try_all(|| given_up(&root, &topology), &topology));
        };
        match std::thread::Builder::new().name("kswapd".to_owned()).spawn(work) {
            Ok(_) => self.attempt = Some(told),
            Err(error) => return Some(self.ended(Err(error.to_string()), "")),
        }
        None
    }

    fn ended(&mut self, ended: Result<(), String>, how: &str) -> String {
        let nodes = numbers(&self.stats.given_up);
        match ended {
            Ok(()) => {
                self.stats.brought_back += 1;
                (self.stats.given_up, self.stats.why, self.said) = (Vec::new(), None, None);
                format!("kswapd had given up on {nodes} and is back: {how}")
            }
            Err(why) => {
                self.stats.why = Some(why.clone());
                sentence(&nodes, &why)
            }
        }
    }

    fn say_once(&mut self, why: String) -> Option<String> {
        let told = sentence(&numbers(&self.stats.given_up), &why);
        self.stats.why = Some(why);
        let news = self.said.as_ref() != Some(&told);
        self.said = Some(told.clone());
        news.then_some(told)
    }
}

/// Tries to bring kswapd back by reclaim where it has given up on a node of the top tier, while
/// demotion is on, regardless of whose memory is demoted; waits until the attempt has ended.
///
/// # Errors
/// Why it has not come back.
pub fn bring_back(root: &Root, topology: &Topology, commands: Commands) -> Result<(), String> {
    let reclaim = Reclaim::new(root, true, commands);
    // It binds its thread to CPUs.
    let work = || reclaim.try_all(|| given_up(root, topology), topology);
    std::thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|_| Err("the attempt was broken off".to_owned()))
}

fn sentence(nodes: &str, why: &str) -> String {
    format!("kswapd has given up on {nodes}: nothing goes down by it where the node is full; {why}")
}

fn numbers(nodes: &[NodeId]) -> String {
    nodes_text(&nodes.iter().map(|id| u32::from(id.0)).collect::<Vec<u32>>())
}

/// Nodes of the top tier on which kswapd has given up now; none if that cannot be read.
pub fn given_up(root: &Root, topology: &Topology) -> Vec<NodeId> {
    let text = read_optional(&root.proc.join("zoneinfo")).ok().flatten().unwrap_or_default();
    let mut nodes = zoneinfo::given_up(&zoneinfo::parse(&text));
    nodes.retain(|id| topology.is_top(*id));
    nodes
}

#[cfg(test)]
mod tests;
