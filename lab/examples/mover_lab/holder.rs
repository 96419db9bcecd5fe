//! A process that holds pages, started on a node of our choice.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Signal, kill_process};
use thermocline_core::units::{NodeId, PAGE_SHIFT, Pid};

use crate::machine::{Checked, Machine, ensure};

/// A run of `lab/workloads/pages.c`; killed when dropped.
pub(crate) struct Holder {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    cgroup: PathBuf,
    /// Its first page.
    pub(crate) vpn: u64,
    /// Its base pages.
    pub(crate) pages: u64,
}

impl Holder {
    /// Starts it in a cgroup of its own that allows one node only, so that its pages lie there
    /// without a mempolicy.
    pub(crate) fn start_confined(machine: &Machine, kind: &str, count: u64, node: NodeId) -> Checked<Holder> {
        let cgroup = PathBuf::from(format!("/sys/fs/cgroup/{kind}-on-{}", node.0));
        if !cgroup.exists() {
            fs::create_dir(&cgroup)?;
        }
        fs::write(cgroup.join("cpuset.mems"), node.0.to_string())?;
        let enter = format!("echo 0 >{}/cgroup.procs && exec \"$0\" \"$@\"", cgroup.display());
        let mut child = Command::new("/bin/sh")
            .args(["-c", &enter])
            .arg(&machine.pages)
            .args([kind, &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().ok_or("no standard input")?;
        let stdout = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        let mut holder = Holder { child, stdin, stdout, cgroup, vpn: 0, pages: 0 };
        let line = holder.line()?;
        let ready: Vec<&str> = line.split(' ').collect();
        let ["ready", address, pages] = ready[..] else { return Err(format!("said {line:?}").into()) };
        holder.vpn = u64::from_str_radix(address.trim_start_matches("0x"), 16)? >> PAGE_SHIFT;
        holder.pages = pages.parse()?;
        let nodes = machine.nodes(holder.pid(), holder.vpn, holder.pages)?;
        ensure!(nodes.iter().all(|&n| n == Some(node)), "its pages do not start on {node}");
        Ok(holder)
    }

    /// Starts it on a node and then allows all nodes.
    pub(crate) fn start(machine: &Machine, kind: &str, count: u64, node: NodeId) -> Checked<Holder> {
        let holder = Holder::start_confined(machine, kind, count, node)?;
        holder.widen()?;
        Ok(holder)
    }

    /// Allows all nodes.
    pub(crate) fn widen(&self) -> Checked<()> {
        Ok(fs::write(self.cgroup.join("cpuset.mems"), "0-2")?)
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// The address of its first page.
    pub(crate) fn address(&self) -> u64 {
        self.vpn << PAGE_SHIFT
    }

    /// Fails unless every page holds what it should.
    pub(crate) fn check(&mut self) -> Checked<()> {
        self.ask("check")
    }

    /// Lets it end its pins.
    pub(crate) fn let_go(&mut self) -> Checked<()> {
        self.ask("let go")
    }

    pub(crate) fn signal(&self, signal: Signal) -> Checked<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        Ok(kill_process(pid, signal)?)
    }

    /// Kills it and waits until its number is free.
    pub(crate) fn end(mut self) -> Checked<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn ask(&mut self, what: &str) -> Checked<()> {
        writeln!(self.stdin, "{what}")?;
        let answer = self.line()?;
        ensure!(answer == "ok", "asked to {what}, it said {answer:?}");
        Ok(())
    }

    fn line(&mut self) -> Checked<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may have ended already, which is all that is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
