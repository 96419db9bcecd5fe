//! A sweep's folder.
//!
//! ```text
//! sweep.json               the plan and the program; written once, and never changed
//! part-3-of-64.journal     runs of a shard that are done, a line each; locked by who runs it
//! part-3-of-64.parquet     the same when all of them are; takes the journal's place
//! sweep.parquet            all parts together
//! ```
//!
//! A file appears whole or not at all: it is written under another name, brought to the disk, and
//! renamed. The journal alone grows; what a killed process leaves at its end is cut off. So nothing
//! is lost but the runs that were under way.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use thermocline_linux::regular;
use thermocline_sim::spec::SpecError;
use thermocline_sim::sweep::{Plan, Row, Shard, hash};

use super::table;

/// What `sweep.json` says.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    /// Version, and hash of the executable: results of two programs do not belong together.
    program: String,
    plan: Plan,
}

const MANIFEST: &str = "sweep.json";
/// Longest plan that is read, in bytes: a million configurations with a kilobyte of values each.
const MANIFEST_BYTES_MAX: u64 = 1 << 30;
/// Longest line of a journal without its figures, in bytes, and what a figure adds to it.
const ROW_BYTES_MAX: u64 = 256;
const FIGURE_BYTES_MAX: u64 = 64;

/// A sweep's folder.
pub struct Folder {
    path: PathBuf,
    /// What is to be done.
    pub plan: Plan,
    /// The hash of the plan; every file carries it.
    grid: String,
}

impl Folder {
    /// The folder for this plan; made where it does not exist.
    ///
    /// # Errors
    /// It belongs to another plan or another program, or cannot be written.
    pub fn create(path: &Path, plan: &Plan) -> anyhow::Result<Folder> {
        std::fs::create_dir_all(path)
            .with_context(|| format!("cannot make {}; give another --out", path.display()))?;
        let manifest = Manifest { program: program()?, plan: plan.clone() };
        let text = serde_json::to_string(&manifest)? + "\n";
        let file = path.join(MANIFEST);
        if !file.exists() {
            let new = write_whole(&file, |out| Ok(out.write_all(text.as_bytes())?))?;
            // Unlike a rename this does not replace what another shard has written meanwhile.
            match std::fs::hard_link(new.path(), &file) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(error).with_context(|| format!("cannot make {}", file.display()));
                }
                _ => sync(path)?,
            }
        }
        let there = read_manifest(path)?;
        let other = |message: &str, remedy: &str| {
            Err(SpecError::new(path.display().to_string(), message, remedy).into())
        };
        if there.plan != *plan {
            return other(
                "holds the results of another grid, or of scenarios that have changed",
                "give another --out, or the grid and scenarios that it was begun with",
            );
        }
        if there.program != manifest.program {
            return other(
                "holds the results of another build of thermocline, which need not agree with this one's",
                "give another --out, or go on with the build that it was begun with",
            );
        }
        Folder::new(path, there.plan)
    }

    /// A folder that is there.
    ///
    /// # Errors
    /// It is no sweep's.
    pub fn open(path: &Path) -> anyhow::Result<Folder> {
        Folder::new(path, read_manifest(path)?.plan)
    }

    fn new(path: &Path, plan: Plan) -> anyhow::Result<Folder> {
        let grid = hash(serde_json::to_string(&plan)?.as_bytes());
        Ok(Folder { path: path.to_owned(), plan, grid })
    }

    /// Where a shard's part is, or will be.
    pub fn part(&self, shard: Shard) -> PathBuf {
        self.path.join(format!("{}.parquet", stem(shard)))
    }

    /// Every run that any shard has done.
    ///
    /// # Errors
    /// A part is damaged or of another sweep, or two of them do not agree.
    pub fn done(&self) -> anyhow::Result<BTreeMap<u64, Row>> {
        let mut names: Vec<PathBuf> = Vec::new();
        let list = || format!("cannot list {}", self.path.display());
        for entry in std::fs::read_dir(&self.path).with_context(list)? {
            names.push(entry.with_context(list)?.path());
        }
        names.sort();
        let mut done = BTreeMap::new();
        for path in &names {
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            let rows = if !name.starts_with("part-") {
                continue;
            } else if name.ends_with(".parquet") {
                let remedy = || format!("{} is of no use; remove it and run its shard again", path.display());
                let file = open(path)?;
                // What reads Parquet may take damage for a mistake of its caller's.
                let reading = || table::read(file, &self.plan, &self.grid);
                let rows = catch_unwind(AssertUnwindSafe(reading));
                rows.unwrap_or_else(|_| Err(anyhow!("it is damaged"))).with_context(remedy)?
            } else if name.ends_with(".journal") {
                self.parse_journal(path, &self.read_journal(path)?)?.0
            } else {
                continue;
            };
            for (run, row) in rows {
                if done.get(&run).is_some_and(|other| *other != row) {
                    let message = format!("two results differ: {}", self.plan.words(run));
                    let remedy = "remove the parts that another machine or program has made";
                    return Err(SpecError::new(path.display().to_string(), message, remedy).into());
                }
                done.insert(run, row);
            }
        }
        Ok(done)
    }

    /// A shard's journal, for this process alone.
    ///
    /// # Errors
    /// Another process has it, or it cannot be written.
    pub fn journal(&self, shard: Shard) -> anyhow::Result<Journal> {
        let path = self.path.join(format!("{}.journal", stem(shard)));
        let cannot = || format!("cannot write {}", path.display());
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        let mut file = regular::open_with(&options, 0, &path).with_context(cannot)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                return Err(anyhow!(
                    "{} is in use: shard {shard} is being run by another process; wait for it, or end it",
                    path.display()
                ));
            }
            // A file system without locks: nobody watches that no shard is run twice, which would
            // do no harm but cost time.
            Err(TryLockError::Error(_)) | Ok(()) => {}
        }
        let text = self.journal_bytes(&path, &mut file)?;
        let whole = self.parse_journal(&path, &text)?.1;
        file.set_len(whole as u64).with_context(cannot)?;
        let mut journal = Journal { path, file };
        if whole == 0 {
            journal.line(&serde_json::to_string(&self.grid)?)?;
        }
        Ok(journal)
    }

    /// The bytes of the journal at `path`; none where it is gone.
    fn read_journal(&self, path: &Path) -> anyhow::Result<Vec<u8>> {
        match regular::open(path) {
            Ok(mut file) => self.journal_bytes(path, &mut file),
            // Its shard has just been done: its part was listed, or will be there the next time.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// The bytes of a journal, unless they are more than all runs could have made twice.
    fn journal_bytes(&self, path: &Path, file: &mut File) -> anyhow::Result<Vec<u8>> {
        let of_row = ROW_BYTES_MAX + FIGURE_BYTES_MAX * self.plan.figures.len() as u64;
        let bytes_max = ROW_BYTES_MAX + 2 * of_row * self.plan.runs();
        let mut text = Vec::new();
        let read = file.take(bytes_max + 1).read_to_end(&mut text);
        read.with_context(|| format!("cannot read {}", path.display()))?;
        if text.len() as u64 > bytes_max {
            let message = format!("is longer than {bytes_max} bytes, as no journal of this sweep is");
            return Err(SpecError::new(path.display().to_string(), message, "remove it").into());
        }
        Ok(text)
    }

    /// The rows of a journal, and the length of its whole lines. Whatever follows a line that is
    /// none was cut short.
    fn parse_journal(&self, path: &Path, text: &[u8]) -> anyhow::Result<(Vec<(u64, Row)>, usize)> {
        let mut rows = Vec::new();
        let mut whole = 0;
        for line in text.split_inclusive(|byte| *byte == b'\n').take_while(|line| line.ends_with(b"\n")) {
            if whole == 0 {
                match serde_json::from_slice::<String>(line) {
                    Ok(grid) if grid == self.grid => {}
                    Ok(_) => {
                        let remedy = "remove it";
                        let place = path.display().to_string();
                        return Err(SpecError::new(place, "is another sweep's", remedy).into());
                    }
                    Err(_) => break,
                }
            } else {
                match serde_json::from_slice::<(u64, Row)>(line) {
                    Ok((run, row)) if run < self.plan.runs() && table::fits(&self.plan, &row) => {
                        rows.push((run, row));
                    }
                    _ => break,
                }
            }
            whole += line.len();
        }
        Ok((rows, whole))
    }

    /// Writes rows to a file that appears whole or not at all.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &Path, rows: &BTreeMap<u64, Row>) -> anyhow::Result<()> {
        let new = write_whole(path, |file| Ok(table::write(file, &self.plan, &self.grid, rows)?))?;
        new.persist(path).with_context(|| format!("cannot make {}", path.display()))?;
        sync(&self.path)
    }
}

/// Runs that are done, a line each.
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Keeps a row.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn append(&mut self, run: u64, row: &Row) -> anyhow::Result<()> {
        self.line(&serde_json::to_string(&(run, row))?)
    }

    /// Removes it: the part has taken its place.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(self) -> anyhow::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.with_context(|| format!("cannot remove {}", self.path.display())),
        }
    }

    fn line(&mut self, text: &str) -> anyhow::Result<()> {
        // In one call, so that a line is there as soon as it is done.
        let written = self.file.write_all(format!("{text}\n").as_bytes());
        written.with_context(|| {
            format!("cannot write {}; make room, then the same command goes on", self.path.display())
        })
    }
}

fn stem(shard: Shard) -> String {
    format!("part-{}", shard.to_string().replace('/', "-of-"))
}

/// Writes a new file beside `path` and brings it to the disk; dropped, it is removed. Its name is
/// drawn at random and the file is made only where none is there: in containers that share a
/// folder, process numbers are alike.
fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut File) -> anyhow::Result<()>,
) -> anyhow::Result<NamedTempFile> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default();
    let mut new = tempfile::Builder::new()
        .prefix(name)
        .suffix(".new")
        // As File::create does it: whoever shares the folder may read the results.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .with_context(|| format!("cannot make a file in {}", folder.display()))?;
    let written = write(new.as_file_mut()).and_then(|()| Ok(new.as_file().sync_all()?));
    written.with_context(|| {
        format!("cannot write {}; make room, then the same command goes on", path.display())
    })?;
    Ok(new)
}

/// Brings a folder's entries to the disk.
fn sync(folder: &Path) -> anyhow::Result<()> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.with_context(|| format!("cannot bring {} to the disk", folder.display()))
}

fn open(path: &Path) -> anyhow::Result<File> {
    regular::open(path).with_context(|| format!("cannot read {}", path.display()))
}

fn read_manifest(folder: &Path) -> anyhow::Result<Manifest> {
    let path = folder.join(MANIFEST);
    let place = path.display().to_string();
    let text = regular::read_at_most(&path, MANIFEST_BYTES_MAX).map_err(|error| {
        let remedy = "give the --out of a sweep";
        SpecError::new(&place, format!("cannot be read: {error}"), remedy)
    })?;
    serde_json::from_slice(&text).map_err(|error| {
        let remedy = "give another folder, or remove everything in this one";
        SpecError::new(&place, format!("is no plan of a sweep: {error}"), remedy).into()
    })
}

/// This program: its version, and the hash of its file, since whoever changes a rule does not
/// change the version.
fn program() -> anyhow::Result<String> {
    let path = std::env::current_exe().context("cannot find this program's file")?;
    let file = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(format!("{} {}", env!("CARGO_PKG_VERSION"), hash(&file)))
}
