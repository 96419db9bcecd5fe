//! The kinds of findings, declared once: the doctor, the daemon, the metrics and the book use this
//! list.

use serde::{Serialize, Serializer};
use thermocline_core::label::Label;

use super::Severity;

/// Declares the kinds: variant, name, the severities that it may have (the usual one first), and by
/// whom it is found.
macro_rules! kinds {
    ($( $(#[doc = $doc:literal])+ $variant:ident = $name:literal, [$($severity:ident),+], $seen:ident; )*) => {
        /// What a finding is about.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $( $(#[doc = $doc])+ $variant, )*
        }

        impl Kind {
            /// What a finding of this kind means.
            pub fn meaning(self) -> String {
                match self {
                    $( Kind::$variant => [ $( $doc ),+ ].map(str::trim).join(" "), )*
                }
            }

            /// The severities that it may have, the usual one first.
            pub const fn severities(self) -> &'static [Severity] {
                match self {
                    $( Kind::$variant => &[ $( Severity::$severity ),+ ], )*
                }
            }

            /// By whom it is found.
            pub const fn seen_by(self) -> SeenBy {
                match self {
                    $( Kind::$variant => SeenBy::$seen, )*
                }
            }
        }

        impl Label for Kind {
            const ALL: &'static [Kind] = &[ $( Kind::$variant ),* ];

            fn name(self) -> &'static str {
                match self {
                    $( Kind::$variant => $name, )*
                }
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

/// By whom a finding is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenBy {
    /// The doctor: it holds for a start, or cannot change while thermocline runs.
    Doctor,
    /// The running daemon: it takes figures that only the daemon has.
    Daemon,
    /// Both.
    Both,
}

impl Kind {
    /// The usual severity.
    pub const fn severity(self) -> Severity {
        self.severities()[0]
    }

    /// The kinds that begin and end while thermocline runs.
    pub fn while_running() -> impl Iterator<Item = Kind> {
        Kind::ALL.iter().copied().filter(|kind| kind.seen_by() != SeenBy::Doctor)
    }
}

impl PartialEq<&str> for Kind {
    fn eq(&self, name: &&str) -> bool {
        self.name() == *name
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

kinds! {
    /// One node with memory: nothing to tier, but `record` can watch it.
    TopologySingleNode = "topology.single_node", [Blocker, Note], Doctor;
    /// All nodes in one tier: nothing to promote to, but `record` can watch it.
    TopologyOneTier = "topology.one_tier", [Blocker, Note], Doctor;
    /// Thermocline's own cpuset leaves out nodes, and the kernel allocates what moves on behalf of
    /// the caller; a blocker where it is the whole top tier: `run` refuses to start.
    TopologyClosed = "topology.closed", [Problem, Blocker], Doctor;
    /// The nodes cannot be read, or `[tiers]` does not fit them.
    TopologyUnreadable = "topology.unreadable", [Blocker], Doctor;
    /// `[tiers]` puts nodes below the top that the kernel counts as top tier: these give no hint
    /// faults.
    TopologyNotScanned = "topology.not_scanned", [Problem], Doctor;
    /// A node is more than 1.3 times slower than the fastest of its tier.
    TopologySlowInTier = "topology.slow_in_tier", [Note], Doctor;
    /// A node of a higher tier has a longer latency than one of a lower tier, and no more
    /// bandwidth.
    TopologyLatencyContradicts = "topology.latency_contradicts", [Problem], Doctor;
    /// A node of a higher tier is farther from CPUs than one of a lower tier, and no latencies are
    /// reported: a GPU's memory may look like this.
    TopologyDistanceContradicts = "topology.distance_contradicts", [Problem], Doctor;
    /// Nodes that `tiers.exclude` leaves out.
    TopologyExcluded = "topology.excluded", [Note], Doctor;
    /// Base pages of another size than 4 KiB: memory is shown as large as it is, and `run` refuses
    /// to start.
    TopologyPageSize = "topology.page_size", [Blocker], Doctor;
    /// The files do not show the size of base pages, and 4 KiB is assumed.
    TopologyPageSizeUnknown = "topology.page_size_unknown", [Note], Doctor;
    /// There are tiers, and no source of evidence can be used.
    SourcesNone = "sources.none", [Blocker], Doctor;
    /// A source that the configuration insists on cannot be used, though another could: `run` would
    /// end at once.
    SourcesRefused = "sources.refused", [Blocker], Doctor;
    /// A source is on and gave nothing for a minute, although programs ran and lower tiers hold
    /// memory; a problem where the kernel did not even scan for hint faults.
    SourcesSilent = "sources.silent", [Note, Problem], Daemon;
    /// A hundredth or more of a source's evidence was lost in the last minute.
    SourcesLossy = "sources.lossy", [Problem], Daemon;
    /// The hard limit of open files is too low for what the sampler opens: one for each CPU, two on
    /// some of Intel's (`LimitNOFILE`).
    PermissionsDescriptors = "permissions.descriptors", [Blocker], Doctor;
    /// Capabilities that this process lacks.
    PermissionsMissing = "permissions.missing", [Problem], Doctor;
    /// A setting that `run` changes cannot be written.
    PermissionsReadOnly = "permissions.read_only", [Problem], Doctor;
    /// Inside a container's user namespace.
    PermissionsUserNamespace = "permissions.user_namespace", [Problem], Doctor;
    /// The kernel refuses to move a page of thermocline's own, as under the default seccomp profile
    /// of containers.
    PermissionsMovePages = "permissions.move_pages", [Blocker], Doctor;
    /// The kernel is locked down and refuses BPF programs.
    PermissionsLockdown = "permissions.lockdown", [Problem], Doctor;
    /// The kernel moves pages towards the CPU that uses them, beside thermocline, or will.
    OthersNumaBalancing = "others.numa_balancing", [Problem], Both;
    /// DAMON moves or reclaims pages, and thermocline has not set it up.
    OthersDamon = "others.damon", [Problem], Both;
    /// DAMON_STAT watches memory, so that thermocline cannot use DAMON, which the configuration
    /// asks for.
    OthersDamonStat = "others.damon_stat", [Problem], Both;
    /// Another daemon that moves pages.
    OthersDaemon = "others.daemon", [Problem], Both;
    /// Another thermocline is running.
    OthersThermocline = "others.thermocline", [Note], Doctor;
    /// A process other than thermocline holds the lock: `run` and `restore` are refused.
    OthersLock = "others.lock", [Problem], Doctor;
    /// A killed thermocline left settings behind: `thermocline restore`.
    OthersNotRestored = "others.not_restored", [Problem], Doctor;
    /// A kernel setting that a running thermocline has made has another value.
    SettingsChanged = "settings.changed", [Problem], Both;
    /// The manager that the configuration chooses cannot work here.
    ManagerRefused = "manager.refused", [Blocker], Doctor;
    /// Nothing has moved for a minute although there was something to do, with the reason.
    MovesStuck = "moves.stuck", [Problem], Daemon;
    /// `kernel.numa_balancing` is 0 by choice, with the files that say so, and would be changed for
    /// every process.
    ChoicesNumaBalancing = "choices.numa_balancing", [Problem], Doctor;
    /// Virtual machines hold half of the memory or more.
    ChoicesGuests = "choices.guests", [Note], Doctor;
    /// Process numbers here differ from the kernel's: `--pid=host`.
    PidNamespace = "pid_namespace", [Blocker], Doctor;
    /// Memory below the top tier that gives no hint faults; a problem from 10 % of the lower tiers.
    MemoryBlind = "memory.blind", [Note, Problem], Both;
    /// A node has so much free memory that the kernel promotes to it on its own.
    MemoryFreeSpacePromotion = "memory.free_space_promotion", [Note], Doctor;
    /// A dax device that is not part of the machine's memory.
    MemoryDevdax = "memory.devdax", [Note], Doctor;
    /// CXL memory that belongs to no region.
    MemoryCxlNoRegion = "memory.cxl_no_region", [Note], Doctor;
    /// Memory blocks that are offline.
    MemoryOffline = "memory.offline", [Note], Doctor;
    /// A node of the top tier is full, and its watermarks have kswapd stop before there is room for
    /// a promotion, while nothing else makes room.
    PromotionWatermarks = "promotion.watermarks", [Problem], Both;
    /// Pages would be demoted by the node, however long they have been idle.
    DemotionByNode = "demotion.by_node", [Note], Doctor;
    /// Generations cannot be asked, as in a kernel that is locked down, so that cold regions are
    /// demoted by DAMON.
    DemotionByRegions = "demotion.by_regions", [Note], Doctor;
    /// kswapd has given up on a node of the top tier (`node_unreclaimable` in zoneinfo); `run`
    /// tries to bring it back.
    DemotionGivenUp = "demotion.given_up", [Problem], Both;
    /// Nothing would be demoted, or is, and why.
    DemotionNone = "demotion.none", [Note], Both;
    /// The kernel's demotion, which thermocline relies on, has been switched off.
    DemotionUndone = "demotion.undone", [Problem], Both;
    /// A scan setting is out of reach and stays as the kernel has it.
    KernelScanSettings = "kernel.scan_settings", [Note], Doctor;
    /// Scopes limit what is moved, not what the kernel scans.
    ScopeScannedGlobally = "scope.scanned_globally", [Note], Doctor;
    /// A scope cannot be used: it names nothing, or a cgroup where cgroup v2 is not mounted.
    ScopeRefused = "scope.refused", [Blocker], Doctor;
    /// A scope names a cgroup that is not there, or one of version 1.
    ScopeNoCgroup = "scope.no_cgroup", [Problem], Both;
    /// Programs whose cpusets leave out the whole top tier: nothing of theirs can be promoted.
    ScopeConfined = "scope.confined", [Note], Doctor;
    /// Programs most of whose memory is on one DRAM node while most of their threads run on
    /// another.
    ProgramsAway = "programs.away", [Note], Doctor;
    /// Half or more of what a scope has below the top tier gives no hint faults, and they are the
    /// only source of evidence.
    ScopeBlind = "scope.blind", [Problem], Both;
    /// The file of pods cannot be used: the last good one stays in force, and without one nothing
    /// is managed.
    PodsUnreadable = "pods.unreadable", [Problem], Daemon;
    /// Pods whose annotations count for nothing, or not as they are written, and why.
    PodsLeftOut = "pods.left_out", [Problem], Daemon;
    /// What a scope with a floor or a cap holds of the top tier.
    ScopeTopTier = "scope.top_tier", [Note], Doctor;
    /// What a scope holds of the top tier cannot be read, so that neither its floor nor its cap is
    /// kept and nothing moves by it.
    ScopeTopTierUnknown = "scope.top_tier_unknown", [Problem], Doctor;
    /// The scopes' floors together are more than the top tier has.
    ScopeFloorsTooLarge = "scope.floors_too_large", [Problem], Doctor;
    /// The scopes' shares together are more than the top tier has beside what promotions leave free
    /// and what never moves, so that the last part of them can never come.
    ScopeSharesOutOfReach = "scope.shares_out_of_reach", [Problem], Doctor;
    /// The kernel's own demotion is on, or will be, and knows no floors; a problem without consent.
    ScopeFloorAndKernel = "scope.floor_and_kernel", [Note, Problem], Doctor;
    /// A scope is `never_slow`, and its cpuset lets the kernel allocate its memory on lower tiers,
    /// or demote it there.
    ScopeMayBeSlow = "scope.may_be_slow", [Problem], Doctor;
    /// A cgroup is at its `memory.high` or `memory.max`, which count all tiers together: the kernel
    /// demotes its pages from the top tier, and that does not bring it below its limit.
    CgroupAtLimit = "cgroup.at_limit", [Problem], Both;
    /// `memory.low` or `memory.min`, which count all tiers together, protect all that a cgroup has:
    /// kswapd demotes nothing of it.
    CgroupProtected = "cgroup.protected", [Note], Both;
    /// Memory pressure (PSI) cannot be read, so that the brake knows ping-pong alone.
    BrakeNoPressure = "brake.no_pressure", [Note], Both;
    /// A file that could not be read.
    Unreadable = "unreadable", [Note], Doctor;
}
