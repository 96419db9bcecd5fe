//! BPF programs that watch NUMA hint faults, and their loader.
