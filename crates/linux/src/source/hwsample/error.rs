//! Why accesses cannot be sampled, and what would help.

use std::io;

use super::pmu::NoPmu;
use crate::root::KernelFileError;

/// Why accesses cannot be sampled.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no sampler.
    #[error(transparent)]
    NoPmu(#[from] NoPmu),
    /// The kernel does not permit it.
    #[error(
        "{pmu} on all CPUs is not permitted ({cause}); it needs CAP_PERFMON, or kernel.perf_event_paranoid of -1"
    )]
    NotPermitted {
        /// The sampler.
        pmu: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The kernel or the PMU does not know the event.
    #[error(
        "this kernel or this {pmu} does not offer the event ({cause}); source.hwsample.sampler can name another"
    )]
    NotOffered {
        /// The sampler.
        pmu: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// Somebody else samples.
    #[error("{pmu} is in use by somebody else ({cause}); end other profilers")]
    InUse {
        /// The sampler.
        pmu: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// It failed otherwise.
    #[error("{pmu}: cannot {action} on CPU {cpu}: {cause}")]
    Failed {
        /// The sampler.
        pmu: &'static str,
        /// "open the event", "map the ring", "start sampling".
        action: &'static str,
        /// The CPU.
        cpu: u32,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A file of the kernel cannot be used.
    #[error(transparent)]
    File(#[from] KernelFileError),
}

impl OpenError {
    /// What the kernel's answer means when `action` failed on `cpu`.
    pub(super) fn failed(pmu: &'static str, action: &'static str, cpu: u32, cause: io::Error) -> OpenError {
        let opening = action == "open the event";
        match cause.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) if opening => OpenError::NotPermitted { pmu, cause },
            Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENOSYS) if opening => {
                OpenError::NotOffered { pmu, cause }
            }
            Some(libc::EBUSY | libc::ENOSPC) if opening => OpenError::InUse { pmu, cause },
            _ => OpenError::Failed { pmu, action, cpu, cause },
        }
    }
}
