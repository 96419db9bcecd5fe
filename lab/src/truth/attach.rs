//! Loads the plugin into a guest.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Layout, LayoutError};
use crate::{GuestBuilder, Machine};

/// The device by which programs in the guest reach the plugin.
pub const GUEST_PORT: &str = "/dev/virtio-ports/lab.plugin";

/// Why the plugin cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The machine is larger than the plugin supports.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A driver adds the guest's slow nodes.
    #[error(
        "on this line of kernels slow nodes have the memory of devices, which the miss counter does not know: choose \
         another line"
    )]
    Devices,
    /// make or the compiler could not be run.
    #[error("cannot run `make -C {0}`: {1}; install make and gcc")]
    NoMake(PathBuf, io::Error),
    /// It did not compile.
    #[error("`make -C {folder}` failed: {message}")]
    Build {
        /// The plugin's sources.
        folder: PathBuf,
        /// Output of make and the compiler.
        message: String,
    },
}

/// The plugin's socket on the host, for a guest that has the plugin in `folder`.
pub fn host_socket(folder: &Path) -> PathBuf {
    folder.join("misses.sock")
}

/// Memory of the sampler's rings, KiB.
const RINGS_KIB: u64 = 1024;

/// Shows the sampler's rings to the guest as a device's memory ([`GuestBuilder::shared_memory`]),
/// backed by a file in `folder`. Returns the argument for the plugin, to pass to [`attach`].
pub fn offer_samples(guest: GuestBuilder, folder: &Path) -> (GuestBuilder, String) {
    let path = folder.join("samples");
    let argument = format!("ring={},ring-kib={RINGS_KIB}", path.display());
    (guest.shared_memory(path, RINGS_KIB << 10), argument)
}

/// Builds the plugin if necessary and loads it into `guest`, which will boot `machine`.
///
/// Its socket ([`host_socket`]) and its page dumps go to `folder`, whose path must be short (a Unix
/// socket's has at most 107 bytes) and free of commas. The guest reaches it at [`GUEST_PORT`].
/// `more` are further arguments of the plugin, such as `cache-kib=1024`.
///
/// # Errors
/// [`AttachError`].
pub fn attach(
    guest: GuestBuilder,
    machine: &Machine,
    folder: &Path,
    more: &[&str],
) -> Result<GuestBuilder, AttachError> {
    if guest.has_devices() {
        return Err(AttachError::Devices);
    }
    let layout = Layout::of_machine(machine)?;
    let (socket, port) = (host_socket(folder), folder.join("guest.sock"));
    let mut plugin = format!(
        "{},{},socket={},guest={},dir={}",
        build()?.display(),
        layout.argument(),
        socket.display(),
        port.display(),
        folder.display()
    );
    for argument in more {
        plugin.push(',');
        plugin.push_str(argument);
    }
    Ok(guest.plugin(plugin).plugin_socket(port))
}

/// Builds the plugin if it is out of date, and returns its path.
///
/// # Errors
/// [`AttachError::NoMake`] and [`AttachError::Build`].
pub fn build() -> Result<PathBuf, AttachError> {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = lab.join("plugin");
    let made = Command::new("make")
        .args(["-s", "-C"])
        .arg(&sources)
        .output()
        .map_err(|source| AttachError::NoMake(sources.clone(), source))?;
    if !made.status.success() {
        let message = String::from_utf8_lossy(&made.stderr).trim().to_owned();
        return Err(AttachError::Build { folder: sources, message });
    }
    Ok(lab.join("../target/lab/misses.so"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::{Guest, Line};

    #[test]
    fn memory_of_devices_is_not_counted_wrongly() {
        let guest = Guest::builder().kernel(Line::Debian12);
        let error = attach(guest, &Machine::default(), Path::new("/tmp"), &[]).unwrap_err();
        assert!(matches!(error, AttachError::Devices), "{error}");
    }

    /// The plugin's own tests of layout, cache and counters, in C.
    #[test]
    fn the_plugin_passes_its_own_tests() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("plugin");
        let tested = Command::new("make").args(["-s", "test", "-C"]).arg(sources).output().unwrap();
        assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stderr));
        assert!(String::from_utf8_lossy(&tested.stdout).contains("tests passed"));
    }
}
