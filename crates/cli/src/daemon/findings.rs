//! The findings of a manager at work: collects what they are judged by, and tells what begins and
//! ends.

use std::time::SystemTime;

use thermocline_core::config::Config;
use thermocline_core::label::Label;
use thermocline_core::units::Nanos;
use thermocline_linux::actuator::Actuator;
use thermocline_linux::finding::{
    Change, Demoting, Facts, Finding, Follower, Kind, Minute, Reader, Running, Severity, Told, View, judge,
};
use thermocline_linux::kswapd::Kswapd;
use thermocline_linux::root::Root;
use thermocline_linux::topology::Discovered;

use crate::output::{Priority, Said, say, tell};
use crate::snapshot::OpenFinding;

/// What the findings of a manager are judged by.
#[derive(Debug)]
pub(super) struct Findings {
    root: Root,
    found: Discovered,
    /// `None` if its thread could not be started: then what files show is not judged.
    reader: Option<Reader>,
    facts: Facts,
}

/// Figures of the loop.
pub(super) struct Loop<'a> {
    pub(super) config: &'a Config,
    pub(super) demoting: &'a Demoting,
    pub(super) actuator: &'a Actuator,
    pub(super) kswapd: &'a Kswapd,
    /// Scopes whose cgroup is not there.
    pub(super) no_cgroup: &'a [String],
    /// The last full minute of the engine.
    pub(super) minute: Option<&'a Minute>,
}

impl Findings {
    /// Begins to read the machine at `root`.
    pub(super) fn new(root: &Root, config: &Config, found: &Discovered) -> Findings {
        let mut findings =
            Findings { root: root.clone(), found: found.clone(), reader: None, facts: Facts::default() };
        findings.reload(config);
        findings
    }

    /// Reads the machine for another configuration.
    pub(super) fn reload(&mut self, config: &Config) {
        match Reader::start(&self.root, config, &self.found) {
            Ok(reader) => self.reader = Some(reader),
            Err(error) => {
                tell!("the machine is not watched for findings, a thread cannot be started: {error}")
            }
        }
    }

    /// CPU time of all programs since boot, as of the last reading.
    pub(super) fn programs_cpu(&self) -> Option<Nanos> {
        self.facts.programs_cpu
    }

    /// What is found now. Nothing is read here.
    pub(super) fn look(&mut self, now: Nanos, figures: &Loop<'_>) -> Vec<Finding> {
        if let Some(facts) = self.reader.as_ref().and_then(Reader::news) {
            self.facts = *facts;
        }
        // The loop looks for them more often, and `status` shows what it found.
        self.facts.no_cgroup = figures.no_cgroup.to_vec();
        let (changed, kswapd) = (figures.actuator.changed(now), figures.kswapd.stats());
        let running = Running { minute: figures.minute, changed: &changed, given_up: &kswapd.given_up };
        let (config, demoting) = (figures.config, figures.demoting);
        judge(&View { config, found: Some(&self.found), demoting, running: Some(running) }, &self.facts)
    }
}

/// Follows the findings of all managers.
#[derive(Debug, Default)]
pub(super) struct Following(Follower);

impl Following {
    /// Takes what is found now. Returns what to tell, and what is open.
    pub(super) fn look(&mut self, now: Nanos, found: Vec<Finding>) -> (Vec<Said>, Vec<OpenFinding>) {
        let told = self.0.look(now, SystemTime::now(), found);
        let open = self.0.open().into_iter().map(OpenFinding::new);
        (told.iter().filter(|told| !is_told_already(told)).map(said).collect(), open.collect())
    }
}

/// The actuator tells of each setting that somebody has changed, with what it does about it.
/// Whoever cannot demote says so at once, and who tries to bring kswapd back says what came of it.
fn is_told_already(told: &Told) -> bool {
    let elsewhere = [Kind::SettingsChanged, Kind::DemotionNone, Kind::DemotionGivenUp];
    let elsewhere = elsewhere.contains(&told.finding.id);
    elsewhere && told.change == Change::Began
}

/// Tells of a setting that somebody else has changed.
pub(super) fn say_changed(told: String) {
    say_of(Kind::SettingsChanged, told);
}

/// Tells what came of an attempt to bring kswapd back.
pub(super) fn say_kswapd(told: String) {
    say_of(Kind::DemotionGivenUp, told);
}

fn say_of(kind: Kind, told: String) {
    say(Said { priority: Priority::Warning, ..Said::new(told).with("THERMOCLINE_FINDING", kind.name()) });
}

/// What is told, with its fields for the journal.
fn said(told: &Told) -> Said {
    let priority = match (told.change, told.finding.severity) {
        (Change::Ended(_), _) => Priority::Info,
        (_, Severity::Blocker) => Priority::Error,
        (_, Severity::Problem) => Priority::Warning,
        (_, Severity::Note | Severity::Ok) => Priority::Notice,
    };
    let about = &told.finding.about;
    let mut said = Said::new(told.line()).with("THERMOCLINE_FINDING", told.finding.id.name());
    said.priority = priority;
    for node in &about.nodes {
        said = said.with("THERMOCLINE_NODE", node.0);
    }
    if let Some(scope) = &about.scope {
        said = said.with("THERMOCLINE_SCOPE", scope);
    }
    if let Some(reason) = about.reason {
        said = said.with("THERMOCLINE_REASON", reason);
    }
    said
}

#[cfg(test)]
mod tests {
    use thermocline_linux::finding::Stuck;

    use super::*;
    use crate::metrics::families;
    use crate::snapshot::{Snapshot, Status};
    use crate::text;

    /// What a healthy machine's daemon finds after a minute that came to nothing, and with kswapd
    /// given up.
    fn found(stuck: bool) -> Vec<Finding> {
        let sentence = "none of 90 candidates was moved".to_owned();
        let stuck = stuck.then_some(Stuck { reason: "no_permission", sentence });
        let (minute, config) = (Minute { stuck, ..Minute::default() }, Config::default());
        let running = Running { minute: Some(&minute), changed: &[], given_up: &[] };
        let demoting = Demoting::NotWanted;
        let view = View { config: &config, found: None, demoting: &demoting, running: Some(running) };
        judge(&view, &Facts::default())
    }

    /// The values of the metric that are 1.
    fn metrics(snapshot: &Snapshot) -> Vec<String> {
        let all = families(snapshot);
        let family = all.iter().find(|family| family.name == "thermocline_finding").unwrap();
        assert_eq!(family.values.len(), Kind::while_running().count());
        let open = family.values.iter().filter(|(_, value)| *value > 0.5);
        open.map(|(labels, _)| labels[0].1.clone()).collect()
    }

    #[test]
    fn log_status_json_and_metrics_tell_the_same() {
        let mut following = Following::default();
        let mut look = |second, stuck| {
            let (said, open) = following.look(Nanos::from_s(second), found(stuck));
            (said, Snapshot::for_tests().with_findings(open))
        };
        let (said, snapshot) = look(0, false);
        assert!(said.is_empty() && snapshot.findings.is_empty());
        assert!(metrics(&snapshot).is_empty());

        let (said, snapshot) = look(60, true);
        assert_eq!(said.len(), 1);
        let line = "problem: for a minute nothing has moved: none of 90 candidates was moved [moves.stuck]; \
                    `thermocline doctor` looks for what is behind it";
        assert_eq!((said[0].text.as_str(), said[0].priority), (line, Priority::Warning));
        let fields: Vec<(&str, &str)> = said[0].fields.iter().map(|(k, v)| (*k, v.as_str())).collect();
        assert_eq!(fields, [("THERMOCLINE_FINDING", "moves.stuck"), ("THERMOCLINE_REASON", "no_permission")]);
        assert_eq!(metrics(&snapshot), ["moves.stuck"]);
        let status = Status { snapshot: &snapshot, residency: Err("?".to_owned()), late: None };
        let json = status.json();
        let open = &json["findings"][0];
        assert_eq!((&open["id"], &open["severity"]), (&"moves.stuck".into(), &"problem".into()));
        assert!(open["since"].as_str().unwrap().ends_with('Z') && open["remedies"][0]["what"].is_string());
        let text = text::status(&status);
        let second = text.lines().nth(1).unwrap();
        let since = open["since"].as_str().unwrap();
        assert_eq!(second, line.replacen("problem:", &format!("problem since {since}:"), 1));

        let (said, snapshot) = look(180, false);
        assert!(said[0].text.starts_with("over after 120 s: ") && said[0].priority == Priority::Info);
        assert!(snapshot.findings.is_empty() && metrics(&snapshot).is_empty());
    }
}
