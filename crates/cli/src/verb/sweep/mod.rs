//! `thermocline sweep`: runs every combination of a grid, shard by shard, into a folder.

mod draw;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use thermocline_front::sweep::{Begun, Folder, load, merge as put_together, program};
use thermocline_sim::picture::curves;
use thermocline_sim::sweep::{Plan, Row};

use crate::args::Sweep;
use crate::output::{print, tell};
use crate::progress::{Progress, shown_while};
use crate::verb::picture;

/// Exit status of a sweep ended by Ctrl-C, so that a scheduler does not take it as done.
const EXIT_STOPPED: u8 = 130;

/// Runs a shard, or merges the parts of all shards.
///
/// # Errors
/// The grid cannot be run, the folder belongs to another grid or cannot be written, runs are
/// missing, or the simulation failed.
pub fn sweep(args: &Sweep) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &args.merge {
        merge(folder, args.svg.as_deref())?;
        return Ok(ExitCode::SUCCESS);
    }
    let (Some(grid), Some(out)) = (&args.grid, &args.out) else {
        return Err(anyhow!("give a grid and --out DIR, or --merge DIR"));
    };
    // This takes long if there are many configurations.
    let sweep =
        shown_while("checking every configuration of the grid", || load(grid, args.machine.as_deref()))?;
    if let Some(path) = &args.svg {
        picture::check(path)?;
        draw::check(&sweep.plan)?;
    }
    let executable = std::env::current_exe().context("cannot find this program's file")?;
    let folder = Folder::create(out, &sweep.plan, &program(&executable)?)?;
    let begun = Begun::new(&folder, args.shard)?;
    let progress = Progress::new(begun.left() as u64)?;
    let done = begun.run(&sweep, &progress.stop, &|| progress.one())?;
    drop(progress);
    let of = done.runs;
    if done.done < of {
        print(format_args!(
            "{} of {of} runs of shard {} are done and kept; the same command goes on\n",
            done.done, args.shard
        ))?;
        return Ok(ExitCode::from(EXIT_STOPPED));
    }
    if let Some(path) = &args.svg {
        draw(path, &sweep.plan, &folder.done()?)?;
    }
    let (part, shard, before) = (done.part.display(), &args.shard, done.before);
    print(format_args!("{part}: {of} runs of shard {shard}, {before} of them done before\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Draws the runs, once all are done.
fn draw(path: &Path, plan: &Plan, rows: &BTreeMap<u64, Row>) -> anyhow::Result<()> {
    if (rows.len() as u64) < plan.runs() {
        tell!(
            "{}: not drawn, since other shards are not done; `--merge DIR --svg FILE` draws",
            path.display()
        );
        return Ok(());
    }
    draw::sweep(plan, rows).map_or(Ok(()), |sweep| picture::write(path, &curves(&sweep)))
}

fn merge(path: &Path, svg: Option<&Path>) -> anyhow::Result<()> {
    let folder = Folder::open(path)?;
    if let Some(svg) = svg {
        picture::check(svg)?;
        draw::check(&folder.plan)?;
    }
    let (merged, rows) = put_together(&folder, path)?;
    if let Some(svg) = svg {
        draw(svg, &folder.plan, &rows)?;
    }
    print(format_args!("{}: {} runs\n", merged.display(), rows.len()))
}
