//! The doctor's verdict on machines of several shapes, held to what comes of it there.

use thermocline_lab::{Line, Machine, NodeSpec, ThpMode};

use super::{MIB, Run, number, where_time_is_no_matter};

/// Where the doctor finds nothing in the way a page moves; where it does, `run` refuses in its
/// words.
fn what_the_doctor_says_comes_true(nodes: &[NodeSpec], tiers: u64) {
    let mut run = Run::new(Line::Stable, [512, 128, 512], ThpMode::Never, 400).env("LAST", nodes.len() - 1);
    run.guest = run.guest.machine(Machine { nodes: nodes.to_vec(), tiers: true });
    let Some(outcome) = run.run(include_str!("shapes.sh")) else { return };
    let number = |name| number(&outcome, name);
    assert_eq!(number("tiers"), tiers, "the kernel sees another shape");
    assert_eq!(number("doctor"), 0, "{}", run.text("doctor"));
    assert_eq!(number("run"), 0, "{}", run.text("daemon-errors"));
    assert!(number("promoted") > 0, "{}", run.text("daemon-errors"));

    // A missing cgroup is a problem to the doctor, and reported by both run and status.
    assert_eq!((number("doctor_scopes"), number("absent")), (1, 1), "{}", run.text("doctor-scopes"));

    assert_eq!(number("blocked"), 2);
    assert_ne!(number("refused"), 0);
    let blocked = run.json("blocked");
    let cause = blocked["findings"][0]["cause"].as_str().unwrap().to_owned();
    let refused = run.text("refused");
    assert!(refused.contains(&cause), "{cause}\n{refused}");
}

fn dram(mib: u64, cpus: u32) -> NodeSpec {
    NodeSpec::dram(mib * MIB, cpus)
}

fn cxl(mib: u64) -> NodeSpec {
    NodeSpec::cxl(mib * MIB)
}

/// DRAM, something between, and CXL.
#[test]
fn what_the_doctor_says_of_three_tiers_comes_true() {
    let middle = NodeSpec { latency_ns: 180, bandwidth_gbps: 100, ..dram(256, 0) };
    what_the_doctor_says_comes_true(&[dram(512, 2), middle, cxl(512)], 3);
}

#[test]
fn what_the_doctor_says_of_two_sockets_comes_true() {
    where_time_is_no_matter(|| what_the_doctor_says_comes_true(&[dram(512, 1), dram(512, 1), cxl(512)], 2));
}

/// A node of the top tier without processors, and two expanders.
#[test]
fn what_the_doctor_says_of_a_top_node_without_processors_comes_true() {
    where_time_is_no_matter(|| {
        what_the_doctor_says_comes_true(&[dram(512, 2), dram(256, 0), cxl(256), cxl(512)], 2);
    });
}
