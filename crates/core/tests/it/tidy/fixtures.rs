//! Small files that show what each rule finds and what it leaves alone.

use super::rules::{head, length_among, width, words};

#[test]
fn wide_comments_are_found_and_wide_code_is_left_to_rustfmt() {
    let long = "word ".repeat(20);
    assert_eq!(width("a.rs", &format!("    /// {long}")), ["a.rs:1: 108 columns"]);
    assert_eq!(width("a.md", &format!("\n{long}more")), ["a.md:2: 104 columns"]);
    assert_eq!(width("a.sh", &format!("# {long}")), ["a.sh:1: 102 columns"]);
    assert_eq!(width("a.c", &format!(" * {long}")), ["a.c:1: 103 columns"]);
    for text in [
        format!("let x = \"{long}\";"),
        format!("/// ```\n/// {long}\n/// ```"),
        format!("/// | {long} |"),
        format!("/// {}", "x".repeat(200)),
        format!("/// {}", "é".repeat(96)),
    ] {
        assert!(width("a.rs", &text).is_empty(), "{text}");
    }
}

#[test]
fn long_files_may_only_become_shorter() {
    let of = |lines: usize| "\n".repeat(lines);
    let list = [("a.rs", 600)];
    assert_eq!(length_among(&list, "a.rs", &of(601)), ["a.rs: 601 lines, it had 600"]);
    assert!(length_among(&list, "a.rs", &of(600)).is_empty());
    assert_eq!(length_among(&list, "a.rs", &of(500)), ["a.rs: 500 lines, take it off the list"]);
    assert_eq!(length_among(&list, "b.rs", &of(501)), ["b.rs: 501 lines, split it"]);
    assert!(length_among(&list, "b.rs", &of(500)).is_empty());
}

#[test]
fn words_are_found_in_any_case() {
    assert_eq!(words("a.md", "so\nWhosesoever"), ["a.md:2: `whosesoever`: write any"]);
    assert!(words("a.rs", "whose").is_empty());
}

#[test]
fn a_head_says_what_the_file_is_in_a_sentence() {
    let sound = [
        "//! What it is.\n",
        "//! What it is:\n//!\n//! more",
        "//! What it is.\n\nuse x;",
        "//! What it is and\n//! goes on.",
    ];
    for text in sound {
        assert!(head("a.rs", text).is_empty(), "{text}");
    }
    for text in ["use x;", "//! What it is\n//!\n//! and more.", "//! What it is\n", "// What it is."] {
        assert_eq!(head("a.rs", text).len(), 1, "{text}");
    }
}
