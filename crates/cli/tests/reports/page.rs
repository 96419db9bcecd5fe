//! What a page consists of, and how it treats files.

use super::*;

/// Text of the figures: titles, and the labels of their axes.
fn labels(svg: &str) -> Vec<String> {
    let texts = svg.split("<text ").skip(1).filter_map(|text| text.split_once('>'));
    texts.map(|(_, words)| words.split('<').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn the_page_has_its_sections_in_order_and_every_figure_its_title_axes_and_units() {
    let (dir, folder) = folder("it.trace");
    record(&folder, &["--rule=adaptive", "--mode=event"]);
    let figures = dir.path().join("figures");
    let page = page_of(&folder, &["--figures", plain(&figures)]);
    let places: Vec<usize> = SECTIONS
        .iter()
        .map(|id| page.find(&format!("<section id=\"{id}\">")).unwrap_or_else(|| panic!("no section {id}")))
        .collect();
    assert!(places.is_sorted() && page.find("class=\"answer\"") < Some(places[0]));
    assert_eq!(page.matches("<section ").count(), SECTIONS.len());
    let said = answer(&page);
    assert!(said.starts_with("In ") && said.ends_with('.') && said.matches(". ").count() == 0, "{said}");
    for part in ["unknown, because hint faults do not see accesses to DRAM", "promoted and", "held back most"]
    {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    let wanted = [
        ("flows", vec!["Pages promoted and demoted", "a second", "time since the beginning, s", "came back"]),
        ("dram", vec!["DRAM in use, by node", "MiB", "time since the beginning, s", "node 0"]),
        ("lower", vec!["Lower tiers in use, by node", "MiB", "time since the beginning, s", "node 1"]),
        (
            "heat-1",
            vec!["heat by address and time", "address", "time since the beginning, s", "accesses seen"],
        ),
        ("reasons", vec!["Candidates and moves that came to nothing", "candidates"]),
        ("plan-share", vec!["Accesses that DRAM would serve", "% of accesses", "DRAM, % of 32.0 MiB"]),
        ("plan-time", vec!["Time, against all memory in DRAM", "times as long", "DRAM, % of 32.0 MiB"]),
    ];
    assert_eq!(page.matches("<svg ").count(), wanted.len());
    let mut files: Vec<String> = fs::read_dir(&figures)
        .expect("it is made")
        .map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned())
        .collect();
    files.sort();
    let mut names: Vec<String> = wanted.iter().map(|(name, _)| format!("{name}.svg")).collect();
    names.sort();
    assert_eq!(files, names);
    for (name, said) in &wanted {
        let svg = fs::read_to_string(figures.join(format!("{name}.svg"))).expect("it is there");
        assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"), "{name}");
        assert!(!svg.contains("var(--"), "{name}: a file of its own has its colours");
        let labels = labels(&svg);
        for part in said {
            assert!(labels.iter().any(|label| label.contains(part)), "{name}: no {part} in {labels:?}");
        }
    }
    // It suits a phone, a dark room and a printer.
    for rule in ["width=device-width", "prefers-color-scheme:dark", "@media print"] {
        assert!(page.contains(rule), "{rule}");
    }
}

#[test]
fn every_figure_is_drawn_as_png_where_that_is_asked_for() {
    let (dir, folder) = folder("it.trace");
    record(&folder, &["--rule=latency", "--mode=event"]);
    let (figures, file) = (dir.path().join("figures"), folder.with_extension("html"));
    let args = ["report", plain(&folder), "-o", plain(&file), "--figures", plain(&figures), "--png"];
    let without = std::process::Command::new(env!("CARGO_BIN_EXE_thermocline"))
        .args(args)
        .env("PATH", "/nonexistent")
        .output()
        .expect("it runs");
    assert!(errors(&without).contains("librsvg2-bin") && without.status.code() == Some(1));
    if std::process::Command::new("rsvg-convert").arg("--version").output().is_err() {
        eprintln!("skipped: there is no rsvg-convert");
        return;
    }
    let output = run(&args);
    assert!(output.status.success(), "{}", errors(&output));
    let names = fs::read_dir(&figures).expect("it is made");
    let (mut svgs, mut pngs) = (0, 0);
    for path in names.map(|entry| entry.expect("it can be read").path()) {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("svg") => svgs += 1,
            Some("png") => {
                pngs += 1;
                let bytes = fs::read(&path).expect("it can be read");
                assert!(bytes.starts_with(b"\x89PNG\r\n") && bytes.len() > 2000, "{}", path.display());
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(svgs > 3 && svgs == pngs, "{svgs} and {pngs}");
}

#[test]
fn the_same_recording_gives_the_same_page() {
    let (_dir, folder) = folder("it.trace");
    record(&folder, &["--rule=latency", "--mode=event"]);
    assert_eq!(page_of(&folder, &[]), page_of(&folder, &[]));
}

#[test]
fn a_file_that_is_there_is_replaced_and_one_that_cannot_be_written_is_refused() {
    let (dir, folder) = folder("it.trace");
    record(&folder, &["--rule=latency", "--mode=event"]);
    let file = dir.path().join("it.html");
    fs::write(&file, "x".repeat(10_000_000)).expect("it can be written");
    page_of(&folder, &[]);
    for (name, status, said) in [
        ("it.pdf", 2, "the page is HTML"),
        ("nowhere/it.html", 2, "there is no such folder"),
        ("it.trace", 2, "the page is HTML"),
    ] {
        let file = dir.path().join(name);
        let output = run(&["report", plain(&folder), "-o", plain(&file)]);
        let told = errors(&output);
        assert!(output.status.code() == Some(status) && told.contains(said), "{name}: {told}");
    }
    let full = run(&["report", plain(&folder), "-o", "/dev/full"]);
    assert_eq!(full.status.code(), Some(1), "{}", errors(&full));
    assert!(errors(&full).contains("cannot write /dev/full"), "{}", errors(&full));
    fs::write(dir.path().join("file"), "").expect("it can be written");
    let figures = dir.path().join("file/figures");
    let output = run(&["report", plain(&folder), "-o", plain(&file), "--figures", plain(&figures)]);
    assert!(
        output.status.code() == Some(1) && errors(&output).contains("cannot make"),
        "{}",
        errors(&output)
    );
}

#[test]
fn whatever_its_length_a_page_is_small() {
    let (_dir, folder) = folder("long.trace");
    let to = format!("--record={}", plain(&folder));
    let output = run(&["sim", "hotcold", "--rule=adaptive", &to]);
    assert!(output.status.success(), "{}", errors(&output));
    let long = page_of(&folder, &[]).len();
    let short = folder.with_file_name("short.trace");
    record(&short, &["--rule=adaptive", "--mode=event"]);
    let short = page_of(&short, &[]).len();
    assert!(long < 1 << 20 && long < 3 * short, "{long} bytes against {short}");
}

#[test]
fn what_was_imported_is_shown_and_the_rest_is_unknown() {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/fixtures/import");
    for (name, timed) in [("lackey-3.19.0.txt", false), ("damo-3.4.3.json", true), ("memtierd-raw.txt", true)]
    {
        let (_dir, folder) = folder("imported");
        let output = run(&["import", plain(&Path::new(fixtures).join(name)), "-o", plain(&folder)]);
        assert!(output.status.success(), "{}", errors(&output));
        let page = page_of(&folder, &[]);
        let said = answer(&page);
        assert!(said.contains("what moved is not recorded") && said.contains("unknown, because"), "{said}");
        assert_eq!(said.contains("which has no times"), !timed, "{said}");
        for id in ["flows", "refusals", "reasons", "held"] {
            let start = page.find(&format!("<section id=\"{id}\">")).expect("a section");
            let section = &page[start..start + page[start..].find("</section>").expect("its end")];
            assert!(section.contains("Unknown: ") && !section.contains("<table"), "{name}: {section}");
        }
        assert_eq!(row(&page, "cost-table", "accesses that DRAM served")[1], "unknown");
        assert!(page.contains("heat by address and time"), "{name}");
    }
}
