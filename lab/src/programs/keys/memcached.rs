//! The part of memcached's text protocol that a load needs: available clients do not pipeline
//! commands, and emulated round trips are slow.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};

use anyhow::{Context, bail, ensure};

use super::{Session, TIMEOUT};

/// The longest line of an answer, bytes.
const LINE_MAX: u64 = 1024;
/// The largest value accepted, bytes: the largest that a server can be configured for.
const VALUE_MAX: usize = 1 << 30;

/// A connection.
pub(super) struct Memcached {
    answers: BufReader<TcpStream>,
}

impl Memcached {
    pub(super) fn connect(address: &(String, u16)) -> anyhow::Result<Memcached> {
        let address = (address.0.as_str(), address.1).to_socket_addrs()?.next();
        let stream = TcpStream::connect_timeout(&address.context("the host has no address")?, TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Memcached { answers: BufReader::new(stream) })
    }

    fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(self.answers.get_mut().write_all(bytes)?)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.answers.by_ref().take(LINE_MAX).read_line(&mut line)?;
        Ok(line
            .strip_suffix("\r\n")
            .with_context(|| format!("the answer breaks off at {line:?}"))?
            .to_owned())
    }
}

impl Session for Memcached {
    fn set(&mut self, pairs: &[(String, Vec<u8>)]) -> anyhow::Result<()> {
        let mut commands = Vec::new();
        for (name, value) in pairs {
            write!(commands, "set {name} 0 0 {}\r\n", value.len())?;
            commands.extend_from_slice(value);
            commands.extend_from_slice(b"\r\n");
        }
        self.send(&commands)?;
        for (name, _) in pairs {
            let answer = self.line()?;
            ensure!(answer == "STORED", "set {name}: {answer}");
        }
        Ok(())
    }

    fn get(&mut self, names: &[String]) -> anyhow::Result<Vec<Option<Vec<u8>>>> {
        self.send(format!("get {}\r\n", names.join(" ")).as_bytes())?;
        let mut values = vec![None; names.len()];
        // Values arrive in the order of the keys, without missing ones.
        let mut next = 0;
        loop {
            let line = self.line()?;
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["END"] => return Ok(values),
                ["VALUE", name, _flags, bytes] => {
                    let at = names[next..].iter().position(|n| n == name);
                    let at = next + at.with_context(|| format!("{name} was not asked for"))?;
                    let bytes: usize = bytes.parse().with_context(|| line.clone())?;
                    ensure!(bytes <= VALUE_MAX, "a value of {bytes} bytes");
                    let mut value = vec![0; bytes + 2];
                    self.answers.read_exact(&mut value)?;
                    value.truncate(bytes);
                    values[at] = Some(value);
                    next = at + 1;
                }
                _ => bail!("get: {line}"),
            }
        }
    }
}
