//! Several keys at once: changes that contradict each other, and values that are valid by
//! themselves.

use std::collections::BTreeMap;

use thermocline_core::config::{DemotionMode, DemotionWay, Enabled};

use super::*;

/// A change of a configuration, and its name.
type Change = (&'static str, fn(&mut Config));

/// Changes that may or may not be combined, on a machine with nodes 0 to 2.
const CHANGES: [Change; 31] = [
    ("nothing", |_| {}),
    ("tiers as they are", |c| c.tiers.nodes = vec![vec![0, 1], vec![2]]),
    ("tiers with a gap", |c| c.tiers.nodes = vec![vec![0, 1], vec![], vec![2]]),
    ("one tier", |c| c.tiers.nodes = vec![vec![0, 1, 2]]),
    ("a node twice", |c| c.tiers.nodes = vec![vec![0, 1], vec![2, 0]]),
    ("a node left out", |c| c.tiers.exclude = vec![1]),
    ("no hint faults", |c| c.source.hintfault.enabled = false),
    ("no samples", |c| c.source.hwsample.enabled = Enabled::No),
    ("damon as a source", |c| c.source.damon.enabled = true),
    ("no scans", |c| c.kernel.numa_balancing = Some(0)),
    ("balancing", |c| c.kernel.numa_balancing = Some(1)),
    ("scans as they are", |c| c.kernel.numa_balancing = None),
    ("nothing down", |c| c.admission.demote = false),
    ("no kernel demotion", |c| c.kernel.demotion_enabled = Some(false)),
    ("kernel demotion", |c| c.kernel.demotion_enabled = Some(true)),
    ("demotion on", |c| c.demotion.mode = DemotionMode::On),
    ("demotion off", |c| c.demotion.mode = DemotionMode::Off),
    ("by generations", |c| c.demotion.way = DemotionWay::Generations),
    ("by regions", |c| c.demotion.way = DemotionWay::Regions),
    ("by the node", |c| c.demotion.way = DemotionWay::Node),
    ("a pid", |c| c.scope.push(Scope { pids: vec![1], ..Scope::default() })),
    ("a command", |c| c.scope.push(Scope { command: Some("db".to_owned()), ..Scope::default() })),
    ("a command left out", |c| {
        let command = Some("db".to_owned());
        c.scope.push(Scope { command, exclude: true, ..Scope::default() });
    }),
    ("a command of a cgroup", |c| {
        let (command, cgroup) = (Some("db".to_owned()), Some("/app.slice".to_owned()));
        c.scope.push(Scope { command, cgroup, ..Scope::default() });
    }),
    ("a pid of a cgroup", |c| {
        c.scope.push(Scope { pids: vec![1], cgroup: Some("/app.slice".to_owned()), ..Scope::default() });
    }),
    ("a cgroup", |c| c.scope.push(Scope { cgroup: Some("/app.slice".to_owned()), ..Scope::default() })),
    ("a cgroup left out", |c| {
        c.scope.push(Scope { cgroup: Some("/app.slice".to_owned()), exclude: true, ..Scope::default() });
    }),
    ("a floor", |c| {
        let cgroup = Some("/app.slice".to_owned());
        c.scope.push(Scope { cgroup, top_tier_floor_mib: 1, ..Scope::default() });
    }),
    ("a cap of a pid", |c| {
        c.scope.push(Scope { pids: vec![1], top_tier_cap_mib: Some(1), ..Scope::default() });
    }),
    ("many cgroups", |c| {
        let of = |n| Scope { cgroup: Some(format!("/{n}")), ..Scope::default() };
        c.scope.extend((0..17).map(of));
    }),
    ("nobody", |c| c.scope.push(Scope::default())),
];

/// Whether a machine may refuse the configuration although `config check` accepts it. Only the
/// machine shows whether a process has its cgroup to itself, and whether an excluded node has
/// memory that the kernel would move.
fn is_of_the_machine(config: &Config) -> bool {
    let demotes = config.manager.name == ManagerName::Thermocline && config.demotion.mode == DemotionMode::On;
    let pids_alone = |scope: &Scope| !scope.pids.is_empty() && scope.may_be_cgroup();
    let by_kernel = config.manager.name == ManagerName::Numab2 || demotes;
    demotes && config.scope.iter().any(pids_alone) || by_kernel && !config.tiers.exclude.is_empty()
}

/// Configurations that were tried, and those on which `config check` and `run` disagree.
#[derive(Default)]
struct Tried {
    taken: usize,
    refused: usize,
    wrong: Vec<String>,
}

impl Tried {
    fn add(&mut self, machine: &Machine, mut config: Config, what: impl FnOnce() -> String) {
        config.daemon.state_dir = machine.path("run/thermocline").display().to_string();
        if is_of_the_machine(&config) {
            return;
        }
        if thermocline_linux::configuration::check(&config).is_err() {
            self.refused += 1;
            return;
        }
        self.taken += 1;
        if let Err(error) = taken_by_run(&machine.root, &config) {
            self.wrong.push(format!("{}: {error:#}", what()));
        }
    }

    fn assert(&self, taken: usize, refused: usize) {
        println!("{} taken, {} refused", self.taken, self.refused);
        assert!(self.wrong.is_empty(), "{} of {}:\n{}", self.wrong.len(), self.taken, self.wrong.join("\n"));
        assert!(
            self.taken > taken && self.refused > refused,
            "{} taken, {} refused",
            self.taken,
            self.refused
        );
    }
}

fn is_soak() -> bool {
    std::env::var_os("THERMOCLINE_SOAK").is_some_and(|value| value == "1")
}

/// All pairs of changes under each manager; in a soak run all triples.
#[test]
fn of_changes_that_contradict_each_other_run_takes_those_that_the_check_takes() {
    let machine = machine();
    let mut tried = Tried::default();
    for manager in ManagerName::ALL {
        for (i, one) in CHANGES.iter().enumerate() {
            for (j, two) in CHANGES.iter().enumerate().skip(i) {
                let last = if is_soak() { CHANGES.len() } else { j + 1 };
                for three in &CHANGES[j..last] {
                    let mut config = Config::default();
                    config.manager.name = manager;
                    one.1(&mut config);
                    two.1(&mut config);
                    if is_soak() {
                        three.1(&mut config);
                    }
                    let what = || format!("{}, {}, {}, {}", manager.text(), one.0, two.0, three.0);
                    tried.add(&machine, config, what);
                }
            }
        }
    }
    tried.assert(500, 500);
}

/// Valid lines, each with its section and key. Lines of the same key cannot be combined.
fn lines() -> Vec<(String, String, String)> {
    let mut lines = Vec::new();
    for (section, fields) in Config::sections() {
        for field in fields {
            let key = format!("{section}.{}", field.name);
            let whole = |line: &str| match section.as_str() {
                "scope" if field.name == "cgroup" => format!("[[scope]]\n{line}"),
                "scope" => format!("[[scope]]\ncgroup = \"/a\"\n{line}"),
                _ => format!("[{section}]\n{line}"),
            };
            let mut good: Vec<String> = values(&field.default, &field.range)
                .into_iter()
                .map(|value| format!("{} = {value}\n", field.name))
                .filter(|line| {
                    let parsed = config::parse(&whole(line), "t.toml", |_| {});
                    parsed.is_ok_and(|config| config != Config::default())
                })
                .collect();
            // More numbers within a range, or more texts of one kind, would show nothing new.
            if good.len() > 6 {
                good.drain(3..good.len() - 3);
            }
            lines.extend(good.into_iter().map(|line| (section.to_owned(), key.clone(), line)));
        }
    }
    lines
}

/// Every hundredth pair; in a soak run all of them.
#[test]
fn of_pairs_of_keys_run_takes_those_that_the_check_takes() {
    let machine = machine();
    let mut tried = Tried::default();
    let lines = lines();
    let pairs =
        lines.iter().enumerate().flat_map(|(i, one)| lines[i + 1..].iter().map(move |two| (one, two)));
    let every = if is_soak() { 1 } else { 101 };
    for ((one_section, one_key, one), (two_section, two_key, two)) in pairs.step_by(every) {
        if one_key == two_key
            || OF_THE_MACHINE.iter().any(|key| [one_key, two_key].contains(&&(*key).to_owned()))
        {
            continue;
        }
        let mut sections: BTreeMap<&str, String> = BTreeMap::new();
        for (section, line) in [(one_section, one), (two_section, two)] {
            sections.entry(section).or_default().push_str(line);
        }
        let texts = sections.iter().map(|(section, lines)| match *section {
            "scope" if lines.contains("cgroup = ") => format!("[[scope]]\n{lines}"),
            "scope" => format!("[[scope]]\ncgroup = \"/a\"\n{lines}"),
            _ => format!("[{section}]\n{lines}"),
        });
        let text: String = texts.collect();
        match toml::from_str::<Config>(&text) {
            Ok(config) => tried.add(&machine, config, || text.clone()),
            Err(error) => panic!("{text}: {error}"),
        }
    }
    tried.assert(200, 0);
}
