//! How many file descriptors a run holds open: a sampler takes one or two for each CPU, so machines
//! with some hundreds of CPUs reach the usual soft limit of 1024.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thermocline_core::config::{Config, Enabled};

use crate::root::Root;
use crate::source::hwsample;

/// Descriptors of everything except the sampler, with a margin: maps and programs of BPF, sockets,
/// files that are read in turn.
const BESIDE_SAMPLER: u64 = 256;

/// Why there cannot be enough descriptors.
#[derive(Debug, thiserror::Error)]
pub enum TooFewDescriptors {
    /// Only an administrator may raise the hard limit.
    #[error(
        "{needed} file descriptors are needed for the sources that are switched on, and the limit is {hard}: raise it with \
         LimitNOFILE={needed} in the unit, or `ulimit -Hn {needed}`, or switch source.hwsample off"
    )]
    Hard {
        /// Descriptors needed.
        needed: u64,
        /// The most that this process may ask for.
        hard: u64,
    },
    /// The kernel did not raise the soft limit.
    #[error("the limit of file descriptors cannot be raised to {needed}: {cause}")]
    Refused {
        /// Descriptors needed.
        needed: u64,
        /// The kernel's answer.
        cause: std::io::Error,
    },
}

/// Descriptors that a run with `config` may hold open on the machine at `root`.
pub fn needed(root: &Root, config: &Config) -> u64 {
    let samples = config.source.hwsample.enabled != Enabled::No && !config.manager.name.is_of_kernel();
    let sampler = if samples { hwsample::descriptors(root, &config.source.hwsample) } else { 0 };
    BESIDE_SAMPLER.saturating_add(sampler)
}

/// Whether a hard limit is enough for `needed`; without a limit everything is.
///
/// # Errors
/// It is not.
pub fn check(needed: u64, hard: Option<u64>) -> Result<(), TooFewDescriptors> {
    match hard {
        Some(hard) if hard < needed => Err(TooFewDescriptors::Hard { needed, hard }),
        _ => Ok(()),
    }
}

/// Ensures that this process may hold `needed` descriptors open: raises the soft limit if it is
/// lower.
///
/// # Errors
/// The hard limit is lower too, or the kernel refuses.
pub fn ensure(needed: u64) -> Result<(), TooFewDescriptors> {
    let limit = getrlimit(Resource::Nofile);
    check(needed, limit.maximum)?;
    if limit.current.is_none_or(|soft| soft >= needed) {
        return Ok(());
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), ..limit })
        .map_err(|cause| TooFewDescriptors::Refused { needed, cause: cause.into() })
}

/// The hard limit in the text of `/proc/PID/limits`; `None` if there is none or it cannot be
/// determined.
pub fn hard_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hard_limit_is_read_and_unlimited_is_none() {
        let of = |text: &str| hard_limit(&format!("Limit  Soft Limit  Hard Limit  Units\n{text}\n"));
        assert_eq!(
            of("Max open files            1024                 524288               files"),
            Some(524_288)
        );
        assert_eq!(of("Max open files            1024                 unlimited            files"), None);
        assert_eq!(hard_limit(""), None);
    }

    #[test]
    fn what_the_hard_limit_does_not_allow_is_refused_with_the_remedy() {
        assert!(check(2000, Some(2000)).is_ok() && check(2000, None).is_ok());
        let refused = check(2000, Some(1024)).unwrap_err().to_string();
        assert!(refused.contains("LimitNOFILE=2000"), "{refused}");
    }

    /// In a separate process, since the limit belongs to the process.
    #[test]
    fn the_soft_limit_is_raised_to_what_is_needed() {
        const CHILD: &str = "THERMOCLINE_TEST_DESCRIPTORS";
        if std::env::var_os(CHILD).is_none() {
            let me = std::env::current_exe().unwrap();
            let name = "descriptors::tests::the_soft_limit_is_raised_to_what_is_needed";
            let run = std::process::Command::new(me).args(["--exact", name]).env(CHILD, "1").status();
            assert!(run.unwrap().success());
            return;
        }
        let limit = getrlimit(Resource::Nofile);
        setrlimit(
            Resource::Nofile,
            Rlimit { current: Some(100), maximum: limit.maximum.map(|m| m.min(400)).or(Some(400)) },
        )
        .unwrap();
        let open = |count: usize| -> std::io::Result<Vec<std::fs::File>> {
            (0..count).map(|_| std::fs::File::open("/dev/null")).collect()
        };
        assert!(open(200).is_err());
        ensure(300).unwrap();
        assert_eq!(open(200).unwrap().len(), 200);
        ensure(200).unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current, Some(300), "it is never lowered");
        assert!(matches!(ensure(401), Err(TooFewDescriptors::Hard { needed: 401, hard: 400 })));
    }
}
