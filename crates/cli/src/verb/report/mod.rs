//! `thermocline report`: what a recording says, as one page.
//!
//! ```text
//!  recording ─▶ trace::digest, replay, plan ─▶ facts ─▶ sentence, sections, figures ─▶ page
//! ```
//!
//! The page is one file of HTML without scripts, of bounded size whatever the recording's length:
//! everything in it is a sum, a series of a fixed number of intervals, or a list with a limit.

mod counted;
mod facts;
mod figures;
mod html;
mod number;
mod page;
mod sections;
mod sentence;

use std::fs;

use anyhow::Context;
use thermocline_trace::reader::Recording;

use crate::args::Report;
use crate::output::tell;
use crate::progress::shown_while;
use crate::recorded::bytes;
use crate::verb::picture as file;
use facts::Facts;
use page::Page;

/// Writes the page of a recording, and its figures if that is asked for.
///
/// # Errors
/// It is no recording (a [`Damage`](thermocline_trace::part::Damage)), or a file cannot be written.
pub fn report(args: &Report) -> anyhow::Result<()> {
    let recording = Recording::open(&args.folder)?;
    file::check_as(&args.file, "html", "the page is HTML", "give a file ending in .html")?;
    let facts = shown_while("reading ...", || Facts::of(&recording));
    facts.left_out.iter().for_each(|file| tell!("left out: {file}"));
    let page = Page::of(&facts);
    if let Some(folder) = &args.figures {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for figure in &page.figures {
            file::write(&folder.join(format!("{}.svg", figure.name)), &figure.alone())?;
        }
    }
    file::write(&args.file, &page.html)?;
    let figures = match &args.figures {
        Some(folder) => format!(", and {} figures to {}", page.figures.len(), folder.display()),
        None => String::new(),
    };
    tell!("written to {}: {}{figures}", args.file.display(), bytes(page.html.len() as u64));
    Ok(())
}
