//! A daemon that is killed, again and again, leaves nothing behind.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use thermocline_core::config::Kernel;
use thermocline_linux::actuator::{Lock, LockError, plan, restore};
use thermocline_linux::root::Root;

use crate::{myself, settings};

/// Times that the daemon is killed.
const KILLS: u32 = 10;

/// The values of all settings that the daemon changes, as a text.
fn values(root: &Root) -> String {
    // A plan for values that the kernel does not have now names each setting with its value of now.
    let other = Kernel {
        numa_balancing: Some(99),
        numa_balancing_promote_rate_limit_mbps: Some(99),
        scan_size_mb: Some(99),
        demotion_enabled: None,
        ..settings()
    };
    let changes = plan(root, &other).unwrap().changes;
    let mut values: Vec<String> = changes.iter().map(|c| format!("{}={}", c.name, c.from)).collect();
    values.push(std::fs::read_to_string("/sys/kernel/mm/numa/demotion_enabled").unwrap());
    values.join(" ")
}

fn daemon(state_dir: &str) -> Child {
    Command::new(myself()).args(["hold", state_dir]).stdout(Stdio::piped()).spawn().unwrap()
}

fn wait_until_set(child: &mut Child) {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "set"), "the daemon ended");
    // The pipe has to stay open for the daemon's next line.
    std::mem::forget(lines);
}

pub(crate) fn a_killed_daemon_leaves_nothing_behind() {
    let root = Root::default();
    let state_dir = "/run/live-lab";
    let before = values(&root);
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut put_back = 0;
    for i in 0..KILLS {
        let mut child = daemon(state_dir);
        wait_until_set(&mut child);
        // The daemon sets and restores all the time; a kill finds it anywhere in between.
        let moment = (seed + 1).wrapping_mul(u64::from(i) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        std::thread::sleep(Duration::from_millis(moment));
        child.kill().unwrap();
        child.wait().unwrap();
        let report = restore(&root, state_dir.as_ref()).unwrap();
        assert!(report.is_complete(), "{report}");
        put_back += report.values.len();
        assert_eq!(values(&root), before, "kill {i}, {moment} ms after the settings");
    }
    println!("{KILLS} kills left {put_back} values to put back");
    assert!(put_back > 0, "every kill came while nothing was set");
}

pub(crate) fn a_second_daemon_is_refused() {
    let root = Root::default();
    let mut child = daemon("/run/live-lab");
    wait_until_set(&mut child);
    for state_dir in ["/run/live-lab", "/run/another-folder"] {
        match Lock::acquire(&root, state_dir.as_ref()) {
            Err(LockError::Held { held }) => {
                let holder = held.holder.unwrap();
                assert_eq!((holder.pid, holder.is_thermocline), (child.id(), true));
            }
            other => panic!("{state_dir}: {other:?}"),
        }
    }
    let second = Command::new(myself()).args(["hold", "/run/another-folder"]).output().unwrap();
    assert_eq!(second.status.code(), Some(3), "{second:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    restore(&root, "/run/live-lab".as_ref()).unwrap();
}
