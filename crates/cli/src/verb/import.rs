//! `thermocline import`: makes a recording of what another tool has written.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::Context;
use thermocline_trace::import::{ImportError, IntoFolderError, Options, into_folder};
use thermocline_trace::part::Damage;

use crate::args::Import;
use crate::output::tell;
use crate::progress::Bytes;
use crate::recorded::{self, PROGRAM};

/// Imports a file, and says what became of it.
///
/// # Errors
/// The file is of no known format or damaged (a [`Damage`]), or cannot be read; or the folder
/// cannot be written.
pub fn import(args: &Import) -> anyhow::Result<()> {
    let from_stdin = args.file == Path::new("-");
    let cannot = || format!("cannot read {}", args.file.display());
    let (mut input, size): (Box<dyn Read>, _) = match from_stdin {
        true => (Box::new(io::stdin().lock()), None),
        false => {
            let file = File::open(&args.file).with_context(cannot)?;
            let about = file.metadata().with_context(cannot)?;
            (Box::new(file), about.is_file().then_some(about.len()))
        }
    };
    let options =
        Options { until_damage: args.until_damage, fields: args.fields.clone(), intervals: args.intervals };
    let name = if from_stdin { "standard input".to_owned() } else { args.file.display().to_string() };
    let mut settings =
        vec![("program".to_owned(), PROGRAM.to_owned()), ("verb".to_owned(), "import".to_owned())];
    if let Some(intervals) = args.intervals {
        let ns = format!("{} ns, {} ns, as told to import", intervals.sample.0, intervals.aggregation.0);
        settings.push(("damon_intervals".to_owned(), ns));
    }
    let mut progress = Bytes::new("importing", size);
    let done = into_folder(&mut input, args.format, &options, (&args.folder, &settings), &mut |bytes| {
        progress.show(bytes);
    });
    drop(progress);
    let done = done.map_err(|error| match error {
        IntoFolderError::Write(why) => anyhow::anyhow!("cannot record to {}: {why}", args.folder.display()),
        IntoFolderError::Import(ImportError::Flaw(flaw)) => Damage::new(
            &name,
            format!("{flaw}; nothing was imported (--until-damage imports what comes before)"),
        )
        .into(),
        IntoFolderError::Import(error) => anyhow::anyhow!("{name}: {error}; nothing was imported"),
        IntoFolderError::Unknown(why) => Damage::new(&name, why).into(),
    })?;
    tell!("{name} is of format {}", done.format.name());
    if let Some(damage) = &done.read.damage {
        tell!("damaged, and read up to there: {damage}");
    }
    for (what, count) in &done.read.left_out {
        tell!("left out: {count} {what}");
    }
    if done.read.pieces == 0 {
        tell!("there is no evidence in it");
    }
    tell!("{}", recorded::after(&done.written, None));
    Ok(())
}
