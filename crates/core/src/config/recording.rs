//! The section of the recording that the daemon makes by itself.

use crate::config::names::AbsolutePath;
use crate::config::schema::Any;
use crate::section;

section! {
    /// `[recording]`: what `run` records all the time, as long as Thermocline manages or observes:
    /// for `thermocline report --last`. `--record` takes its place.
    Recording {
        /// Record.
        enabled: bool = false, "", Any("true or false"), "ours", restart;
        /// Folder of the recordings. Each start makes one in it, of its own name; the one before is
        /// kept, older ones are removed.
        folder: String = "/var/lib/thermocline/recordings".to_owned(), "path", AbsolutePath, "ours", restart;
        /// Size on disk of a recording at which its oldest part is removed.
        max_size_mib: u64 = 512, "MiB", 1..=1_048_576, "ours", restart;
        /// Age at which a part of a recording is removed.
        keep_h: u32 = 24, "hours", 1..=8760, "ours", restart;
        /// Record no process numbers, addresses, commands and names.
        private: bool = false, "", Any("true or false"), "ours", restart;
    }
}
