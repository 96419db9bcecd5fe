//! What a scrape costs, and what a crowd of clients does to the engine's loop in the same process.
//!
//! The loop is measured in turns: alone, and under attack by clients in a process and session of
//! their own, on another processor. It takes time and a quiet machine:
//! `THERMOCLINE_SOAK=1 cargo test --release -p thermocline --bin thermocline attack -- --nocapture`

use std::convert::Infallible;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use thermocline_core::access::{Access, Detail, Evidence, NoMappings};
use thermocline_core::config::Config;
use thermocline_core::driver::Driver;
use thermocline_core::engine::Engine;
use thermocline_core::machine::Machine;
use thermocline_core::moves::Batch;
use thermocline_core::topology::{Node, NodeState, Topology};
use thermocline_core::units::{Nanos, NodeId, Pfn, Pid, TierId, VirtPage};
use thermocline_linux::machine::now;

use super::MetricsServer;
use crate::metrics::tests::everything;
use crate::snapshot::{Latest, Snapshot};

/// Longest scrape, and its longest text.
const SCRAPE_MAX: Duration = Duration::from_millis(5);
const SCRAPE_BYTES_MAX: usize = 256 << 10;
/// Least pace of the loop under attack, as a share of its pace alone.
const PACE_MIN: f64 = 0.99;
/// How much memory the attack may cost.
const GROWTH_MAX_BYTES: u64 = 16 << 20;
/// Connections that are held.
const HELD: usize = 200;
/// Threads that ask one request after the other.
const ASKERS: usize = 4;
/// Time of one turn, and how many of them there are under attack and without.
const TURN: Duration = Duration::from_secs(2);
const TURNS: usize = 12;
/// Time between two steps of the loop, and the accesses that each brings.
const STEP: Duration = Duration::from_millis(1);
const ACCESSES: u64 = 1000;
/// Pages that are accessed.
const PAGES: u64 = 1 << 20;

/// A machine that reports as many accesses at each poll.
struct Steady {
    at: u64,
}

impl Steady {
    /// An access to the next page of a sequence in no order.
    fn next(&mut self, time: Nanos) -> Access {
        self.at = self.at.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        let vpn = (self.at >> 32) % PAGES;
        Access {
            time,
            pfn: Some(Pfn(PAGES + vpn)),
            page: Some(VirtPage { pid: Pid(7), vpn }),
            order: 0,
            node: NodeId(1),
            accessor: Some(NodeId(0)),
            detail: Detail::HintFault { latency: None },
        }
    }
}

impl Machine for Steady {
    type Error = Infallible;

    fn poll(&mut self, now: Nanos, _: bool, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<(), Infallible> {
        let batch: Vec<Access> = (0..ACCESSES).map(|_| self.next(now)).collect();
        observe(Evidence::Accesses { batch: &batch, mappings: &NoMappings });
        Ok(())
    }

    fn nodes(&mut self, _: &mut dyn FnMut(Evidence<'_>)) -> Result<&[NodeState], Infallible> {
        Ok(&[])
    }

    fn submit(&mut self, _: Vec<Batch>) {}
}

/// Two nodes, of which the second is slow.
fn topology() -> Topology {
    let node = |id: u16| Node {
        id: NodeId(id),
        tier: TierId(id as u8),
        cpus: vec![id.into()],
        capacity_pages: PAGES,
        read_latency_ns: None,
        read_bandwidth_mbps: None,
        distances: vec![10, 20],
    };
    Topology::new(vec![node(0), node(1)]).expect("two nodes with distances")
}

/// What the loop has done so far.
#[derive(Clone, Copy, Default)]
struct Done {
    steps: u64,
    cpu_ns: u64,
}

/// The loop, and what it tells.
#[derive(Default)]
struct Loop {
    stop: AtomicBool,
    steps: AtomicU64,
    cpu_ns: AtomicU64,
}

impl Loop {
    /// Steps an engine at a steady pace and publishes snapshots, as the daemon does.
    fn turn(&self, latest: &Latest) {
        on_processor(0);
        let config = Config::default();
        let mut driver = Driver::new(Engine::new(&config, topology()).expect("an engine"), &config);
        let (mut machine, start) = (Steady { at: 1 }, Instant::now());
        let (mut due, mut publish) = (start, start);
        while !self.stop.load(Relaxed) {
            let Ok(_) = driver.step(now(), &mut machine);
            if Instant::now() >= publish {
                latest.publish(snapshot());
                publish += Duration::from_secs(1);
            }
            self.steps.fetch_add(1, Relaxed);
            let time = clock_gettime(ClockId::ThreadCPUTime);
            self.cpu_ns.store(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64, Relaxed);
            // A step that is late is not made up for: that is what its pace shows.
            due = (due + STEP).max(Instant::now());
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }

    fn done(&self) -> Done {
        Done { steps: self.steps.load(Relaxed), cpu_ns: self.cpu_ns.load(Relaxed) }
    }

    /// Steps a second, and processor time of a step in ns, over one turn.
    fn pace(&self) -> (f64, f64) {
        let (before, start) = (self.done(), Instant::now());
        std::thread::sleep(TURN);
        let (after, took) = (self.done(), start.elapsed());
        let steps = (after.steps - before.steps) as f64;
        (steps / took.as_secs_f64(), (after.cpu_ns - before.cpu_ns) as f64 / steps)
    }
}

/// Eight nodes and 64 scopes.
fn snapshot() -> Snapshot {
    let mut snapshot = everything();
    let engine = snapshot.engine.as_mut().expect("the engine decides");
    engine.scopes.truncate(64);
    engine.brakes.truncate(64);
    snapshot
}

/// Keeps this thread on a processor, if there is more than one.
fn on_processor(number: usize) {
    let mut set = CpuSet::new();
    set.set(number);
    let _ = sched_setaffinity(None, &set);
}

/// Sends a request and reads the whole response; its length.
fn scrape(address: SocketAddr) -> std::io::Result<usize> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text)
}

/// Asks again and again on one connection, which is opened anew where it has ended, until told to
/// stop.
fn scrape_on(address: SocketAddr, stop: &AtomicBool, answered: &AtomicU64) {
    while !stop.load(Relaxed) {
        let Ok(stream) = TcpStream::connect(address) else { continue };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let mut stream = BufReader::with_capacity(256 << 10, stream);
        while !stop.load(Relaxed) && scrape_again(&mut stream).is_ok() {
            answered.fetch_add(1, Relaxed);
        }
    }
}

/// Asks once more on a connection, and reads the response.
fn scrape_again(stream: &mut BufReader<TcpStream>) -> std::io::Result<()> {
    stream.get_mut().write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let (mut line, mut length) = (String::new(), 0);
    loop {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim_end().parse().unwrap_or(0);
        }
        if line == "\r\n" {
            break;
        }
    }
    let read = std::io::copy(&mut stream.take(length), &mut std::io::sink())?;
    if read == length && length > 1000 { Ok(()) } else { Err(ErrorKind::InvalidData.into()) }
}

/// The variable that makes the test below a crowd of clients of the address that is its value.
const CROWD: &str = "THERMOCLINE_CROWD_OF";

/// A crowd of clients in a process of its own.
struct Crowd(Child);

impl Crowd {
    fn start(address: SocketAddr) -> Crowd {
        let program = std::env::current_exe().expect("this program has a path");
        let child = Command::new("setsid")
            .arg("--wait")
            .arg(program)
            .args(["--exact", "daemon::http::attack::crowd", "--nocapture"])
            .env(CROWD, address.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("setsid is there");
        Crowd(child)
    }

    /// How many requests were answered.
    fn end(mut self) -> f64 {
        drop(self.0.stdin.take());
        let output = self.0.wait_with_output().expect("it ends");
        let told = String::from_utf8_lossy(&output.stdout);
        let answered = told.lines().find_map(|line| line.strip_prefix("answered "));
        answered.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("the crowd told nothing: {told}"))
    }
}

/// Holds connections that send nothing, half a request, a byte from time to time or nonsense, or
/// that do not read, and asks for as many pages as the server gives, until its input ends.
#[test]
fn crowd() {
    let Ok(address) = std::env::var(CROWD) else { return };
    let address = address.parse().expect("an address");
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    on_processor(1);
    std::thread::scope(|scope| {
        scope.spawn(|| hold(address, &stop));
        for _ in 0..ASKERS {
            scope.spawn(|| scrape_on(address, &stop, &answered));
        }
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stop.store(true, Relaxed);
    });
    println!("\nanswered {}", answered.load(Relaxed));
}

fn hold(address: SocketAddr, stop: &AtomicBool) {
    let says = ["", "GET /metrics HTTP/1.1\r\n", "G", "\u{1}\u{2}\u{3}", "GET /metrics HTTP/1.1\r\n\r\n"];
    let mut held: Vec<Option<TcpStream>> = (0..HELD).map(|_| None).collect();
    while !stop.load(Relaxed) {
        for (n, place) in held.iter_mut().enumerate() {
            if place.as_mut().is_none_or(|stream| stream.write_all(b"x").is_err()) {
                *place = TcpStream::connect(address).ok();
                place.iter_mut().for_each(|s| drop(s.write_all(says[n % says.len()].as_bytes())));
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Resident memory of this process.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux tells of every process");
    let pages = text.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("the second field is the resident set") * rustix::param::page_size() as u64
}

#[test]
fn the_loop_keeps_its_pace_under_attack_and_a_scrape_is_cheap() {
    if std::env::var_os("THERMOCLINE_SOAK").is_none() {
        println!("skipped: it measures, which takes a quiet machine; make soak does");
        return;
    }
    let latest = Latest::default();
    latest.publish(snapshot());
    let server = MetricsServer::listen("127.0.0.1:0", None, latest.clone(), Arc::default()).expect("a port");
    let address = server.address.expect("an address");

    // Each scrape is the first of its snapshot, which is rendered for it.
    let (mut times, mut bytes) = (Vec::new(), 0);
    for _ in 0..200 {
        latest.publish(snapshot());
        let start = Instant::now();
        bytes = scrape(address).expect("a response");
        times.push(start.elapsed().as_secs_f64());
        // Within the server's share of a processor.
        std::thread::sleep(Duration::from_millis(20));
    }
    let scrape_s = median(&mut times);
    println!(
        "a scrape of 8 nodes and 64 scopes: {:.2} ms, the slowest of 200 {:.2} ms, {} KiB",
        scrape_s * 1e3,
        times[199] * 1e3,
        bytes >> 10
    );

    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let alone = std::thread::scope(|scope| {
        scope.spawn(|| scrape_on(address, &stop, &answered));
        let (before, start) = (answered.load(Relaxed), Instant::now());
        std::thread::sleep(TURN);
        let rate = (answered.load(Relaxed) - before) as f64 / start.elapsed().as_secs_f64();
        stop.store(true, Relaxed);
        rate
    });
    println!("one client on one connection: {alone:.0} scrapes/s");

    let looped = Loop::default();
    let (mut pace_ratios, mut cost_ratios, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let (mut alone_bytes, mut attacked_bytes) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| looped.turn(&latest));
        // The engine's records are allocated.
        std::thread::sleep(2 * TURN);
        for _ in 0..TURNS {
            let (alone, cost_alone) = looped.pace();
            alone_bytes = if alone_bytes == 0 { resident_bytes() } else { alone_bytes };
            let (crowd, start) = (Crowd::start(address), Instant::now());
            let (attacked, cost_attacked) = looped.pace();
            attacked_bytes = attacked_bytes.max(resident_bytes());
            let took = start.elapsed().as_secs_f64();
            rates.push(crowd.end() / took);
            pace_ratios.push(attacked / alone);
            cost_ratios.push(cost_attacked / cost_alone);
        }
        looped.stop.store(true, Relaxed);
    });
    let (pace, cost, rate) = (median(&mut pace_ratios), median(&mut cost_ratios), median(&mut rates));
    let grown = attacked_bytes.saturating_sub(alone_bytes);
    println!("under attack by {HELD} held connections and {rate:.0} scrapes/s:");
    println!("  pace of the loop      {pace:.4} of its pace alone ({pace_ratios:.4?})");
    println!("  cost of a step        {cost:.4} of its cost alone");
    println!("  resident memory       {} KiB more", grown >> 10);
    assert!(scrape_s <= SCRAPE_MAX.as_secs_f64() && bytes <= SCRAPE_BYTES_MAX);
    assert!(pace >= PACE_MIN, "{pace}");
    assert!(grown <= GROWTH_MAX_BYTES, "{grown}");
}
