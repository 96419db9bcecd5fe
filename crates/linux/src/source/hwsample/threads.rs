//! Which process a thread belongs to: Arm SPE names threads only.

use std::collections::BTreeMap;

use thermocline_core::units::{Nanos, Pid};

use crate::root::{Root, read_optional};

/// Maximum number of threads cached; when there are more, the cache is cleared.
const THREADS_MAX: usize = 65_536;
/// How long a thread's process is cached: its number may be reused.
const AGE_MAX: Nanos = Nanos::from_s(10);

/// Processes by thread.
#[derive(Debug)]
pub(super) struct Threads {
    root: Root,
    known: BTreeMap<u32, (Nanos, Option<Pid>)>,
}

impl Threads {
    pub(super) fn new(root: &Root) -> Threads {
        Threads { root: root.clone(), known: BTreeMap::new() }
    }

    /// The process of a thread; `None` if it is gone.
    pub(super) fn process(&mut self, tid: u32, now: Nanos) -> Option<Pid> {
        if let Some((looked, pid)) = self.known.get(&tid)
            && now.since(*looked) < AGE_MAX
        {
            return *pid;
        }
        if self.known.len() >= THREADS_MAX {
            self.known.clear();
        }
        let text = read_optional(&self.root.proc.join(tid.to_string()).join("status")).ok().flatten();
        let pid = text.as_deref().and_then(|text| {
            let tgid = text.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
            tgid.trim().parse().ok().map(Pid)
        });
        self.known.insert(tid, (now, pid));
        pid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_looked_up_once_and_again_after_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let file = root.proc.join("78/status");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "Name:\tx\nTgid:\t77\nPid:\t78\n").unwrap();
        let mut threads = Threads::new(&root);
        assert_eq!(threads.process(78, Nanos(0)), Some(Pid(77)));
        assert_eq!(threads.process(79, Nanos(0)), None);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(threads.process(78, Nanos::from_s(9)), Some(Pid(77)));
        assert_eq!(threads.process(78, Nanos::from_s(10)), None);
    }
}
