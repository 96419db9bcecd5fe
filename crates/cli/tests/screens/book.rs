//! The book shows the screen that the command prints; `BLESS=1` writes it there.

use super::*;

const CHAPTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/top.md");

#[test]
fn the_book_shows_the_screen_of_a_recording() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("shared.trace");
    record(&folder);
    let frame = frame(&folder, &["--pane", "scopes", "--size", "100x12"]);
    let chapter = fs::read_to_string(CHAPTER).expect("the chapter is there");
    let (before, rest) = chapter.split_once("<!-- recording -->\n").expect("the chapter has the marker");
    let (_, after) = rest.split_once("<!-- end of recording -->").expect("the marker has an end");
    let fresh = format!("{before}<!-- recording -->\n```text\n{frame}```\n<!-- end of recording -->{after}");
    if std::env::var_os("BLESS").is_some() {
        fs::write(CHAPTER, &fresh).expect("the chapter can be written");
    }
    assert!(fresh == chapter, "docs/src/top.md is stale; refresh it with BLESS=1:\n{frame}");
}
