//! How long tasks of each scope have waited for memory: pressure stall information (PSI).
//!
//! A scope by cgroup is read from its cgroup's `memory.pressure`, which includes the subtree; a
//! scope that names only processes, and everything if no scope is configured, from the machine's.
//! Reading sums over the CPUs (Linux 6.12 kernel/sched/psi.c, psi_show), which updates the totals.

use std::path::PathBuf;

use thermocline_core::access::Pressure;
use thermocline_core::config;
use thermocline_core::units::{Nanos, ScopeId};

use crate::root::{KernelFileError, Root, read_optional};
use crate::scope::cgroup;

/// The pressure file of each scope.
#[derive(Clone, Debug, Default)]
pub struct Pressures {
    scopes: Vec<Told>,
}

#[derive(Clone, Debug)]
struct Told {
    scope: ScopeId,
    /// The cgroup's folder; `None` for the machine.
    folder: Option<PathBuf>,
    file: PathBuf,
}

impl Pressures {
    /// For the scopes whose memory may move.
    ///
    /// # Errors
    /// The mount table cannot be read.
    pub fn new(root: &Root, scopes: &[config::Scope]) -> Result<Pressures, KernelFileError> {
        let mount = cgroup::mount(root)?;
        let machine = |scope| Told { scope, folder: None, file: root.proc.join("pressure/memory") };
        let managed = scopes.iter().enumerate().filter(|(_, scope)| !scope.exclude);
        let told = |(place, scope): (usize, &config::Scope)| {
            let id = ScopeId::of_place(place);
            let path = scope.cgroup.as_deref().map(cgroup::normal).filter(|path| path != "/");
            let Some((mount, path)) = mount.as_deref().zip(path) else { return machine(id) };
            let folder = cgroup::folder(mount, &path);
            Told { scope: id, file: folder.join("memory.pressure"), folder: Some(folder) }
        };
        let mut scopes: Vec<Told> = managed.map(told).collect();
        if scopes.is_empty() {
            scopes.push(machine(ScopeId::DEFAULT));
        }
        Ok(Pressures { scopes })
    }

    /// The present pressure of each scope. A cgroup that does not exist has none.
    pub fn read(&self, now: Nanos) -> impl Iterator<Item = Result<Pressure, KernelFileError>> {
        self.scopes.iter().filter_map(move |told| told.read(now).transpose())
    }
}

impl Told {
    fn read(&self, now: Nanos) -> Result<Option<Pressure>, KernelFileError> {
        match read_optional(&self.file) {
            Ok(Some(text)) => {
                let [some_us, full_us] = parse(&text).ok_or_else(|| {
                    KernelFileError::malformed(
                        &self.file,
                        "no totals of some and full, as in `some ... total=0`",
                    )
                })?;
                return Ok(Some(Pressure { scope: self.scope, time: now, some_us, full_us }));
            }
            Ok(None) => {}
            // Linux 6.12 kernel/sched/psi.c, psi_show: switched off while the file is open.
            Err(KernelFileError::Io { cause, .. }) if cause.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
        match &self.folder {
            Some(folder) if !crate::root::exists(folder) => Ok(None),
            Some(_) => {
                let remedy = "echo 1 > cgroup.pressure there, and boot without cgroup_disable=pressure";
                Err(KernelFileError::not_supported("the memory pressure of this cgroup", &self.file, remedy))
            }
            None => {
                let remedy = "boot with psi=1 a kernel that has CONFIG_PSI; Debian's have it";
                Err(KernelFileError::not_supported("memory pressure (PSI)", &self.file, remedy))
            }
        }
    }
}

/// The totals of the lines that begin with `some` and with `full`, in µs.
fn parse(text: &str) -> Option<[u64; 2]> {
    let total = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))?;
        line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
    };
    Some([total("some")?, total("full")?])
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    const TEXT: &str = "some avg10=1.53 avg60=0.42 avg300=0.10 total=58341\nfull avg10=0.00 avg60=0.10 avg300=0.05 total=7\n";

    fn scope(cgroup: Option<&str>, exclude: bool) -> config::Scope {
        let pids = if cgroup.is_none() { vec![1] } else { Vec::new() };
        config::Scope { cgroup: cgroup.map(str::to_owned), exclude, pids, ..config::Scope::default() }
    }

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(pressures: &Pressures) -> Vec<Result<(u16, u64, u64), String>> {
        let told = pressures.read(Nanos(9)).map(|p| p.map_err(|error| error.to_string()));
        told.map(|p| p.map(|p| (p.scope.0, p.some_us, p.full_us))).collect()
    }

    #[test]
    fn scopes_are_told_by_cgroup_and_the_rest_by_machine() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        write(&root.proc.join("self/mounts"), "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        write(&root.proc.join("pressure/memory"), &TEXT.replace("58341", "99999"));
        write(&root.sys.join("fs/cgroup/a/b/memory.pressure"), TEXT);
        assert_eq!(read(&Pressures::new(&root, &[]).unwrap()), [Ok((0, 99_999, 7))]);
        let scopes = [
            scope(Some("/x"), true),
            scope(Some("/a/b/"), false),
            scope(None, false),
            scope(Some("/later"), false),
            scope(Some("/"), false),
        ];
        let pressures = Pressures::new(&root, &scopes).unwrap();
        assert_eq!(read(&pressures), [Ok((2, 58_341, 7)), Ok((3, 99_999, 7)), Ok((5, 99_999, 7))]);
        let exclusions = Pressures::new(&root, &scopes[..1]).unwrap();
        assert_eq!(read(&exclusions), [Ok((0, 99_999, 7))], "everything else is the default scope");
    }

    #[test]
    fn what_is_not_measured_is_named_with_its_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let why =
            |scopes: &[config::Scope]| read(&Pressures::new(&root, scopes).unwrap()).remove(0).unwrap_err();
        assert!(why(&[]).contains("does not offer memory pressure (PSI)") && why(&[]).contains("psi=1"));
        write(&root.proc.join("self/mounts"), "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        fs::create_dir_all(root.sys.join("fs/cgroup/a")).unwrap();
        assert!(
            why(&[scope(Some("/a"), false)])
                .contains("a/memory.pressure is absent; echo 1 > cgroup.pressure")
        );
        write(&root.sys.join("fs/cgroup/a/memory.pressure"), "some total=1\n");
        assert!(why(&[scope(Some("/a"), false)]).contains("no totals"));
    }

    #[test]
    fn only_totals_are_read() {
        assert_eq!(parse(TEXT), Some([58_341, 7]));
        for text in
            ["", "some total=\nfull total=1", "some total=-1\nfull total=1", "someone total=1\nfull total=1"]
        {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
