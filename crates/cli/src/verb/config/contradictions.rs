//! Limits of scopes that contradict each other, or what else is configured: each is refused, and
//! the message names both sides with their numbers.

use std::collections::BTreeSet;

use thermocline_front::config::parse;

/// A name, a configuration, the key that the message is about, and what it says.
type Case = (&'static str, &'static str, &'static str, &'static [&'static str]);

const CASES: &[Case] = &[
    (
        "a floor above the cap",
        "[[scope]]\ncgroup = \"/a\"\ntop_tier_floor_mib = 65\ntop_tier_cap_mib = 64\n",
        "top_tier_floor_mib",
        &["65 is not allowed", "top_tier_cap_mib of the scope is 64 MiB"],
    ),
    (
        "a share below the floor",
        "[demotion]\nmode = \"on\"\n[[scope]]\ncgroup = \"/a\"\ntop_tier_floor_mib = 65\ntop_tier_share_mib = 64\n",
        "top_tier_share_mib",
        &["64 is not allowed", "top_tier_floor_mib of the scope is 65 MiB, more than its share"],
    ),
    (
        "a share above the cap",
        "[[scope]]\ncgroup = \"/a\"\ntop_tier_cap_mib = 63\ntop_tier_share_mib = 64\n",
        "top_tier_share_mib",
        &["64 is not allowed", "top_tier_cap_mib of the scope is 63 MiB, less than its share"],
    ),
    (
        "a cap of what is never slow",
        "[[scope]]\ncgroup = \"/a\"\nnever_slow = true\ntop_tier_cap_mib = 64\n",
        "never_slow",
        &["top_tier_cap_mib of the scope is 64 MiB", "unset one of them"],
    ),
    (
        "a floor of an excluded scope",
        "[[scope]]\ncgroup = \"/a\"\nexclude = true\ntop_tier_floor_mib = 64\n",
        "top_tier_floor_mib",
        &["an excluded scope is left alone", "keeps its top_tier_floor_mib of 64"],
    ),
    (
        "a cap of an excluded scope",
        "[[scope]]\ncgroup = \"/a\"\nexclude = true\ntop_tier_cap_mib = 64\n",
        "top_tier_cap_mib",
        &["an excluded scope is left alone", "keeps its top_tier_cap_mib of 64"],
    ),
    (
        "a share of an excluded scope",
        "[demotion]\nmode = \"on\"\n[[scope]]\ncgroup = \"/a\"\nexclude = true\ntop_tier_share_mib = 64\n",
        "top_tier_share_mib",
        &["an excluded scope is left alone", "keeps its top_tier_share_mib of 64"],
    ),
    (
        "an excluded scope that is never slow",
        "[[scope]]\ncgroup = \"/a\"\nexclude = true\nnever_slow = true\n",
        "never_slow",
        &["an excluded scope is left alone", "keeps its never_slow"],
    ),
    (
        "a floor of processes",
        "[[scope]]\npids = [7]\ntop_tier_floor_mib = 64\n",
        "top_tier_floor_mib",
        &["counts memory by cgroup", "top_tier_floor_mib of 64 MiB asks for that"],
    ),
    (
        "a cap of processes in a cgroup",
        "[[scope]]\ncgroup = \"/a\"\npids = [7]\ntop_tier_cap_mib = 64\n",
        "top_tier_cap_mib",
        &["counts memory by cgroup", "top_tier_cap_mib of 64 MiB asks for that", "neither pids nor command"],
    ),
    (
        "a share of a command",
        "[[scope]]\ncgroup = \"/a\"\ncommand = \"db\"\ntop_tier_share_mib = 64\n",
        "top_tier_share_mib",
        &["counts memory by cgroup", "top_tier_share_mib of 64 MiB asks for that"],
    ),
    (
        "a command that is never slow",
        "[[scope]]\ncommand = \"db\"\nnever_slow = true\n",
        "never_slow",
        &["counts memory by cgroup", "never_slow asks for that"],
    ),
    (
        "a floor behind a scope of the whole machine",
        "[[scope]]\ncgroup = \"/\"\n[[scope]]\ncgroup = \"/a\"\ntop_tier_floor_mib = 64\n",
        "top_tier_floor_mib",
        &["scope[0] stands before this scope", "its cgroup /a", "its top_tier_floor_mib of 64"],
    ),
    (
        "a cap behind a scope of a command",
        "[[scope]]\ncommand = \"db\"\n[[scope]]\ncgroup = \"/a\"\ntop_tier_cap_mib = 64\n",
        "top_tier_cap_mib",
        &["scope[0] stands before this scope", "its cgroup /a", "its top_tier_cap_mib of 64"],
    ),
    (
        "a cap within a cap",
        "[[scope]]\ncgroup = \"/a\"\ntop_tier_cap_mib = 64\n[[scope]]\ncgroup = \"/a/b\"\ntop_tier_cap_mib = 32\n",
        "top_tier_cap_mib",
        &["scope[0] stands before this scope", "its cgroup /a/b", "its top_tier_cap_mib of 32"],
    ),
    (
        "a cap around a floor",
        "[[scope]]\ncgroup = \"/a/b\"\ntop_tier_floor_mib = 64\n[[scope]]\ncgroup = \"/a\"\ntop_tier_cap_mib = 32\n",
        "top_tier_cap_mib",
        &["scope[0] stands before this scope", "its cgroup /a,", "its top_tier_cap_mib of 32"],
    ),
    (
        "two shares of one cgroup",
        "[[scope]]\nname = \"x\"\ncgroup = \"/a\"\ntop_tier_share_mib = 64\n\
         [[scope]]\nname = \"y\"\ncgroup = \"a/\"\ntop_tier_share_mib = 32\n",
        "top_tier_share_mib",
        &["scope[0] stands before this scope", "its top_tier_share_mib of 32"],
    ),
    (
        "what is never slow within a share",
        "[demotion]\nmode = \"on\"\n[[scope]]\ncgroup = \"/a\"\ntop_tier_share_mib = 64\n\
         [[scope]]\ncgroup = \"/a/b\"\nnever_slow = true\n",
        "never_slow",
        &["scope[0] stands before this scope", "its cgroup /a/b", "its never_slow"],
    ),
    (
        "a cap around an excluded cgroup",
        "[[scope]]\ncgroup = \"/a/b\"\nexclude = true\n[[scope]]\ncgroup = \"/a\"\ntop_tier_cap_mib = 64\n",
        "top_tier_cap_mib",
        &["scope[0] is excluded and lies within this scope (/a/b in /a)", "its top_tier_cap_mib of 64"],
    ),
    (
        "a share around an excluded cgroup",
        "[demotion]\nmode = \"on\"\n[[scope]]\ncgroup = \"/a\"\ntop_tier_share_mib = 64\n\
         [[scope]]\ncgroup = \"/a/b\"\nexclude = true\n",
        "top_tier_share_mib",
        &["scope[1] is excluded and lies within this scope (/a/b in /a)", "its top_tier_share_mib of 64"],
    ),
    (
        "a floor, and the kernel's own demotion",
        "[kernel]\ndemotion_enabled = true\n[[scope]]\ncgroup = \"/a\"\ntop_tier_floor_mib = 64\n",
        "demotion_enabled",
        &["the kernel may demote under memory pressure", "scope[0].top_tier_floor_mib (64 MiB)"],
    ),
    (
        "what is never slow, and the kernel's own demotion",
        "[kernel]\ndemotion_enabled = true\n[[scope]]\ncgroup = \"/a\"\nnever_slow = true\n",
        "demotion_enabled",
        &["the kernel may demote under memory pressure", "scope[0].never_slow"],
    ),
    (
        "a share without demotion",
        "[demotion]\nmode = \"off\"\n[[scope]]\ncgroup = \"/a\"\ntop_tier_share_mib = 64\n",
        "mode",
        &["demotion.mode is \"off\"", "scope[0].top_tier_share_mib (64 MiB) can only be given back"],
    ),
    (
        "a share where nothing goes down",
        "[admission]\ndemote = false\n[[scope]]\ncgroup = \"/a\"\ntop_tier_share_mib = 64\n",
        "demote",
        &["admission.demote is false", "scope[0].top_tier_share_mib (64 MiB) can only be given back"],
    ),
    (
        "a share where the kernel must not demote",
        "[kernel]\ndemotion_enabled = false\n[[scope]]\ncgroup = \"/a\"\ntop_tier_share_mib = 64\n",
        "demotion_enabled",
        &["kernel.demotion_enabled is false", "scope[0].top_tier_share_mib (64 MiB) can only be given back"],
    ),
    (
        "a share at no pace",
        "[demotion]\nscope_rate_mbps = 0\n[[scope]]\ncgroup = \"/a\"\ntop_tier_share_mib = 64\n",
        "scope_rate_mbps",
        &["0 lets no scope be asked", "scope[0].top_tier_share_mib (64 MiB) can only be given back"],
    ),
    (
        "a share by regions",
        "[demotion]\nway = \"regions\"\n[[scope]]\ncgroup = \"/a\"\ntop_tier_share_mib = 64\n",
        "way",
        &["whoever owns it", "scope[0].top_tier_share_mib (64 MiB) can only be given back"],
    ),
    (
        "a share by the node",
        "[demotion]\nway = \"node\"\n[[scope]]\ncgroup = \"/a\"\ntop_tier_share_mib = 64\n",
        "way",
        &["whoever owns it", "scope[0].top_tier_share_mib (64 MiB) can only be given back"],
    ),
    (
        "a share beside a floor without consent",
        "[[scope]]\ncgroup = \"/a\"\ntop_tier_share_mib = 64\n[[scope]]\ncgroup = \"/b\"\ntop_tier_floor_mib = 32\n",
        "demotion.mode",
        &["scope[1] has a top_tier_floor_mib", "scope[0].top_tier_share_mib (64 MiB) can only be given back"],
    ),
    (
        "a share beside an excluded scope without consent",
        "[[scope]]\ncgroup = \"/a\"\ntop_tier_share_mib = 64\n[[scope]]\ncgroup = \"/b\"\nexclude = true\n",
        "demotion.mode",
        &["scope[1] is excluded", "scope[0].top_tier_share_mib (64 MiB) can only be given back"],
    ),
    (
        "a share beside a command",
        "[[scope]]\ncgroup = \"/a\"\ntop_tier_share_mib = 64\n[[scope]]\ncommand = \"db\"\n",
        "scope",
        &["scope[1] names processes", "scope[0].top_tier_share_mib (64 MiB) can only be given back"],
    ),
    (
        "limits under numab2",
        "[manager]\nname = \"numab2\"\n[[scope]]\ncgroup = \"/a\"\ntop_tier_cap_mib = 64\n",
        "name",
        &["numab2 acts on the whole machine and knows no scopes"],
    ),
    (
        "a floor under DAMON",
        "[manager]\nname = \"damon\"\n[[scope]]\ncgroup = \"/a\"\ntop_tier_floor_mib = 64\n",
        "top_tier_floor_mib",
        &["more than manager damon knows"],
    ),
    (
        "two scopes of one name",
        "[[scope]]\nname = \"db\"\ncgroup = \"/a\"\n[[scope]]\nname = \"db\"\ncgroup = \"/b\"\n",
        "name",
        &["\"db\""],
    ),
];

#[test]
fn every_contradiction_is_refused_and_both_sides_are_named() {
    let names: BTreeSet<&str> = CASES.iter().map(|case| case.0).collect();
    assert_eq!(names.len(), CASES.len());
    assert!(CASES.len() >= 20, "{}", CASES.len());
    for (name, text, key, says) in CASES {
        let told = match parse(text, "t.toml", |_| {}) {
            Ok(_) => panic!("{name} is taken:\n{text}"),
            Err(told) => told,
        };
        // The line that is shown is broken anywhere.
        let words = told.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [key].into_iter().chain(*says) {
            assert!(words.contains(part), "{name}: no {part:?} in\n{told}");
        }
    }
}

#[test]
fn without_the_contradiction_the_same_is_taken() {
    let shared = "[demotion]\nmode = \"on\"\n[[scope]]\ncgroup = \"/a\"\ntop_tier_floor_mib = 32\n\
                  top_tier_share_mib = 64\ntop_tier_cap_mib = 128\n";
    for text in [
        shared.to_owned(),
        format!("{shared}[[scope]]\ncgroup = \"/b\"\nnever_slow = true\ntop_tier_share_mib = 64\n"),
        format!("{shared}[[scope]]\ncgroup = \"/b\"\nexclude = true\n[[scope]]\ncgroup = \"/\"\n"),
        "[[scope]]\ncgroup = \"/a/b\"\ntop_tier_cap_mib = 0\n[[scope]]\ncgroup = \"/a\"\n".to_owned(),
    ] {
        parse(&text, "t.toml", |_| {}).unwrap_or_else(|told| panic!("{text}:\n{told}"));
    }
}
