//! Which sampler this machine has.
//!
//! Everything is read from sysfs and /proc/cpuinfo, so that a folder can stand for a machine.

use thermocline_core::config::{HwSample, PebsSamples, SamplerName};

use crate::lists::parse_list;
use crate::root::{KernelFileError, Root, read_optional};

/// Longest period of IBS op: 27 bits, in steps of 16 (Linux 6.12 arch/x86/events/amd/ibs.c).
const IBS_PERIOD_MAX: u32 = 0x07ff_fff0;
/// Longest period requested from any other PMU.
const PERIOD_MAX: u32 = 0x07ff_ffff;

/// Intel family 6 models whose load-latency event needs an auxiliary leader, if sysfs does not show
/// it: Sapphire Rapids, Emerald Rapids, Alder Lake, Raptor Lake (Linux 6.12
/// arch/x86/events/intel/core.c: PMU_FL_MEM_LOADS_AUX; arch/x86/include/asm/intel-family.h).
/// Granite Rapids (0xad, 0xae) does without.
const AUX_LEADER_MODELS: [u32; 7] = [0x8f, 0xcf, 0x97, 0x9a, 0xb7, 0xba, 0xbf];

/// AMD's instruction-based sampling of micro-operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ibs {
    /// Its number.
    pub pmu_type: u32,
    /// It can drop samples that did not miss the L3 (Zen 4 and later).
    pub l3_miss_only: bool,
    /// The kernel can drop samples of the kernel itself.
    pub software_filter: bool,
}

/// What Intel's PEBS samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PebsEvent {
    /// Loads that missed the L3.
    L3Miss,
    /// Loads that took at least `cycles` cycles.
    LoadLatency {
        /// Least latency in CPU cycles.
        cycles: u16,
    },
}

/// Intel's precise event-based sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pebs {
    /// Number of the PMU (of the performance cores, where there are two kinds).
    pub pmu_type: u32,
    /// What is sampled.
    pub event: PebsEvent,
    /// Load latency needs an auxiliary leader here.
    pub aux_leader: bool,
}

/// Arm's statistical profiling extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spe {
    /// Its number.
    pub pmu_type: u32,
    /// Shortest period in operations.
    pub min_interval: u32,
    /// The CPUs that have it.
    pub cpus: Vec<u32>,
}

/// A sampler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pmu {
    /// AMD IBS.
    Ibs(Ibs),
    /// Intel PEBS.
    Pebs(Pebs),
    /// Arm SPE.
    Spe(Spe),
    /// The kernel's own page faults: no samples of accesses, but every machine has them.
    PageFaults,
}

/// Why there is no sampler.
#[derive(Debug, thiserror::Error)]
pub enum NoPmu {
    /// The machine has none.
    #[error("no IBS, PEBS or SPE here: a virtual machine without a PMU, or a processor without one of them")]
    None,
    /// An Arm processor without SPE's driver.
    #[error(
        "no SPE here: this Arm machine has no driver for it loaded; if the processor has SPE, modprobe arm_spe_pmu, and where that says that \
         the profiling buffer is inaccessible, boot with kpti=off"
    )]
    NoSpeDriver,
    /// The driver is present and found no SPE.
    #[error(
        "no SPE here: its driver is loaded and has found none; the firmware does not offer it, or the kernel keeps its page tables apart \
         (boot with kpti=off)"
    )]
    NoSpe,
    /// The machine does not have the one that is configured.
    #[error("this machine has no {0}; source.hwsample.sampler = \"auto\" takes what there is")]
    NotThis(&'static str),
    /// The lab's sampler is not a PMU, and only a build for the lab reads it.
    #[error(
        "lab-rings are the sampler of the lab's emulator; this thermocline was built without it (feature lab)"
    )]
    LabRings,
    /// A file of the kernel cannot be used.
    #[error(transparent)]
    File(#[from] KernelFileError),
}

impl Pmu {
    /// Its name in messages.
    pub const fn name(&self) -> &'static str {
        match self {
            Pmu::Ibs(_) => "AMD IBS",
            Pmu::Pebs(_) => "Intel PEBS",
            Pmu::Spe(_) => "Arm SPE",
            Pmu::PageFaults => "page faults",
        }
    }

    /// What it samples, in messages.
    pub fn samples(&self) -> String {
        match self {
            Pmu::Ibs(Ibs { l3_miss_only: true, .. }) => {
                "AMD IBS: micro-operations that missed the L3".to_owned()
            }
            Pmu::Ibs(_) => {
                "AMD IBS: micro-operations, most of them cache hits that are left out later".to_owned()
            }
            Pmu::Pebs(Pebs { event: PebsEvent::L3Miss, .. }) => {
                "Intel PEBS: loads that missed the L3".to_owned()
            }
            Pmu::Pebs(Pebs { event: PebsEvent::LoadLatency { cycles }, .. }) => {
                format!("Intel PEBS: loads that took {cycles} cycles or longer")
            }
            Pmu::Spe(spe) => format!("Arm SPE: loads and stores on {} CPUs", spe.cpus.len()),
            Pmu::PageFaults => "page faults, to try the way of a sample: no access is sampled".to_owned(),
        }
    }

    /// The period supported by the PMU that is nearest to `period`.
    pub fn nearest_period(&self, period: u32) -> u32 {
        match self {
            Pmu::Ibs(_) => (period & !0xf).clamp(16, IBS_PERIOD_MAX),
            Pmu::Pebs(_) | Pmu::PageFaults => period.clamp(1, PERIOD_MAX),
            Pmu::Spe(spe) => period.clamp(spe.min_interval.clamp(1, PERIOD_MAX), PERIOD_MAX),
        }
    }

    /// The CPUs among `online` that it samples.
    pub fn cpus(&self, online: &[u32]) -> Vec<u32> {
        match self {
            Pmu::Spe(spe) => online.iter().copied().filter(|cpu| spe.cpus.contains(cpu)).collect(),
            _ => online.to_vec(),
        }
    }
}

/// The sampler that the configuration asks for, or the one that the machine has.
///
/// # Errors
/// [`NoPmu`] where there is none.
pub fn choose(root: &Root, config: &HwSample) -> Result<Pmu, NoPmu> {
    let found = |pmu: Option<Pmu>, name| pmu.ok_or(NoPmu::NotThis(name));
    match config.sampler {
        SamplerName::Auto => {
            let hardware = match ibs(root)? {
                Some(pmu) => Some(pmu),
                None => match pebs(root, config)? {
                    Some(pmu) => Some(pmu),
                    None => spe(root)?,
                },
            };
            hardware.map_or_else(|| Err(none(root)), Ok)
        }
        SamplerName::Ibs => found(ibs(root)?, "AMD IBS"),
        SamplerName::Pebs => found(pebs(root, config)?, "Intel PEBS"),
        SamplerName::Spe => found(spe(root)?, "Arm SPE"),
        SamplerName::PageFaults => Ok(Pmu::PageFaults),
        SamplerName::LabRings => Err(NoPmu::LabRings),
    }
}

/// Why there is none: Arm's sampler needs a driver, which few distributions load automatically.
fn none(root: &Root) -> NoPmu {
    let arm = read_optional(&root.proc.join("cpuinfo"))
        .is_ok_and(|text| text.is_some_and(|text| text.contains("CPU implementer")));
    match (arm, crate::root::exists(&root.sys.join("module/arm_spe_pmu"))) {
        (false, _) => NoPmu::None,
        (true, false) => NoPmu::NoSpeDriver,
        (true, true) => NoPmu::NoSpe,
    }
}

/// A number in a file of a PMU's folder; `None` if the file is absent.
fn number(root: &Root, name: &str) -> Result<Option<u32>, KernelFileError> {
    let path = root.sys.join("bus/event_source/devices").join(name);
    let Some(text) = read_optional(&path)? else { return Ok(None) };
    match text.trim().parse() {
        Ok(value) => Ok(Some(value)),
        Err(_) => Err(KernelFileError::malformed(&path, format!("{:?} is no number", text.trim()))),
    }
}

fn exists(root: &Root, name: &str) -> bool {
    crate::root::exists(&root.sys.join("bus/event_source/devices").join(name))
}

fn ibs(root: &Root) -> Result<Option<Pmu>, KernelFileError> {
    let Some(pmu_type) = number(root, "ibs_op/type")? else { return Ok(None) };
    Ok(Some(Pmu::Ibs(Ibs {
        pmu_type,
        l3_miss_only: number(root, "ibs_op/caps/zen4_ibs_extensions")? == Some(1),
        software_filter: exists(root, "ibs_op/format/swfilt"),
    })))
}

fn pebs(root: &Root, config: &HwSample) -> Result<Option<Pmu>, KernelFileError> {
    // Processors with two kinds of cores have a PMU for each; only the performance cores have these
    // events.
    for device in ["cpu_core", "cpu"] {
        let Some(pmu_type) = number(root, &format!("{device}/type"))? else { continue };
        // A virtual machine may have the counters without precise sampling.
        let precise = number(root, &format!("{device}/caps/max_precise"))?.unwrap_or(0) >= 2;
        if !precise || !exists(root, &format!("{device}/format/ldlat")) {
            continue;
        }
        let aux_leader = exists(root, &format!("{device}/events/mem-loads-aux"))
            || model(root)?.is_some_and(|(family, model)| family == 6 && AUX_LEADER_MODELS.contains(&model));
        let event = match config.pebs_samples {
            PebsSamples::L3Miss => PebsEvent::L3Miss,
            PebsSamples::LoadLatency => PebsEvent::LoadLatency { cycles: config.load_latency_cycles },
        };
        return Ok(Some(Pmu::Pebs(Pebs { pmu_type, event, aux_leader })));
    }
    Ok(None)
}

fn spe(root: &Root) -> Result<Option<Pmu>, KernelFileError> {
    let Some(pmu_type) = number(root, "arm_spe_0/type")? else { return Ok(None) };
    let path = root.sys.join("bus/event_source/devices/arm_spe_0/cpumask");
    let text = read_optional(&path)?.unwrap_or_default();
    let cpus = parse_list(&text)
        .ok_or_else(|| KernelFileError::malformed(&path, format!("{:?} is no list of CPUs", text.trim())))?;
    let min_interval = number(root, "arm_spe_0/caps/min_interval")?.unwrap_or(1);
    Ok(Some(Pmu::Spe(Spe { pmu_type, min_interval, cpus })))
}

/// Family and model of the first processor of /proc/cpuinfo, if shown.
fn model(root: &Root) -> Result<Option<(u32, u32)>, KernelFileError> {
    let text = read_optional(&root.proc.join("cpuinfo"))?.unwrap_or_default();
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(name, _)| name.trim() == key).and_then(|(_, value)| value.trim().parse().ok())
    };
    Ok(value("cpu family").zip(value("model")))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Machine {
        dir: tempfile::TempDir,
    }

    impl Machine {
        fn new(files: &[(&str, &str)]) -> Machine {
            let machine = Machine { dir: tempfile::tempdir().unwrap() };
            for (name, text) in files {
                let folder =
                    if name.starts_with("cpuinfo") { "proc" } else { "sys/bus/event_source/devices" };
                let path = machine.dir.path().join(folder).join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            machine
        }

        fn chooses(&self, sampler: SamplerName) -> Result<Pmu, NoPmu> {
            let config = HwSample { sampler, ..HwSample::default() };
            choose(&Root::at(self.dir.path()), &config)
        }
    }

    #[test]
    fn a_zen_4_samples_l3_misses_and_an_older_one_everything() {
        let zen4 = Machine::new(&[("ibs_op/type", "11\n"), ("ibs_op/caps/zen4_ibs_extensions", "1\n")]);
        let expect = Ibs { pmu_type: 11, l3_miss_only: true, software_filter: false };
        assert_eq!(zen4.chooses(SamplerName::Auto).unwrap(), Pmu::Ibs(expect));
        let older = Machine::new(&[("ibs_op/type", "9\n"), ("ibs_op/format/swfilt", "config2:0\n")]);
        let expect = Ibs { pmu_type: 9, l3_miss_only: false, software_filter: true };
        assert_eq!(older.chooses(SamplerName::Ibs).unwrap(), Pmu::Ibs(expect));
    }

    fn intel(model: u32, more: &[(&'static str, &'static str)]) -> Pebs {
        let cpuinfo = format!("processor\t: 0\ncpu family\t: 6\nmodel\t\t: {model}\nmodel name\t: a Xeon\n");
        let mut files =
            vec![("cpuinfo", &*cpuinfo), ("cpu/type", "4\n"), ("cpu/format/ldlat", "config1:0-15\n")];
        files.push(("cpu/caps/max_precise", "3\n"));
        files.extend(more);
        match Machine::new(&files).chooses(SamplerName::Auto).unwrap() {
            Pmu::Pebs(pebs) => pebs,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn sapphire_and_emerald_rapids_need_the_leader_and_granite_rapids_does_not() {
        for (model, leader) in [(0x8f, true), (0xcf, true), (0xad, false), (0xae, false), (0x6a, false)] {
            assert_eq!(intel(model, &[]).aux_leader, leader, "model {model:#x}");
        }
        let told = intel(0x6a, &[("cpu/events/mem-loads-aux", "event=0x03,umask=0x82\n")]);
        assert!(told.aux_leader, "what the kernel itself says counts");
        assert_eq!((told.pmu_type, told.event), (4, PebsEvent::L3Miss));
    }

    #[test]
    fn counters_without_precise_sampling_are_no_sampler() {
        let machine = Machine::new(&[
            ("cpu/type", "4\n"),
            ("cpu/format/ldlat", "config1:0-15\n"),
            ("cpu/caps/max_precise", "0\n"),
        ]);
        assert!(matches!(machine.chooses(SamplerName::Auto), Err(NoPmu::None)));
        let error = machine.chooses(SamplerName::Pebs).unwrap_err().to_string();
        assert!(error.starts_with("this machine has no Intel PEBS"), "{error}");
        assert_eq!(machine.chooses(SamplerName::PageFaults).unwrap(), Pmu::PageFaults);
    }

    #[test]
    fn spe_covers_the_cpus_that_it_names() {
        let arm = Machine::new(&[
            ("arm_spe_0/type", "8\n"),
            ("arm_spe_0/cpumask", "0-2,5\n"),
            ("arm_spe_0/caps/min_interval", "1024\n"),
        ]);
        let pmu = arm.chooses(SamplerName::Auto).unwrap();
        assert_eq!(pmu, Pmu::Spe(Spe { pmu_type: 8, min_interval: 1024, cpus: vec![0, 1, 2, 5] }));
        assert_eq!(pmu.cpus(&[1, 2, 3, 5]), [1, 2, 5]);
        assert_eq!(pmu.nearest_period(16), 1024);
    }

    #[test]
    fn a_type_that_is_no_number_is_told_with_its_file() {
        let broken = Machine::new(&[("ibs_op/type", "eleven\n")]);
        let error = broken.chooses(SamplerName::Auto).unwrap_err().to_string();
        assert!(error.ends_with("ibs_op/type: \"eleven\" is no number"), "{error}");
    }

    #[test]
    fn ibs_periods_are_multiples_of_16_within_27_bits() {
        let ibs = Pmu::Ibs(Ibs { pmu_type: 1, l3_miss_only: true, software_filter: false });
        assert_eq!([0, 17, 10_000, u32::MAX].map(|p| ibs.nearest_period(p)), [16, 16, 10_000, 0x07ff_fff0]);
    }
}
