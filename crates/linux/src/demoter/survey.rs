//! The generations of all cgroups, as last read.
//!
//! The kernel reports all cgroups at once, and searches each piece of the text from the first
//! cgroup on (Linux mm/vmscan.c, lru_gen_seq_start): that is fast with a few cgroups and takes
//! seconds with 100,000. So they are read before each command only if that is cheap, and otherwise
//! just often enough to leave most of the time to the commands. Slightly old data does no harm: the
//! kernel evicts nothing for the number of a generation that has gone, and the others have not
//! become less idle.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::generations::{self, Lru};
use crate::actuator::{Commands, lru_gen};
use crate::root::Root;

/// A reading that takes no longer is repeated each time.
const CHEAP: Duration = Duration::from_millis(5);
/// After a longer one, this many times its duration passes until the next.
const REST: u32 = 10;

/// See the module's description.
#[derive(Debug)]
pub(super) struct Survey {
    file: PathBuf,
    lists: Vec<Lru>,
    /// When the last reading ended, and its duration; `None` if it is outdated.
    read: Option<(Instant, Duration)>,
}

impl Survey {
    /// Creates an empty survey.
    pub(super) fn new(root: &Root) -> Survey {
        Survey { file: lru_gen(root), lists: Vec::new(), read: None }
    }

    /// Reads the generations.
    ///
    /// # Errors
    /// The file cannot be read; the last reading stays.
    pub(super) fn read(&mut self, commands: &Commands) -> io::Result<()> {
        let begin = Instant::now();
        self.lists = generations::parse(&commands.read(&self.file)?);
        let end = Instant::now();
        self.read = Some((end, end.duration_since(begin)));
        Ok(())
    }

    /// The last reading.
    pub(super) fn known(&self) -> &[Lru] {
        &self.lists
    }

    /// Marks the reading as outdated: it must be read again before use.
    pub(super) fn outdate(&mut self) {
        self.read = None;
    }

    /// The last reading, or a new one if it is due.
    ///
    /// # Errors
    /// As for [`read`](Survey::read).
    pub(super) fn recent(&mut self, commands: &Commands) -> io::Result<&[Lru]> {
        if self.read.is_none_or(|(at, took)| took <= CHEAP || at.elapsed() >= took * REST) {
            self.read(commands)?;
        }
        Ok(&self.lists)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::actuator::door::Door;

    /// A file that takes this long to read, and counts its readings.
    struct Slow(Duration, Arc<AtomicU64>);

    impl Door for Slow {
        fn read(&self, _: &Path) -> io::Result<String> {
            std::thread::sleep(self.0);
            let seq = self.1.fetch_add(1, Ordering::Relaxed);
            Ok(format!("memcg 1 /\n node 0\n {seq} 5 7 0\n"))
        }

        fn write(&mut self, _: &Path, _: &str) -> io::Result<()> {
            Ok(())
        }

        fn reaches_kernel(&self) -> bool {
            true
        }
    }

    /// How often the file is read for `commands` commands.
    fn readings(takes: Duration, commands: u64) -> u64 {
        let count = Arc::new(AtomicU64::new(0));
        let root = Root::at("/nonexistent");
        let door = Commands::with_door(&root, Box::new(Slow(takes, Arc::clone(&count))));
        let mut survey = Survey::new(&root);
        for _ in 0..commands {
            assert_eq!(survey.recent(&door).unwrap().len(), 1);
        }
        count.load(Ordering::Relaxed)
    }

    #[test]
    fn what_is_cheap_is_read_for_each_command_and_what_is_not_takes_a_share_of_the_time() {
        assert!(readings(Duration::ZERO, 20) >= 10, "a busy machine may take long for one");
        assert!(readings(Duration::from_millis(20), 1000) <= 2);
    }

    /// THERMOCLINE_SOAK cgroups on three nodes.
    #[test]
    fn of_many_cgroups_a_reading_costs_little() {
        let soak = std::env::var_os("THERMOCLINE_SOAK").is_some_and(|value| value == "1");
        let cgroups: usize = if soak { 100_000 } else { 2_000 };
        let generations: String = (0..4).map(|seq| format!(" {seq:10} {:10} 7 5x\n", 9000 - seq)).collect();
        let of_nodes: String = (0..3).map(|node| format!(" node {node:5}\n{generations}")).collect();
        let text = |n: usize| format!("memcg {n:5} /system.slice/service-{n}.service\n{of_nodes}");
        let text: String = (0..cgroups).map(text).collect();
        let begin = Instant::now();
        let lists = generations::parse(&text);
        let took = begin.elapsed();
        println!("{cgroups} cgroups, {} MiB: understood in {took:?}", text.len() >> 20);
        assert_eq!(lists.len(), 3 * cgroups);
        assert!(lists.iter().all(|lru| lru.generations.len() == 4 && lru.pages() == 48), "{:?}", lists[0]);
        assert!(!soak || took < Duration::from_secs(2), "{took:?}");
    }

    #[test]
    fn what_is_outdated_is_read_again() {
        let count = Arc::new(AtomicU64::new(0));
        let root = Root::at("/nonexistent");
        let slow = Slow(Duration::from_millis(20), Arc::clone(&count));
        let door = Commands::with_door(&root, Box::new(slow));
        let mut survey = Survey::new(&root);
        for _ in 0..3 {
            survey.read(&door).unwrap();
            survey.outdate();
            survey.recent(&door).unwrap();
        }
        assert_eq!(count.load(Ordering::Relaxed), 6);
        assert_eq!(survey.known()[0].generations[0].seq, 5);
    }
}
