//! Debian 12's own kernel, 6.1, and what the doctor says of it.

use thermocline_linux::doctor::{Report, SourceStatus, Verdict};

use crate::fixture::Machine;
use crate::{finding, has, manager, report, source};

#[test]
fn debian_12s_own_kernel_is_usable_and_what_it_lacks_is_told() {
    let machine = Machine::captured("lab-6.1-tiers");
    machine.write("sys/kernel/mm/lru_gen/enabled", "0x0000\n");
    let told = report(&machine);
    assert_eq!(told.verdict, Verdict::Usable, "{told}");
    assert_eq!(source(&told, "hintfault").status, SourceStatus::Usable);
    let found = told.topology.as_ref().unwrap();
    let tiers: Vec<_> = found.kernel_tiers.iter().map(|tier| (tier.number, tier.nodes.len())).collect();
    assert_eq!(tiers, [(4, 2), (22, 1)], "kmem's memory is in a tier below DRAM's");
    let none = &finding(&told, "demotion.none").cause;
    assert!(none.contains("(MGLRU) is switched off: echo y > ") && none.contains("migrate_cold"), "{none}");
    let changes: Vec<_> = told.changes.iter().map(|c| c.name).collect();
    assert!(changes.contains(&"numa_balancing") && !changes.contains(&"demotion_enabled"), "{changes:?}");
    assert_eq!(source(&told, "damon").status, SourceStatus::Unavailable);
    assert!(!manager(&told, "damon").usable && manager(&told, "numab2").usable, "{told}");

    machine.write("sys/kernel/mm/lru_gen/enabled", "0x0007\n");
    machine.write("sys/kernel/debug/lru_gen", "");
    assert!(!has(&report(&machine), "demotion.none"), "once they are switched on");
}

#[test]
fn one_tier_can_be_two_where_a_driver_brings_memory() {
    let machine = Machine::captured("lab-6.12-one-tier");
    machine.write("proc/sys/kernel/osrelease", "6.1.0-56-amd64\n");
    machine.write("sys/firmware/acpi/tables/FACP", "");
    let remedies = |told: &Report| -> String {
        finding(told, "topology.one_tier").remedies.iter().map(|remedy| remedy.what.as_str()).collect()
    };
    let told = remedies(&report(&machine));
    assert!(told.contains("Linux 6.7") && !told.contains("daxctl"), "no dax device is in sight: {told}");
    machine.write("sys/bus/dax/drivers_autoprobe", "1\n");
    let told = remedies(&report(&machine));
    assert!(told.contains("the driver kmem"), "{told}");
}

#[test]
fn a_kernel_before_it_is_refused_for_what_it_lacks() {
    let machine = Machine::captured("lab-6.1-tiers");
    machine.write("proc/sys/kernel/osrelease", "5.15.0-100-generic\n");
    machine.remove("proc/sys/kernel/numa_balancing_promote_rate_limit_MBps");
    let told = report(&machine);
    assert_eq!(told.verdict, Verdict::Unusable, "{told}");
    let hintfault = &source(&told, "hintfault").detail;
    assert!(hintfault.contains("MBps") && hintfault.contains("6.1 or later"), "{hintfault}");
}
