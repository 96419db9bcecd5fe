//! A sweep's folder.
//!
//! ```text
//! sweep.json               the plan and the program; written once and never changed
//! part-3-of-64.journal     finished runs of a shard, one per line; locked while it runs
//! part-3-of-64.parquet     the same once all are finished; replaces the journal
//! sweep.parquet            all parts together
//! ```
//!
//! A file appears complete or not at all: it is written under another name, synced to disk, and
//! renamed. Only the journal grows. An incomplete line that a killed process leaves at its end is
//! cut off, so only the runs in progress are lost.

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

/// The content of `sweep.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    /// Version, and hash of the executable: results of different programs must not be mixed.
    program: String,
    plan: Plan,
}

const MANIFEST: &str = "sweep.json";
/// Maximum size of a plan, in bytes: a million configurations with a kilobyte of values each.
const MANIFEST_BYTES_MAX: u64 = 1 << 30;
/// Maximum length of a journal line without its figures, and of each figure, in bytes.
const ROW_BYTES_MAX: u64 = 256;
const FIGURE_BYTES_MAX: u64 = 64;

/// A sweep's folder.
pub struct Folder {
    path: PathBuf,
    /// The runs to do.
    pub plan: Plan,
    /// The hash of the plan, which every file contains.
    grid: String,
}

impl Folder {
    /// The folder for this plan, whose runs `program` makes; created if it does not exist.
    ///
    /// # Errors
    /// It belongs to another plan or another program, or cannot be written.
    pub fn create(path: &Path, plan: &Plan, program: &str) -> anyhow::Result<Folder> {
        std::fs::create_dir_all(path)
            .with_context(|| format!("cannot make {}; give another --out", path.display()))?;
        let manifest = Manifest { program: program.to_owned(), plan: plan.clone() };
        let text = serde_json::to_string(&manifest)? + "\n";
        let file = path.join(MANIFEST);
        if !file.exists() {
            let new = write_whole(&file, |out| Ok(out.write_all(text.as_bytes())?))?;
            // Unlike a rename this does not replace a file that another shard has written in the
            // meantime.
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

    /// Opens an existing folder.
    ///
    /// # Errors
    /// It is not the folder of a sweep.
    pub fn open(path: &Path) -> anyhow::Result<Folder> {
        Folder::new(path, read_manifest(path)?.plan)
    }

    fn new(path: &Path, plan: Plan) -> anyhow::Result<Folder> {
        let grid = hash(serde_json::to_string(&plan)?.as_bytes());
        Ok(Folder { path: path.to_owned(), plan, grid })
    }

    /// The path of a shard's part, whether or not it exists.
    pub fn part(&self, shard: Shard) -> PathBuf {
        self.path.join(format!("{}.parquet", stem(shard)))
    }

    /// All finished runs of all shards.
    ///
    /// # Errors
    /// A part is damaged or belongs to another sweep, or two parts disagree.
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
                // The Parquet reader may panic on damaged data.
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

    /// A shard's journal, locked by this process.
    ///
    /// # Errors
    /// Another process has locked it, or it cannot be written.
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
            // On a file system without locks nothing prevents a shard from being run twice. That
            // wastes time but does no harm.
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

    /// The bytes of the journal at `path`; empty if it is gone.
    fn read_journal(&self, path: &Path) -> anyhow::Result<Vec<u8>> {
        match regular::open(path) {
            Ok(mut file) => self.journal_bytes(path, &mut file),
            // The shard has just finished. Its part is in the list already, or will be next time.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// The bytes of a journal, unless it is longer than twice the maximum for all runs.
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

    /// The rows of a journal, and the length of its complete lines. From the first line that is not
    /// a row on, everything is taken as cut short.
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

    /// Writes rows to a file that appears complete or not at all.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &Path, rows: &BTreeMap<u64, Row>) -> anyhow::Result<()> {
        let new = write_whole(path, |file| Ok(table::write(file, &self.plan, &self.grid, rows)?))?;
        new.persist(path).with_context(|| format!("cannot make {}", path.display()))?;
        sync(&self.path)
    }
}

/// Finished runs, one per line.
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Appends a row.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn append(&mut self, run: u64, row: &Row) -> anyhow::Result<()> {
        self.line(&serde_json::to_string(&(run, row))?)
    }

    /// Removes the journal, because the part has replaced it.
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
        // In one call, so that a finished line is complete in the file.
        let written = self.file.write_all(format!("{text}\n").as_bytes());
        written.with_context(|| {
            format!("cannot write {}; make room, then the same command goes on", self.path.display())
        })
    }
}

fn stem(shard: Shard) -> String {
    format!("part-{}", shard.to_string().replace('/', "-of-"))
}

/// Writes a new file beside `path` and syncs it to disk; it is removed when dropped. The name is
/// random and the file must not exist, because processes in different containers that share a
/// folder can have the same pid.
fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut File) -> anyhow::Result<()>,
) -> anyhow::Result<NamedTempFile> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default();
    let mut new = tempfile::Builder::new()
        .prefix(name)
        .suffix(".new")
        // As with File::create, so that other users of the folder can read the results.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .with_context(|| format!("cannot make a file in {}", folder.display()))?;
    let written = write(new.as_file_mut()).and_then(|()| Ok(new.as_file().sync_all()?));
    written.with_context(|| {
        format!("cannot write {}; make room, then the same command goes on", path.display())
    })?;
    Ok(new)
}

/// Syncs a folder's entries to disk.
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

/// A program: its version, and the hash of its file, because a changed rule does not change the
/// version.
///
/// # Errors
/// The file cannot be read.
pub fn program(path: &Path) -> anyhow::Result<String> {
    let file = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(format!("{} {}", env!("CARGO_PKG_VERSION"), hash(&file)))
}
