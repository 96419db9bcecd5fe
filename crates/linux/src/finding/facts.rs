//! What is known when findings are judged: facts from the machine's files, and figures that only a
//! running daemon has.

use thermocline_core::config::{Config, DemotionWay, Enabled, ManagerName, Source, Unreachable};
use thermocline_core::units::{Nanos, NodeId};

use super::cgroups::{self, Limited};
use super::minute::Minute;
use super::others::Others;
use super::{Blind, Confined, Look, Programs, pressure};
use crate::actuator::{self, Changed};
use crate::away::Away;
use crate::demoter::{NotDemoting, Offer};
use crate::scope::missing;
use crate::source::ROWS;
use crate::topology::Discovered;
use crate::zoneinfo::{self, Zone};

/// Ticks a second in which /proc/stat counts (Linux include/asm-generic/param.h, USER_HZ).
const TICKS_PER_S: u64 = 100;

/// What the machine's files show. Whatever could not be read is absent, and judged as nothing.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The zones of all nodes.
    pub zones: Vec<Zone>,
    /// kernel.numa_balancing.
    pub numa_balancing: Option<u32>,
    /// Whether the kernel demotes.
    pub demotion_enabled: Option<bool>,
    /// Other movers of pages.
    pub others: Others,
    /// Settings of a running thermocline that have another value.
    pub changed: Vec<Changed>,
    /// Scopes whose cgroup is not there, a sentence each.
    pub no_cgroup: Vec<String>,
    /// Why memory pressure cannot be read where the brake needs it.
    pub no_pressure: Vec<String>,
    /// Cgroups with limits or protection.
    pub limited: Vec<Limited>,
    /// Memory that hint faults cannot see.
    pub blind: Blind,
    /// Programs whose cpusets leave out the whole top tier.
    pub confined: Vec<Confined>,
    /// Programs whose threads are away from their memory.
    pub away: Vec<Away>,
    /// CPU time of all programs since boot.
    pub programs_cpu: Option<Nanos>,
}

impl Facts {
    /// Takes what the mappings of programs show.
    pub(crate) fn take(&mut self, programs: Programs) {
        (self.blind, self.confined, self.away) = (programs.blind, programs.confined, programs.away);
    }

    /// Reads what takes few files. Programs and mappings, which take a look at every process, are
    /// read by [`Others::read_programs`] and [`super::blind`].
    pub(crate) fn read(look: &mut Look<'_>, config: &Config) -> Facts {
        let root = look.root;
        let number = root.proc.join("sys/kernel/numa_balancing");
        let demotion = look.word(&root.sys.join("kernel/mm/numa/demotion_enabled"));
        let state_dir = std::path::Path::new(&config.daemon.state_dir);
        let named = config.scope.iter().any(|scope| scope.cgroup.is_some());
        let no_cgroup = if named { missing(root, &config.scope) } else { Ok(Vec::new()) };
        Facts {
            zones: zoneinfo::parse(&look.text(&root.proc.join("zoneinfo")).unwrap_or_default()),
            numa_balancing: look.number(&number),
            demotion_enabled: demotion.map(|text| actuator::same_value(&text, "1")),
            others: Others::read(look, state_dir),
            changed: actuator::changed(root, state_dir),
            no_cgroup: look.keep(no_cgroup).unwrap_or_default(),
            no_pressure: pressure::unknown(look, config),
            limited: cgroups::limited(look, config),
            blind: Blind::default(),
            confined: Vec::new(),
            away: Vec::new(),
            programs_cpu: look.text(&root.proc.join("stat")).as_deref().and_then(programs_cpu),
        }
    }
}

/// The CPU time of user mode in /proc/stat, ordinary and nice (Linux fs/proc/stat.c, show_stat).
fn programs_cpu(text: &str) -> Option<Nanos> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let mut ticks = line.split_ascii_whitespace().map(str::parse::<u64>);
    let (user, nice) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    Some(Nanos(user.saturating_add(nice).saturating_mul(1_000_000_000 / TICKS_PER_S)))
}

/// How cold pages of the top tier go down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Demoting {
    /// Not at all, as configured, or because all memory is in one tier.
    NotWanted,
    /// By thermocline, in this way.
    Ours(DemotionWay),
    /// By the kernel, under memory pressure, for a manager of the kernel's.
    ByKernel,
    /// Not at all, although the configuration wants it, and why.
    No(String),
}

impl Demoting {
    /// What `config` wants, and what the machine offers for it where thermocline demotes.
    pub fn new(config: &Config, offered: Option<&Result<Offer, NotDemoting>>) -> Demoting {
        match offered {
            Some(Ok(offer)) => Demoting::Ours(offer.way.name()),
            Some(Err(NotDemoting::Config(Unreachable::Off | Unreachable::Direction))) => Demoting::NotWanted,
            // That there is one tier is a finding of its own.
            Some(Err(NotDemoting::OneTier)) => Demoting::NotWanted,
            Some(Err(why)) => Demoting::No(why.to_string()),
            None if by_kernel(config) => Demoting::ByKernel,
            None => Demoting::NotWanted,
        }
    }
}

fn by_kernel(config: &Config) -> bool {
    config.manager.name == ManagerName::Numab2 && config.manager.numab2.demotion_enabled == Some(true)
}

/// For whom findings are judged.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The configuration, of a daemon or of a run that is considered.
    pub config: &'a Config,
    /// Nodes and tiers, where they could be found.
    pub found: Option<&'a Discovered>,
    /// How cold pages go down, or would.
    pub demoting: &'a Demoting,
    /// The figures of the daemon; `None` for the doctor.
    pub running: Option<Running<'a>>,
}

/// Figures that only a running daemon has.
#[derive(Clone, Copy, Debug)]
pub struct Running<'a> {
    /// The last full minute, once there is one.
    pub minute: Option<&'a Minute>,
    /// Its settings that have another value.
    pub changed: &'a [Changed],
    /// Nodes of the top tier on which kswapd has given up.
    pub given_up: &'a [NodeId],
}

impl View<'_> {
    /// kernel.numa_balancing as the manager has it, or would have it; `None` if it is left alone.
    pub(super) fn mode(&self) -> Option<u32> {
        wanted_mode(self.config)
    }

    /// Whether hint faults are the only source of evidence that is switched on.
    pub(super) fn hint_faults_only(&self) -> bool {
        let mut others = ROWS.iter().filter(|row| row.source != Source::HintFault);
        others.all(|row| self.config.source.keys(row.source).enabled() == Enabled::No)
    }

    /// Settings that have another value than a running thermocline gave them.
    pub(super) fn changed<'b>(&'b self, facts: &'b Facts) -> &'b [Changed] {
        self.running.map_or(&facts.changed, |running| running.changed)
    }

    /// The last full minute of a running daemon.
    pub(super) fn minute(&self) -> Option<&Minute> {
        self.running.and_then(|running| running.minute)
    }
}

/// kernel.numa_balancing as a run with `config` would set it; `None` if it would not.
pub(crate) fn wanted_mode(config: &Config) -> Option<u32> {
    match config.manager.name {
        ManagerName::Numab2 => Some(2),
        ManagerName::Damon => config.manager.damon.numa_balancing,
        ManagerName::Thermocline | ManagerName::Observe => config.kernel.numa_balancing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_programs_is_that_of_user_mode() {
        assert_eq!(programs_cpu("cpu  250 50 7 9 1\ncpu0 1 1 1 1\n"), Some(Nanos::from_s(3)));
        assert_eq!(programs_cpu("intr 5\n"), None);
    }
}
