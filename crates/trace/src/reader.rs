//! Reads a recording in order, and says what of it is missing or damaged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use thermocline_core::config::Config;
use thermocline_core::topology::Topology;
use thermocline_core::units::Nanos;

use crate::column::Rows;
use crate::config;
use crate::part::{Damage, Manifest, ReadPart, UNFINISHED, part_of, part_of_table};
use crate::piece::Piece;
use crate::rows::{Header, node, topology};
use crate::schema::TableId;

/// Names of damaged files that are kept; more are only counted.
const DAMAGES_MAX: usize = 64;

/// What is to be done where there is no recording.
const NAME_ANOTHER: &str = "name a folder that --record has written";

/// The setting that names the format of an imported recording. No other recording has it.
pub const IMPORTED: &str = "imported";
/// The setting that says what the times of an imported recording are.
pub const TIMES: &str = "times";

/// A recording.
#[derive(Clone, Debug)]
pub struct Recording {
    folder: PathBuf,
    parts: Vec<Manifest>,
    left_out: Vec<Damage>,
    settings: BTreeMap<String, String>,
    topology: Topology,
    /// Of its events only those from this moment on are read.
    from: Option<Nanos>,
}

impl Recording {
    /// Opens a recording. Unfinished files and parts without a whole manifest are left out, and
    /// named by [`left_out`](Recording::left_out).
    ///
    /// # Errors
    /// The folder cannot be read, or has no part that can be read.
    pub fn open(folder: &Path) -> Result<Recording, Damage> {
        Recording::open_as(folder, false)
    }

    /// Opens a recording that is being made. Files of parts that are not whole are those that are
    /// being written or removed, so that they are nothing to name.
    ///
    /// # Errors
    /// As [`open`](Recording::open).
    pub fn open_growing(folder: &Path) -> Result<Recording, Damage> {
        Recording::open_as(folder, true)
    }

    fn open_as(folder: &Path, grows: bool) -> Result<Recording, Damage> {
        let unreadable = |e: std::io::Error| Damage::new(folder, format!("cannot be read: {e}"));
        let mut left_out = Vec::new();
        let (mut parts, mut manifests, mut tables) = (Vec::new(), BTreeSet::new(), Vec::new());
        for entry in fs::read_dir(folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.ends_with(UNFINISHED) {
                if grows {
                    continue;
                }
                left_out.push(Damage::new(path, "it was not finished; the recording ended before"));
            } else if let Some(part) = part_of_table(&name) {
                tables.push((part, path));
            } else if let Some(part) = part_of(&name) {
                manifests.insert(part);
                let bytes = match fs::read(&path) {
                    // It was the oldest part, which has made room.
                    Err(error) if grows && error.kind() == ErrorKind::NotFound => continue,
                    read => read.ok(),
                };
                match bytes.and_then(|bytes| Manifest::of_bytes(&bytes)) {
                    Some(manifest) if manifest.part == part => parts.push(manifest),
                    _ => left_out.push(Damage::new(path, "it is damaged; its part is left out")),
                }
            }
        }
        let torn = tables.into_iter().filter(|(part, _)| !grows && !manifests.contains(part));
        left_out.extend(torn.map(|(_, path)| Damage::new(path, "its part was not finished")));
        parts.sort_by_key(|part| part.part);
        left_out.sort_by(|a, b| a.path.cmp(&b.path));
        let recording = Recording {
            folder: folder.to_owned(),
            parts,
            left_out,
            settings: BTreeMap::new(),
            topology: Topology::default(),
            from: None,
        };
        recording.described(grows)
    }

    /// Takes what it says about itself, which stands in every part: the first that is whole will
    /// do.
    fn described(mut self, grows: bool) -> Result<Recording, Damage> {
        let mut first = None;
        for manifest in &self.parts {
            match ReadPart::open(&self.folder, manifest).and_then(|mut part| about(&mut part)) {
                Ok(about) => {
                    (self.settings, self.topology) = about;
                    return Ok(self);
                }
                Err(damage) => first = first.or(Some(damage)),
            }
        }
        Err(first.unwrap_or_else(|| {
            let what = match self.left_out.len() {
                0 if grows => {
                    "no part of it is whole yet; the first is after some ten seconds, so try again".to_owned()
                }
                0 => format!("there is no recording in it; {NAME_ANOTHER}"),
                files => {
                    format!("there is no recording in it ({files} files are torn or damaged); {NAME_ANOTHER}")
                }
            };
            Damage::new(&self.folder, what)
        }))
    }

    /// The last part of it of this length, up to the end of its last whole part. What it says about
    /// itself is what held there.
    ///
    /// # Errors
    /// None of the files of that time can be read.
    pub fn last(&self, length: Nanos) -> Result<Recording, Damage> {
        let end = self.parts.iter().map(|part| part.last_ns).max().unwrap_or_default();
        let from = Nanos(end.0.saturating_sub(length.0));
        let parts = self.parts.iter().filter(|part| part.last_ns >= from).cloned().collect();
        Recording { parts, from: Some(from), ..self.clone() }.described(false)
    }

    /// The moment from which on its events are read, where they are not all.
    pub fn from(&self) -> Option<Nanos> {
        self.from
    }

    /// Whether it has its first event: older parts of a recording of limited size are removed.
    pub fn has_beginning(&self) -> bool {
        self.parts.first().is_some_and(|part| part.first_event == 0)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its parts, by number.
    pub fn parts(&self) -> &[Manifest] {
        &self.parts
    }

    /// Files that are torn or damaged, as far as is known before they are read.
    pub fn left_out(&self) -> &[Damage] {
        &self.left_out
    }

    /// What it says about the machine, the program and its configuration.
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.settings.get(key).map(String::as_str)
    }

    /// The format that it was imported from, if it was: it has no nodes and no configuration.
    pub fn imported(&self) -> Option<&str> {
        self.setting(IMPORTED)
    }

    /// What its times are, if they are no time but an order.
    pub fn untimed(&self) -> Option<&str> {
        self.setting(TIMES).filter(|times| !times.starts_with("ns "))
    }

    /// All that it says, by key.
    pub fn settings(&self) -> &BTreeMap<String, String> {
        &self.settings
    }

    /// The machine at its beginning.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The configuration at its beginning.
    ///
    /// # Errors
    /// It is not there, or is one that this version does not know.
    pub fn config(&self) -> Result<Config, Damage> {
        let text = self.setting("config");
        let text = text.ok_or_else(|| {
            Damage::new(&self.folder, "it has no configuration; replay it with one of your own")
        })?;
        config::parse(text).map_err(|what| Damage::new(&self.folder, what))
    }

    /// Reads its events in order.
    pub fn read(&self) -> Reader<'_> {
        Reader {
            recording: self,
            next_part: 0,
            part: None,
            next_group: 0,
            expected: None,
            damages: Vec::new(),
            damaged: 0,
            missing: 0,
            incomplete_from: None,
        }
    }
}

type AboutPart = (BTreeMap<String, String>, Topology);

fn about(part: &mut ReadPart) -> Result<AboutPart, Damage> {
    let mut settings = BTreeMap::new();
    part.head(TableId::Settings, &mut |mut row| {
        settings.insert(row.text()?.to_owned(), row.text()?.to_owned());
        Ok(())
    })?;
    let mut nodes = Vec::new();
    part.head(TableId::Topology, &mut |row| {
        nodes.push(node(row)?);
        Ok(())
    })?;
    // Other programs do not say what machine it was.
    if nodes.is_empty() && settings.contains_key(IMPORTED) {
        return Ok((settings, Topology::default()));
    }
    match topology(nodes) {
        Some((Piece::Topology(topology), _)) => Ok((settings, topology)),
        _ => Err(Damage::new(part.folder(), "its nodes are not those of a machine")),
    }
}

/// Reads events; see [`Recording::read`].
pub struct Reader<'a> {
    recording: &'a Recording,
    next_part: usize,
    part: Option<ReadPart>,
    /// Of a table that is read alone.
    next_group: usize,
    expected: Option<u64>,
    damages: Vec<Damage>,
    damaged: u64,
    missing: u64,
    incomplete_from: Option<u64>,
}

impl Reader<'_> {
    /// The next event. A part with a damaged file is left out, or ends where the damage is.
    pub fn next_event(&mut self) -> Option<(u64, Header, Piece)> {
        loop {
            let Some(part) = &mut self.part else {
                self.open_next()?;
                continue;
            };
            match part.next_event() {
                Ok(Some((number, head, _))) if self.recording.from.is_some_and(|from| head.time < from) => {
                    self.expected = Some(number + 1);
                }
                Ok(Some((number, head, piece))) => {
                    // What was before the moment from which it is read is not missing.
                    let expected = self.expected.unwrap_or(match self.recording.from {
                        Some(_) => number,
                        None => 0,
                    });
                    if number > expected {
                        self.missing += number - expected;
                        self.incomplete_from.get_or_insert(expected);
                    }
                    self.expected = Some(number + 1);
                    return Some((number, head, piece));
                }
                Ok(None) => self.part = None,
                Err(damage) => {
                    self.part = None;
                    self.note(damage);
                }
            }
        }
    }

    /// The next rows of a table alone, by groups of a file; not to be mixed with events. A part
    /// with a damaged file is left out.
    pub fn next_rows(&mut self, table: TableId) -> Option<Rows> {
        loop {
            let Some(part) = &self.part else {
                self.next_group = 0;
                self.open_next()?;
                continue;
            };
            match part.group(table, self.next_group) {
                Ok(Some(rows)) => {
                    self.next_group += 1;
                    return Some(rows);
                }
                Ok(None) => self.part = None,
                Err(damage) => {
                    self.part = None;
                    self.note(damage);
                }
            }
        }
    }

    /// Opens the next part that can be read; `None` if there is no further one.
    fn open_next(&mut self) -> Option<()> {
        loop {
            let manifest = self.recording.parts.get(self.next_part)?;
            self.next_part += 1;
            let opened = ReadPart::open(&self.recording.folder, manifest);
            match opened.and_then(|mut part| about(&mut part).map(|_| part)) {
                Ok(part) => {
                    self.part = Some(part);
                    return Some(());
                }
                Err(damage) => self.note(damage),
            }
        }
    }

    fn note(&mut self, damage: Damage) {
        self.damaged += 1;
        if self.damages.len() < DAMAGES_MAX {
            self.damages.push(damage);
        }
    }

    /// Files that turned out to be damaged while they were read.
    pub fn damages(&self) -> &[Damage] {
        &self.damages
    }

    /// How many there are.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Events that are missing before the one read last: lost when they were recorded, dropped for
    /// newer ones, or damaged.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// The first of them.
    pub fn incomplete_from(&self) -> Option<u64> {
        self.incomplete_from
    }
}
