//! Reports the top-tier holdings of scopes with a floor or a cap to the engine.
//!
//! The kernel sums them up on request, over all CPUs and cgroups below, and cannot be interrupted:
//! on a machine with 100,000 cgroups that takes longer than the loop may wait. So a thread reads
//! them, and a late answer is reported if it is still valid.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use thermocline_core::access::{Evidence, Holding};
use thermocline_core::topology::Topology;

use super::{MachineError, now};
use crate::root::KernelFileError;
use crate::scope::Holdings;

/// How long the loop waits for an answer.
const PATIENCE: Duration = Duration::from_millis(10);

type Told = Vec<Result<Holding, KernelFileError>>;

/// See the module's description.
#[derive(Debug)]
pub(super) struct Stock {
    /// `None` if no scope has a floor or a cap.
    thread: Option<Thread>,
    /// Why a scope's holding could not be read last time.
    why: Option<String>,
}

#[derive(Debug)]
struct Thread {
    ask: SyncSender<Topology>,
    told: Receiver<Told>,
    /// An answer is pending.
    asked: bool,
    /// Pages have moved that the pending answer may not include.
    outdated: bool,
}

impl Stock {
    /// Starts the thread, if there is anything to read.
    pub(super) fn new(holdings: Holdings) -> Result<Stock, MachineError> {
        if holdings.is_empty() {
            return Ok(Stock { thread: None, why: None });
        }
        Stock::of(move |topology| holdings.read(topology, now()).collect())
    }

    fn of(mut look: impl FnMut(&Topology) -> Told + Send + 'static) -> Result<Stock, MachineError> {
        let (ask, asked) = sync_channel::<Topology>(1);
        let (tell, told) = sync_channel(1);
        let work = move || {
            for topology in asked {
                if tell.send(look(&topology)).is_err() {
                    break;
                }
            }
        };
        std::thread::Builder::new().name("stock".to_owned()).spawn(work).map_err(MachineError::Thread)?;
        Ok(Stock { thread: Some(Thread { ask, told, asked: false, outdated: false }), why: None })
    }

    /// Marks a pending answer as older than a reported outcome.
    pub(super) fn outdate(&mut self) {
        if let Some(thread) = &mut self.thread {
            thread.outdated = thread.asked;
        }
    }

    /// Reports the holdings, and returns why something cannot be read, once.
    pub(super) fn tell(
        &mut self,
        topology: &Topology,
        mut observe: impl FnMut(Evidence<'_>),
    ) -> Option<String> {
        let found = self.thread.as_mut()?.look(topology)?;
        let mut why = None;
        for holding in found {
            match holding {
                Ok(holding) => observe(Evidence::Holding(holding)),
                Err(error) => why = Some(error.to_string()),
            }
        }
        let news = why.clone().filter(|_| why != self.why);
        self.why = why;
        news
    }
}

impl Thread {
    /// The present holdings; `None` if there is no answer yet.
    fn look(&mut self, topology: &Topology) -> Option<Told> {
        loop {
            if !self.asked {
                if self.ask.try_send(topology.clone()).is_err() {
                    return Some(gone());
                }
                (self.asked, self.outdated) = (true, false);
            }
            match self.told.recv_timeout(PATIENCE) {
                Ok(told) => {
                    self.asked = false;
                    if !self.outdated {
                        return Some(told);
                    }
                }
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => return Some(gone()),
            }
        }
    }
}

fn gone() -> Told {
    let cause = io::Error::other("the thread that reads it has ended");
    vec![Err(KernelFileError::io("read", Path::new("memory.numa_stat"), cause))]
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::time::Instant;

    use thermocline_core::topology::Node;
    use thermocline_core::units::{Nanos, NodeId, ScopeId, TierId};

    use super::*;

    fn topology() -> Topology {
        let node = Node {
            id: NodeId(0),
            tier: TierId(0),
            cpus: vec![0],
            capacity_pages: 1,
            read_latency_ns: None,
            read_bandwidth_mbps: None,
            distances: vec![10],
        };
        Topology::new(vec![node]).unwrap()
    }

    /// A stock whose figures come when the test sends them.
    fn stock() -> (Sender<u64>, Stock) {
        let (pages, figures) = channel();
        let look = move |_: &Topology| {
            let pages = figures.recv().unwrap();
            vec![Ok(Holding { scope: ScopeId(1), time: Nanos(0), pages })]
        };
        (pages, Stock::of(look).unwrap())
    }

    fn told(stock: &mut Stock) -> Option<u64> {
        let mut pages = None;
        let news = stock.tell(&topology(), |evidence| match evidence {
            Evidence::Holding(holding) => pages = Some(holding.pages),
            other => panic!("{other:?}"),
        });
        assert_eq!(news, None);
        pages
    }

    fn until_told(stock: &mut Stock) -> u64 {
        let begin = Instant::now();
        loop {
            if let Some(pages) = told(stock) {
                return pages;
            }
            assert!(begin.elapsed() < Duration::from_secs(20));
        }
    }

    #[test]
    fn a_figure_that_is_late_is_waited_for_elsewhere_and_told_later() {
        let (pages, mut stock) = stock();
        let begin = Instant::now();
        for _ in 0..5 {
            assert_eq!(told(&mut stock), None);
        }
        assert!(begin.elapsed() < Duration::from_secs(2));
        pages.send(7).unwrap();
        assert_eq!(until_told(&mut stock), 7);
        assert_eq!(told(&mut stock), None);
    }

    #[test]
    fn a_figure_that_an_outcome_has_made_old_is_never_told() {
        let (pages, mut stock) = stock();
        // No answer is pending that could be outdated.
        stock.outdate();
        assert_eq!(told(&mut stock), None);
        stock.outdate();
        pages.send(7).unwrap();
        pages.send(5).unwrap();
        assert_eq!(until_told(&mut stock), 5);
    }

    #[test]
    fn where_no_scope_has_a_floor_nothing_is_told() {
        assert_eq!(told(&mut Stock::new(Holdings::default()).unwrap()), None);
    }
}
