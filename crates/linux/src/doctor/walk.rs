//! Reads processes' mappings without ever waiting for one of them: a process whose mmap lock is held keeps a reader for as long as it pleases.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use thermocline_core::units::Pid;

use crate::numa_maps::{self, Mapping};
use crate::record::{Entry, note};
use crate::root::{KernelFileError, Root, read_optional};

/// Longest time for one process.
const PATIENCE: Duration = Duration::from_millis(500);

type Text = Result<Option<String>, KernelFileError>;

/// A thread that reads, and is left alone with the process that does not let it.
#[derive(Debug)]
pub(super) struct Walker {
    root: Root,
    read: fn(&Path) -> Text,
    thread: Option<(Sender<Pid>, Receiver<Text>)>,
}

/// What came of reading a process's mappings.
#[derive(Debug)]
pub(super) enum Walked {
    /// They were read.
    Mappings(Vec<Mapping>),
    /// It is gone, or has none.
    Gone,
    /// They may not be read.
    Unreadable,
    /// It did not answer in time.
    Stuck,
}

impl Walker {
    pub(super) fn new(root: &Root) -> Walker {
        Walker { root: root.clone(), read: read_optional, thread: None }
    }

    /// Reads the mappings of a process.
    pub(super) fn walk(&mut self, pid: Pid) -> Walked {
        let (root, read) = (self.root.clone(), self.read);
        let (ask, answers) = self.thread.get_or_insert_with(|| reader(root, read));
        // A reader that could not be started has hung up.
        let answer = match ask.send(pid) {
            Ok(()) => answers.recv_timeout(PATIENCE),
            Err(_) => Err(RecvTimeoutError::Disconnected),
        };
        match answer {
            Ok(Ok(Some(text))) => {
                note(&path(&self.root, pid), || Entry::File(text.clone().into_bytes()));
                Walked::Mappings(text.lines().filter_map(numa_maps::parse_line).collect())
            }
            Ok(Ok(None)) => Walked::Gone,
            Ok(Err(_)) => Walked::Unreadable,
            Err(_) => {
                self.thread = None;
                Walked::Stuck
            }
        }
    }
}

fn path(root: &Root, pid: Pid) -> PathBuf {
    root.proc.join(pid.0.to_string()).join("numa_maps")
}

fn reader(root: Root, read: fn(&Path) -> Text) -> (Sender<Pid>, Receiver<Text>) {
    let (ask, asked) = channel::<Pid>();
    let (answer, answers) = channel();
    let work = move || {
        for pid in asked {
            if answer.send(read(&path(&root, pid))).is_err() {
                break;
            }
        }
    };
    // Where there is no thread to be had, nobody answers.
    let _ = std::thread::Builder::new().name("mappings".to_owned()).spawn(work);
    (ask, answers)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_process_that_does_not_answer_is_left_and_the_next_one_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        std::fs::create_dir_all(root.proc.join("8")).unwrap();
        let stuck_at_7 = |path: &Path| {
            if path.ends_with("7/numa_maps") {
                std::thread::sleep(Duration::from_secs(60));
            }
            read_optional(path)
        };
        std::fs::write(path(&root, Pid(8)), "1000 default anon=1 N0=1 kernelpagesize_kB=4\n").unwrap();
        let mut walker = Walker { read: stuck_at_7, ..Walker::new(&root) };
        let begin = Instant::now();
        assert!(matches!(walker.walk(Pid(7)), Walked::Stuck));
        assert!(matches!(walker.walk(Pid(8)), Walked::Mappings(found) if found.len() == 1));
        assert!(matches!(walker.walk(Pid(9)), Walked::Gone));
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
}
