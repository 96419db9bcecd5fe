//! Small crates that show what is found and what is not.

use std::path::Path;

use super::modules::arrows;
use super::{against_plan, circles, complaints};

/// The arrows of a crate of these files.
fn of(files: &[(&str, &str)]) -> Vec<String> {
    let read = |path: &Path| {
        files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned())
    };
    arrows(Path::new("lib.rs"), &read).keys().map(|(a, b)| format!("{a} -> {b}")).collect()
}

#[test]
fn an_arrow_is_found_however_it_is_written() {
    for text in [
        "use crate::b::Thing;",
        "use crate::{b::Thing, c};",
        "use crate::b::{self, x::{Y, Z}};",
        "pub(crate) use super::b::Thing as Other;",
        "fn f() { crate::b::go() }",
        "fn f(x: &super::b::Thing) {}",
        "mod inner { use super::super::b; }",
        "use crate::Shown;",
        "use crate::Renamed;",
    ] {
        let root = "mod a; mod b; mod c; pub use b::Shown; pub use self::b::Thing as Renamed;";
        let found = of(&[("lib.rs", root), ("a.rs", text), ("b/mod.rs", ""), ("c.rs", "")]);
        assert!(found.contains(&"a -> b".to_owned()), "{text}: {found:?}");
    }
    let deep = [("lib.rs", "mod a; mod b;"), ("a/mod.rs", "mod d;"), ("b.rs", "")];
    let deep = [&deep[..], &[("a/d.rs", "use super::super::b;")]].concat();
    assert_eq!(of(&deep), ["a -> b"]);
}

#[test]
fn what_is_no_arrow_is_not_found() {
    for text in [
        "// use crate::b;\n/* crate::b::x /* */ use crate::b; */",
        "const X: &str = \"use crate::b;\"; const Y: &str = r#\"\"crate::b::x\"#;",
        "#[cfg(test)]\nmod tests { use crate::b; fn f() { crate::b::x() } }",
        "#[cfg(test)] use crate::b::{x, y};",
        "#[cfg(test)]\n#[path = \"x\"]\nmod far;",
        "use crate::a::b; fn f<'b>(x: &'b u8) -> char { '\\'' }",
        "mod inner { use super::b; } mod b { }",
        "use b::c; use other::b;",
    ] {
        let found = of(&[("lib.rs", "mod a; mod b;"), ("a.rs", text), ("b.rs", "")]);
        assert!(found.is_empty(), "{text}: {found:?}");
    }
}

#[test]
fn a_circle_is_reported_with_its_arrows() {
    let read = |back: &'static str| {
        let files = move |path: &Path| {
            Some(match path.to_str()? {
                "lib.rs" => "mod a; mod b; mod c;",
                "a.rs" => "use crate::b;",
                "b.rs" => "use crate::c;",
                "c.rs" => back,
                _ => return None,
            })
        };
        arrows(Path::new("lib.rs"), &|path: &Path| files(path).map(str::to_owned))
    };
    let (round, straight) = (read("use crate::a;"), read(""));
    assert_eq!((circles(&round).len(), circles(&straight).len()), (1, 0));
    assert_eq!(complaints("lib.rs", &straight), "");
    assert!(complaints("lib.rs", &round).contains("c -> a  c.rs: crate::a"));
}

#[test]
fn a_dependency_against_the_plan_is_told() {
    let of = |name: &str, dependencies: &str| {
        (name.to_owned(), format!("[package]\nname = \"{name}\"\n{dependencies}"))
    };
    let plan: &[(&str, &[&str])] = &[("core", &[]), ("live", &["core"])];
    let core = of("core", "[dev-dependencies]\nlive.workspace = true");
    let live = of("live", "[dependencies]\ncore = { path = \"x\" }\nserde = \"1\"");
    assert!(against_plan(&[core.clone(), live.clone()], plan).is_empty());
    let turned = of("core", "[target.x.dependencies]\nlive.workspace = true");
    assert_eq!(against_plan(&[turned, live.clone()], plan), ["core -> live"]);
    let new = of("new", "");
    assert_eq!(against_plan(&[core, live, new], plan), ["new is not in the plan"]);
}
