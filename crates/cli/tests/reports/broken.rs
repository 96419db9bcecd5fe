//! Recordings that are broken, or made to do harm.

use thermocline_core::access::{
    Access, Detail, Holding, Pressure, Programs, Region, RegionSnapshot, RegionSpace,
};
use thermocline_core::candidate::Reason;
use thermocline_core::demand::Demoted;
use thermocline_core::journal::{Decision, What};
use thermocline_core::moves::{BatchId, Direction};
use thermocline_core::refusal::RefusalReason;
use thermocline_core::topology::{Node, NodeState, Topology};
use thermocline_core::units::{Nanos, NodeId, Pid, ScopeId, TierId, VirtPage};
use thermocline_core::weigh::Sources;
use thermocline_trace::piece::Piece;
use thermocline_trace::recorder::Recorder;
use thermocline_trace::writer::{About, Limits};

use super::*;

/// What a browser must not take for mark-up, and a terminal not for a command.
const EVIL: &str =
    "</title></style></svg><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\u{1b}[2J\u{202e}";

pub fn topology() -> Topology {
    let node = |id: u16| Node {
        id: NodeId(id),
        tier: TierId(id as u8),
        cpus: vec![0],
        capacity_pages: 1 << 20,
        read_latency_ns: None,
        read_bandwidth_mbps: None,
        distances: vec![10, 20],
    };
    Topology::new(vec![node(0), node(1)]).expect("it is sound")
}

/// A recording of these pieces, a step each.
fn made(folder: &Path, settings: &[(&str, String)], pieces: Vec<(u64, Piece)>) {
    let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    let about = About { settings, topology: topology() };
    let mut recorder = Recorder::start(folder, about, Limits::default(), false).expect("it begins");
    for (time, piece) in pieces {
        assert!(recorder.put(Nanos(time), piece), "it goes on");
    }
    recorder.finish();
}

#[test]
fn text_of_a_recording_is_text_on_the_page() {
    let (dir, _) = folder("x");
    let mut config = thermocline_core::config::Config::default();
    config.scope.push(thermocline_core::config::Scope { name: EVIL.to_owned(), ..Default::default() });
    let settings: Vec<(&str, String)> = vec![
        ("program", EVIL.to_owned()),
        ("verb", EVIL.to_owned()),
        ("scenario", EVIL.to_owned()),
        ("kernel", EVIL.to_owned()),
        ("seed", EVIL.to_owned()),
        ("config", serde_json::to_string(&config).expect("it can be written")),
    ];
    let pieces = |time: u64| {
        let holding = Holding { scope: ScopeId(1), time: Nanos(time), pages: 77 };
        let pressure = Pressure { scope: ScopeId(1), time: Nanos(time), some_us: time / 1000, full_us: 0 };
        [(time, Piece::Holding(holding)), (time, Piece::Pressure(pressure))]
    };
    let folder = dir.path().join("<script>alert(2)<!--&'\"");
    made(&folder, &settings, (1..50).flat_map(|n| pieces(n * 10_000_000)).collect());
    let figures = dir.path().join("figures");
    let page = page_of(&folder, &["--figures", plain(&figures)]);
    assert!(
        page.contains("scope &lt;/title&gt;")
            && page.contains("&lt;script&gt;alert(2)&lt;!--&amp;&#39;&quot;")
    );
    assert!(!page.contains(['\u{1b}', '\u{202e}']) && page.contains("\\u001b[2J\\u202e"));
    for entry in fs::read_dir(&figures).expect("it is made") {
        let svg = fs::read_to_string(entry.expect("it can be read").path()).expect("it is text");
        assert!(!svg.contains("<script") && !svg.contains("<img"), "{svg}");
    }
    // An imported recording tells its format and its times in words of its own.
    let folder = dir.path().join("imported");
    let settings = [("imported", EVIL.to_owned()), ("times", EVIL.to_owned())];
    made(&folder, &settings, pieces(5).into());
    page_of(&folder, &[]);
}

#[test]
fn pieces_that_no_machine_reports_do_no_harm() {
    let (dir, _) = folder("x");
    let huge = u64::MAX;
    let page = |vpn| VirtPage { pid: Pid(u32::MAX), vpn };
    let access = |vpn, order, node, time| Access {
        time: Nanos(time),
        pfn: None,
        page: Some(page(vpn)),
        order,
        node: NodeId(node),
        accessor: None,
        detail: Detail::Count { count: u32::MAX, gap: None },
    };
    let decision = |what, pages| Decision {
        time: Nanos(huge),
        what,
        page: page(huge >> 12),
        pfn: None,
        pages,
        direction: Direction::Promote,
        from: NodeId(u16::MAX),
        to: None,
        score: u16::MAX,
        why: Reason::HighRate,
        sources: Sources::default(),
    };
    let region = |start, end, rate| Region {
        space: RegionSpace::Target(3),
        start,
        end,
        access_rate_bp: rate,
        age: Nanos(huge),
        check: Nanos(huge),
    };
    let state = |free, managed| NodeState {
        node: NodeId(7),
        free_pages: free,
        managed_pages: managed,
        ..NodeState::default()
    };
    let moved = What::Moved { batch: BatchId(huge) };
    let refused = What::Refused { reason: RefusalReason::NodeFull };
    let pieces = || {
        vec![
            Piece::Accesses(vec![access(0, 0, 9, 0), access(huge >> 12, 63, 0, huge)], Vec::new()),
            Piece::Regions(RegionSnapshot {
                time: Nanos(0),
                regions: vec![region(0, huge, u16::MAX), region(5, 2, 0), region(huge - 1, huge, 1)],
            }),
            Piece::Decisions(vec![decision(moved, u32::MAX), decision(refused, 0)]),
            Piece::Decisions(vec![decision(moved, u32::MAX); 100]),
            Piece::Demoted(Demoted {
                id: huge,
                node: NodeId(0),
                pages: huge,
                cpu: Nanos(huge),
                by_scope: vec![(ScopeId(u16::MAX), huge)],
            }),
            Piece::Nodes(vec![state(huge, 0), state(0, huge)]),
            Piece::Holding(Holding { scope: ScopeId(u16::MAX), time: Nanos(huge), pages: huge }),
            Piece::Pressure(Pressure { scope: ScopeId(2), time: Nanos(huge), some_us: huge, full_us: huge }),
            Piece::Pressure(Pressure { scope: ScopeId(2), time: Nanos(0), some_us: 0, full_us: 0 }),
            Piece::Programs(Programs { time: Nanos(0), cpu: Nanos(huge) }),
            Piece::Programs(Programs { time: Nanos(0), cpu: Nanos(0) }),
            Piece::Loss { events: huge, pieces: huge },
            Piece::Loss { events: 3, pieces: 3 },
        ]
    };
    for (name, times) in [("apart", [0, huge]), ("at once", [5, 5]), ("late", [huge, huge])] {
        let folder = dir.path().join(name);
        let both = times.into_iter().flat_map(|time| pieces().into_iter().map(move |piece| (time, piece)));
        made(&folder, &[], both.collect());
        let page = page_of(&folder, &[]);
        assert!(page.contains("Not all of it is here:"), "{name}");
    }
}

#[test]
fn what_is_no_recording_is_an_error_with_the_remedy() {
    let (dir, nowhere) = folder("nowhere");
    let page = dir.path().join("it.html");
    fs::create_dir(dir.path().join("empty")).expect("it can be made");
    fs::write(dir.path().join("file"), "x").expect("it can be written");
    for (name, said) in
        [("nowhere", "cannot be read"), ("empty", "no recording in it"), ("file", "cannot be read")]
    {
        let output = run(&["report", plain(&nowhere.with_file_name(name)), "-o", plain(&page)]);
        let told = errors(&output);
        assert!(
            output.status.code() == Some(2) && told.contains(said) && told.contains(name),
            "{name}: {told}"
        );
    }
    assert!(!page.exists(), "no page is begun");
}

#[test]
fn without_events_everything_is_unknown() {
    let (_dir, folder) = folder("none");
    made(&folder, &[], vec![(5, Piece::Programs(Programs { time: Nanos(5), cpu: Nanos(1) }))]);
    let page = page_of(&folder, &[]);
    assert!(answer(&page).contains("unknown"), "{}", answer(&page));
    assert!(page.contains("There is no evidence in it.") && page.contains("no evidence names an address"));
}

#[test]
fn a_damaged_file_is_named_and_the_rest_is_shown() {
    let (dir, whole) = folder("whole");
    record(&whole, &["--rule=adaptive", "--mode=event"]);
    let names: Vec<PathBuf> =
        fs::read_dir(&whole).expect("it can be read").map(|e| e.expect("it can be read").path()).collect();
    let mut shown = 0;
    for (number, broken) in names.iter().enumerate() {
        for (way, damage) in ["flip", "cut", "nothing"].into_iter().enumerate() {
            let folder = dir.path().join(format!("broken-{number}-{way}"));
            fs::create_dir(&folder).expect("it can be made");
            for path in &names {
                let mut bytes = fs::read(path).expect("it can be read");
                if path == broken {
                    let middle = bytes.len() / 2;
                    match damage {
                        "flip" => bytes[middle] ^= 0x55,
                        "cut" => bytes.truncate(middle),
                        _ => bytes.clear(),
                    }
                }
                fs::write(folder.join(path.file_name().expect("a name")), bytes).expect("it can be written");
            }
            let page = folder.with_extension("html");
            let output = run(&["report", plain(&folder), "-o", plain(&page)]);
            let (told, name) = (errors(&output), broken.file_name().expect("a name").to_string_lossy());
            // Of the only part nothing may be left; it is then no recording.
            assert!(matches!(output.status.code(), Some(0 | 2)), "{damage} {name}: {told}");
            assert!(told.contains(name.as_ref()) || told.contains("damaged"), "{damage} {name}: {told}");
            if output.status.success() {
                well_formed(&fs::read_to_string(&page).expect("it is written"));
                shown += 1;
            }
        }
    }
    assert!(shown > 0, "some damage leaves something to show");
}
