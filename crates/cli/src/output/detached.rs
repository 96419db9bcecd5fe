//! A stream that a separate thread writes to, so that callers never wait.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of texts that wait to be written; further ones are dropped. At a line per second
/// this is a quarter of an hour.
const WAITING_MAX: usize = 1000;

/// State that the owner and the thread share.
#[derive(Debug, Default)]
struct Shared {
    counts: Mutex<Counts>,
    written: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    waiting: u64,
    /// Texts dropped since the queue was last empty.
    dropped: u64,
}

impl Shared {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream with its thread.
#[derive(Debug)]
pub struct Detached<T> {
    texts: SyncSender<T>,
    shared: Arc<Shared>,
}

impl<T: Send + 'static> Detached<T> {
    /// Starts a thread with that name, which calls `write` for each text. When the queue is empty
    /// again after texts were dropped, the thread reports their number on standard error.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(name: &str, write: impl FnMut(&T) + Send + 'static) -> std::io::Result<Detached<T>> {
        let (texts, waiting) = sync_channel(WAITING_MAX);
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || work(&waiting, &theirs, write))?;
        Ok(Detached { texts, shared })
    }

    /// Queues `text`, or drops it if the queue is full.
    pub fn put(&self, text: T) {
        let mut counts = self.shared.counts();
        match self.texts.try_send(text) {
            Ok(()) => counts.waiting += 1,
            Err(_) => counts.dropped += 1,
        }
    }

    /// Waits until everything is written, for at most `bound`.
    pub fn settle(&self, bound: Duration) {
        // If it takes longer, the rest is lost.
        drop(self.shared.written.wait_timeout_while(self.shared.counts(), bound, |c| c.waiting > 0));
    }
}

fn work<T>(texts: &Receiver<T>, shared: &Shared, mut write: impl FnMut(&T)) {
    for text in texts {
        write(&text);
        let mut counts = shared.counts();
        counts.waiting -= 1;
        let dropped = if counts.waiting == 0 { std::mem::take(&mut counts.dropped) } else { 0 };
        drop(counts);
        shared.written.notify_all();
        if dropped > 0 {
            crate::output::tell!("{dropped} texts were not written, because their reader did not keep up");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn who_says_something_never_waits_for_a_reader_that_has_stopped() {
        let (go, held) = sync_channel::<()>(0);
        // The writer is blocked until the test releases it.
        let stream = Detached::start("t", move |_: &String| {
            let _ = held.recv();
        })
        .unwrap();
        let begin = Instant::now();
        for _ in 0..3 * WAITING_MAX {
            stream.put("a line\n".to_owned());
        }
        stream.settle(Duration::from_millis(50));
        assert!(begin.elapsed() < Duration::from_secs(10));
        assert!(stream.shared.counts().dropped as usize >= 2 * WAITING_MAX - 1);
        drop(go);
    }

    #[test]
    fn all_is_written_in_order_before_the_end() {
        let (told, lines) = sync_channel(100);
        let stream = Detached::start("t", move |text: &String| {
            std::thread::sleep(Duration::from_millis(1));
            let _ = told.send(text.to_owned());
        })
        .unwrap();
        let said: Vec<String> = (0..50).map(|i| format!("{i}\n")).collect();
        said.iter().for_each(|text| stream.put(text.clone()));
        stream.settle(Duration::from_secs(60));
        assert_eq!(lines.try_iter().collect::<Vec<_>>(), said);
    }
}
