//! What `config check` accepts, `run` accepts as well, on a machine that has everything.

use thermocline_linux::manager;

use super::*;
use fixture::Machine;

mod together;

#[path = "../../../linux/tests/fixture/mod.rs"]
#[allow(dead_code)]
mod fixture;

/// Keys whose values only a machine can check: they name nodes and devices that it does not have,
/// or more memory than it has.
const OF_THE_MACHINE: [&str; 8] = [
    "tiers.nodes",
    "tiers.exclude",
    "source.hwsample.enabled",
    "source.chmu.enabled",
    "engine.target_nid",
    "source.damon.target_nid",
    "manager.damon.target_nid",
    "scope.top_tier_share_mib",
];

/// DAMON's tracepoint, as Linux 6.12 describes it.
const DAMON_EVENT: &str = "\
name: damon_aggregated
ID: 700
format:
\tfield:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_regions;\toffset:16;\tsize:4;\tsigned:0;
\tfield:unsigned long start;\toffset:24;\tsize:8;\tsigned:0;
\tfield:unsigned long end;\toffset:32;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_accesses;\toffset:40;\tsize:4;\tsigned:0;
\tfield:unsigned int age;\toffset:44;\tsize:4;\tsigned:0;
";

/// A machine that has everything that thermocline can use.
pub(super) fn machine() -> Machine {
    let machine = Machine::built(&[(0, "0-15", 4096), (1, "16-31", 4096), (2, "", 8192)], &["0-1", "2"]);
    machine.write("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "0\n");
    machine.write("sys/kernel/tracing/events/damon/damon_aggregated/format", DAMON_EVENT);
    machine.write("sys/fs/cgroup/memory.stat", "");
    for ratio in ["min_unmapped_ratio", "min_slab_ratio"] {
        machine.write(&format!("proc/sys/vm/{ratio}"), "1\n");
    }
    for node in 0..3 {
        machine.write(&format!("sys/devices/system/node/node{node}/reclaim"), "");
    }
    machine
}

/// The checks that `run` makes before it changes or opens anything.
fn taken_by_run(root: &Root, config: &Config) -> anyhow::Result<()> {
    let discovered = discover(root, &config.tiers)?;
    refuse(&doctor::blockers(root, config))?;
    if manager::offer(root, config, config.manager.name, &discovered)?.is_some() {
        return Ok(());
    }
    Engine::new(config, discovered.topology.clone())?;
    Ready::new(root, config, &discovered)?;
    of_sources(root, config, &discovered)?;
    Ok(())
}

/// Values to try for a key: its default, all that its range names, values beyond the range, and
/// values of another type.
fn values(default: &str, range: &str) -> Vec<String> {
    let mut values: Vec<String> = [
        "true",
        "false",
        "-1",
        "0",
        "1",
        "2",
        "3",
        "255",
        "256",
        "65535",
        "65536",
        "4294967295",
        "4294967296",
        "9223372036854775807",
        "9223372036854775808",
        "1.5",
        "nan",
        "inf",
        "-1e300",
        "1979-05-27",
        "[]",
        "[0]",
        "[[]]",
        "[[0, 1], [2]]",
        "[[0], [0]]",
        "[[0, 1, 2]]",
        "[[0], [1]]",
        "[2]",
        "[7]",
        "[4294967295]",
        "{}",
        "\"\"",
        "\"x\"",
        "\"/\"",
        "\"/a\"",
        "\"/a/\"",
        "\"a/../b\"",
        "\"(\"",
        "\"a:b\"",
        "\"auto\"",
        "\"/run/thermocline\"",
        "\"/run/thermocline/lock\"",
        "\"/run/thermocline.lock\"",
        "\"\\u0000\"",
    ]
    .map(str::to_owned)
    .to_vec();
    values.push(format!("\"/{}\"", "a".repeat(108)));
    values.push(format!("\"/{}\"", "a".repeat(5000)));
    if default != "unset" {
        values.push(default.to_owned());
    }
    values.extend(range.split('"').skip(1).step_by(2).map(|name| format!("\"{name}\"")));
    let numbers = range.split([' ', ',']).filter_map(|word| word.parse::<i64>().ok());
    values.extend(
        numbers.flat_map(|n| [n.saturating_sub(1), n, n.saturating_add(1), n * 2]).map(|n| n.to_string()),
    );
    values.sort();
    values.dedup();
    values
}

#[test]
fn of_all_configurations_of_one_key_run_takes_those_that_the_check_takes() {
    let machine = machine();
    let (mut tried, mut taken, mut wrong) = (0, 0, Vec::new());
    for (section, fields) in Config::sections() {
        for field in fields {
            let key = format!("{section}.{}", field.name);
            for value in values(&field.default, &field.range) {
                let line = format!("{} = {value}\n", field.name);
                let text = match section.as_str() {
                    "scope" => format!("[[scope]]\n{line}"),
                    _ => format!("[{section}]\n{line}"),
                };
                tried += 1;
                let Ok(mut config) = config::parse(&text, "t.toml", |_| {}) else { continue };
                taken += 1;
                if key != "daemon.state_dir" {
                    config.daemon.state_dir = machine.path("run/thermocline").display().to_string();
                }
                if let Err(error) = taken_by_run(&machine.root, &config)
                    && !OF_THE_MACHINE.contains(&key.as_str())
                {
                    wrong.push(format!("{text}: {error:#}"));
                }
            }
        }
    }
    assert!(tried > 3749 && taken > 800, "{taken} of {tried}");
    assert!(wrong.is_empty(), "{} of {taken}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_dry_run_stays_one_under_every_manager_and_to_observe_needs_none() {
    for manager in ManagerName::ALL {
        assert_eq!(what(Mode::DryRun, manager), (Mode::DryRun, manager));
        assert_eq!(what(Mode::Observe, manager), (Mode::Observe, ManagerName::Observe));
    }
    assert_eq!(what(Mode::Run, ManagerName::Observe), (Mode::Observe, ManagerName::Observe));
    assert_eq!(what(Mode::Run, ManagerName::Damon), (Mode::Run, ManagerName::Damon));
}
