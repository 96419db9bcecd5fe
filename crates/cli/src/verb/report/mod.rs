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
mod place;
mod reach;
mod sections;
mod sentence;

use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::args::Report;
use crate::output::tell;
use crate::progress::shown_while;
use crate::recorded::bytes;
use crate::verb::picture as file;
use facts::Facts;
use page::Page;
use place::Place;

/// Writes the page of a recording, and its figures if that is asked for. `socket` is that of the
/// daemon, which is asked for its recording where none is named.
///
/// # Errors
/// It is no recording (a [`Damage`](thermocline_trace::part::Damage)), the daemon makes none, or a
/// file cannot be written.
pub fn report(args: &Report, socket: &Path) -> anyhow::Result<()> {
    file::check_as(&args.file, "html", "the page is HTML", "give a file ending in .html")?;
    let place = match &args.folder {
        Some(folder) => Place::named(folder),
        None => Place::of_daemon(socket)?,
    };
    let recording = place.open()?;
    let facts = shown_while("reading ...", || Facts::of(&recording, args.last, place.daemon()))?;
    facts.left_out.iter().for_each(|file| tell!("left out: {file}"));
    let page = Page::of(&facts);
    if let Some(folder) = &args.figures {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for figure in &page.figures {
            let svg = folder.join(format!("{}.svg", figure.name));
            file::write(&svg, &figure.alone())?;
            if args.png {
                file::png(&svg)?;
            }
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
