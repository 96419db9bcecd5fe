//! Tests of the metrics server with clients of all kinds.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use thermocline_core::units::Nanos;
use thermocline_linux::machine::now;

use super::{CLIENTS_MAX, MetricsServer};
use crate::daemon::pulse::Pulse;
use crate::snapshot::{Latest, Snapshot};

fn server(latest: &Latest, pulse: &Arc<Pulse>) -> SocketAddr {
    let server =
        MetricsServer::listen("127.0.0.1:0", None, latest.clone(), Arc::clone(pulse)).expect("a free port");
    server.address.expect("an address")
}

/// Sends `text` and returns everything that comes back.
fn asked(address: SocketAddr, text: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(text).unwrap();
    let mut answer = Vec::new();
    // A server that closes the connection early resets it. What was received before that counts.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn get(address: SocketAddr, path: &str) -> String {
    asked(address, format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
}

#[test]
fn metrics_health_and_nothing_else_are_served() {
    let (latest, pulse) = (Latest::default(), Arc::new(Pulse::default()));
    let address = server(&latest, &pulse);
    assert!(get(address, "/metrics").starts_with("HTTP/1.1 503 "), "before the first snapshot");
    latest.publish(Snapshot::for_tests());
    let text = get(address, "/metrics");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{text}");
    assert!(text.contains("\nthermocline_uptime_seconds 4\n"), "{text}");
    assert!(text.ends_with("thermocline_loop_late_seconds 0\n"), "{text}");
    let open = "GET /metrics HTTP/1.0\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n";
    let open = asked(address, open.as_bytes());
    assert!(open.contains("Content-Type: application/openmetrics-text") && open.ends_with("# EOF\n"));
    let head = asked(address, b"HEAD /metrics HTTP/1.0\r\n\r\n");
    assert!(head.ends_with("\r\n\r\n") && !head.contains("Content-Length: 0"), "{head}");
    assert!(get(address, "/").contains("/metrics"));
    assert!(get(address, "/-/healthy").starts_with("HTTP/1.1 200 "));
    pulse.promise(Nanos(now().0.saturating_sub(Nanos::from_s(5).0)));
    assert!(get(address, "/-/healthy").starts_with("HTTP/1.1 503 "));
    for (request, status) in [
        ("GET /secret HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("nonsense\r\n\r\n", "400"),
        ("\0\u{1}\u{2}\r\n\r\n", "400"),
    ] {
        assert!(
            asked(address, request.as_bytes()).starts_with(&format!("HTTP/1.1 {status} ")),
            "{request:?}"
        );
    }
    let wide = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(64 << 10));
    assert!(asked(address, wide.as_bytes()).starts_with("HTTP/1.1 431 "));
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(1000));
    assert!(asked(address, many.as_bytes()).starts_with("HTTP/1.1 431 "));
}

#[test]
fn requests_in_a_row_are_answered_on_one_connection() {
    let (latest, pulse) = (Latest::default(), Arc::new(Pulse::default()));
    let address = server(&latest, &pulse);
    let row = "GET /-/healthy HTTP/1.1\r\n\r\n".repeat(99) + "GET /-/healthy HTTP/1.0\r\n\r\n";
    let answer = asked(address, row.as_bytes());
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 100, "{answer}");
    assert_eq!(answer.matches("Connection: close\r\n").count(), 1, "{answer}");
    assert!(answer.ends_with("\r\n\r\nhealthy\n"), "{answer}");
}

/// Connections that the server has closed.
fn closed(connections: &[TcpStream]) -> usize {
    let is_closed = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        !stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    connections.iter().filter(|stream| is_closed(stream)).count()
}

#[test]
fn crowds_that_send_nothing_or_little_hold_nobody_up() {
    let (latest, pulse) = (Latest::default(), Arc::new(Pulse::default()));
    let address = server(&latest, &pulse);
    latest.publish(Snapshot::for_tests());
    // Nothing, half a request, one that goes on and on, and nonsense that never ends its line.
    let says = ["", "GET /metrics HTTP/1.1\r\n", "GET /metrics HTTP/1.1\r\nX: ", "\u{1}\u{2}\u{fffd}"];
    let mut crowd: Vec<TcpStream> = Vec::new();
    for n in 0..200 {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(says[n % says.len()].as_bytes()).unwrap();
        crowd.push(stream);
        assert!(n % 20 != 19 || get(address, "/metrics").starts_with("HTTP/1.1 200 "), "after {n}");
    }
    // As many as may be connected, and a hundred that take the places of the first.
    crowd.extend((crowd.len()..CLIENTS_MAX + 100).map(|_| TcpStream::connect(address).unwrap()));
    assert!(get(address, "/metrics").starts_with("HTTP/1.1 200 "));
    assert!(closed(&crowd) >= 100, "the server keeps all of them");
    // Some of them go on slowly, which gives them no more time.
    let end = Instant::now() + Duration::from_secs(20);
    while closed(&crowd) < crowd.len() {
        assert!(Instant::now() < end, "{} hold the server for good", crowd.len() - closed(&crowd));
        crowd.iter().for_each(|mut stream| drop(stream.write(b"x")));
        std::thread::sleep(Duration::from_millis(100));
        assert!(get(address, "/-/healthy").starts_with("HTTP/1.1 200 "));
    }
}

#[test]
fn clients_that_keep_their_connections_leave_room_for_others() {
    let (latest, pulse) = (Latest::default(), Arc::new(Pulse::default()));
    let address = server(&latest, &pulse);
    latest.publish(Snapshot::for_tests());
    let mut crowd = Vec::new();
    for _ in 0..CLIENTS_MAX + 50 {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /-/healthy HTTP/1.1\r\n\r\n").unwrap();
        let mut head = [0; 15];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200 OK");
        crowd.push(stream);
    }
    assert!(get(address, "/metrics").starts_with("HTTP/1.1 200 "));
    // Who says nothing more for two seconds is left.
    std::thread::sleep(Duration::from_millis(2500));
    for stream in &mut crowd {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).map_err(|error| {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "the server keeps it");
        });
    }
}

#[test]
fn nonsense_is_refused_and_the_next_one_served() {
    let (latest, pulse) = (Latest::default(), Arc::new(Pulse::default()));
    let address = server(&latest, &pulse);
    let mut noise = Pcg32::seed_from_u64(11);
    for _ in 0..200 {
        let length = noise.next_u32() % 12_000;
        let mut bytes: Vec<u8> = (0..length).map(|_| noise.next_u32() as u8).collect();
        bytes.extend_from_slice(b"\r\n\r\n");
        let answer = asked(address, &bytes);
        let refused = answer.starts_with("HTTP/1.1 400 ") || answer.starts_with("HTTP/1.1 431 ");
        assert!(refused, "{length} bytes of noise: {answer}");
    }
    assert!(get(address, "/-/healthy").starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_unix_socket_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s/metrics.sock");
    let latest = Latest::default();
    latest.publish(Snapshot::for_tests());
    let address = path.to_str().unwrap();
    let server = MetricsServer::listen(address, None, latest, Arc::default()).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("thermocline_info{"), "{answer}");
    drop(server);
    assert!(!path.exists());
}

#[test]
fn what_cannot_be_listened_on_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = MetricsServer::listen(&address, None, Latest::default(), Arc::default()).unwrap_err();
    assert!(format!("{error:#}").contains("metrics.listen: cannot listen on 127.0.0.1:"), "{error:#}");
}
