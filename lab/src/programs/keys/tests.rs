//! The load against real servers.

use std::collections::HashSet;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use super::*;

#[test]
fn values_are_of_the_asked_size_and_of_their_key_alone() {
    let mut seen = HashSet::new();
    for key in 0..10_000 {
        let (short, longer) = (value(key, 13), value(key, 700));
        assert_eq!((short.len(), longer.len()), (13, 700));
        assert!(longer.starts_with(&short));
        assert!(seen.insert(short), "{key}");
    }
}

#[test]
fn addresses() {
    assert_eq!(parse_address("127.0.0.1:6379").unwrap(), ("127.0.0.1".to_owned(), 6379));
    assert!(parse_address("localhost").is_err());
    assert!(parse_address("localhost:99999").is_err());
}

/// A server on a port of its own, killed at the end.
struct Running(Child, u16);

impl Running {
    /// `None` if it is not installed.
    fn start(server: Server) -> Option<Running> {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let text = port.to_string();
        let (program, words) = match server {
            Server::Redis => (
                "redis-server",
                vec!["--port", &text, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
            ),
            Server::Memcached => ("memcached", vec!["-p", &text, "-l", "127.0.0.1", "-U", "0", "-u", "root"]),
        };
        let child = match Command::new(program).args(words).stdout(Stdio::null()).spawn() {
            Ok(child) => child,
            Err(error) => {
                println!("skipped: {program} cannot be run: {error}");
                return None;
            }
        };
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(30), "{program} does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Running(child, port))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn loads_reads_verifies_and_notices_what_is_wrong(server: Server, remove: impl FnOnce(&Target, &str)) {
    let Some(running) = Running::start(server) else { return };
    let address = ("127.0.0.1".to_owned(), running.1);
    let target = Target { server, address, keys: 1000, value_bytes: 100, connections: 3, pipeline: 7 };
    let reading = Reading {
        zipf: 0.99,
        distribution: Distribution::Zipfian,
        seconds: Some(1),
        ops: None,
        every: Duration::from_millis(200),
        seed: 5,
        draws: 5,
    };
    let go = || Arc::new(AtomicBool::new(false));
    let mut out = Vec::new();
    let loaded = load(&target, go(), &mut out).unwrap();
    loaded.check().unwrap();
    assert_eq!(loaded.ops, 1000);
    let read = run(&target, &reading, go(), &mut out).unwrap();
    read.check().unwrap();
    assert!(read.ops > 100, "{read:?}");
    assert!(String::from_utf8(out).unwrap().lines().any(|line| line.starts_with(r#"{"event":"interval""#)));
    let counted = Reading { seconds: None, ops: Some(500), distribution: Distribution::Latest, ..reading };
    let counted = run(&target, &counted, go(), &mut Vec::new()).unwrap();
    assert!((500..500 + 3 * 7).contains(&counted.ops), "{counted:?}");
    let verified = verify(&target, go(), &mut Vec::new()).unwrap();
    assert_eq!((verified.ops, verified.check().is_ok()), (1000, true));

    connect(&target).unwrap().set(&[(name(17), b"other".to_vec())]).unwrap();
    remove(&target, &name(18));
    let verified = verify(&target, go(), &mut Vec::new()).unwrap();
    assert_eq!((verified.ops, verified.wrong, verified.errors), (998, 2, 0));
    assert!(verified.check().is_err());

    drop(running);
    let read = run(&target, &reading, go(), &mut Vec::new()).unwrap();
    assert!(read.errors > 0 && read.ops == 0 && read.check().is_err(), "{read:?}");
}

#[test]
fn redis_is_loaded_read_and_verified() {
    loads_reads_verifies_and_notices_what_is_wrong(Server::Redis, |target, name| {
        let client = ::redis::Client::open(target.address.clone()).unwrap();
        ::redis::cmd("DEL").arg(name).query::<()>(&mut client.get_connection().unwrap()).unwrap();
    });
}

#[test]
fn clients_keep_their_connections_from_one_reading_to_the_next() {
    let Some(running) = Running::start(Server::Memcached) else { return };
    let address = ("127.0.0.1".to_owned(), running.1);
    let target = Target {
        server: Server::Memcached,
        address,
        keys: 100,
        value_bytes: 10,
        connections: 3,
        pipeline: 7,
    };
    let go = || Arc::new(AtomicBool::new(false));
    load(&target, go(), &mut Vec::new()).unwrap().check().unwrap();
    let connections = || -> u64 {
        let mut stream = TcpStream::connect((target.address.0.as_str(), target.address.1)).unwrap();
        stream.write_all(b"stats\r\nquit\r\n").unwrap();
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
        let line = answer.lines().find_map(|line| line.strip_prefix("STAT total_connections "));
        line.unwrap().trim().parse().unwrap()
    };
    let mut clients = Clients::new(&target);
    let mut read = || {
        let reading = Reading {
            zipf: 0.99,
            distribution: Distribution::Zipfian,
            seconds: None,
            ops: Some(50),
            every: Duration::from_secs(1),
            seed: 5,
            draws: 5,
        };
        clients.run(&reading, go(), &mut Vec::new()).unwrap().check().unwrap();
    };
    let before = connections();
    // Chance decides which clients read anything before the others have read everything.
    let readings = 10;
    (0..readings).for_each(|_| read());
    // The check afterwards is a connection too.
    let opened = connections() - before - 1;
    assert!((1..=u64::from(target.connections)).contains(&opened), "{opened} in {readings} readings");
}

#[test]
fn memcached_is_loaded_read_and_verified() {
    loads_reads_verifies_and_notices_what_is_wrong(Server::Memcached, |target, name| {
        let mut stream = TcpStream::connect((target.address.0.as_str(), target.address.1)).unwrap();
        write!(stream, "delete {name}\r\nquit\r\n").unwrap();
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
        assert_eq!(answer, "DELETED\r\n");
    });
}
