//! The guest's first file system: busybox, the modules for access to the host's files, our scripts
//! and the command.

use std::fs;
use std::path::Path;

use crate::machine::cpio::Archive;
use crate::machine::modules;
use crate::{Error, Kernel, Result};

const INIT: &str = include_str!("../../guest/init");
const MAIN: &str = include_str!("../../guest/main");
/// The units of a guest with systemd.
const UNITS: [(&str, &str); 2] = [
    ("lab.target", include_str!("../../guest/systemd/lab.target")),
    ("lab.service", include_str!("../../guest/systemd/lab.service")),
];
/// Programs that a guest has in its PATH in addition to the host's.
const PROGRAMS: [(&str, &str); 6] = [
    ("fill-node", include_str!("../../guest/bin/fill-node")),
    ("misses", include_str!("../../guest/bin/misses")),
    ("on-node", include_str!("../../guest/bin/on-node")),
    ("on-slow-node", include_str!("../../guest/bin/on-slow-node")),
    ("in-own-cgroup", include_str!("../../guest/bin/in-own-cgroup")),
    ("widen", include_str!("../../guest/bin/widen")),
];

/// Settings for the guest's scripts.
#[derive(Debug, Default)]
pub(crate) struct Settings<'a> {
    /// The shell script that is the command.
    pub(crate) command: &'a str,
    /// The folder that the guest may write, at the same path on host and guest.
    pub(crate) share: Option<&'a Path>,
    /// `rows N cols N` of the terminal, if the command is interactive.
    pub(crate) terminal: Option<&'a str>,
    /// Whether the guest has a network.
    pub(crate) net: bool,
    /// Whether the guest has a disk.
    pub(crate) disk: bool,
    /// Whether systemd is the first process, with the command as one of its units.
    pub(crate) systemd: bool,
    /// Whether memory of devices is to be added as nodes.
    pub(crate) devices: bool,
}

/// Builds the archive for one boot.
pub(crate) fn build(kernel: &Kernel, settings: &Settings) -> Result<Vec<u8>> {
    let mut wanted = vec!["virtio_pci", "virtio_console", "9p", "9pnet_virtio", "overlay"];
    if settings.net {
        wanted.push("virtio_net");
    }
    if settings.devices {
        wanted.extend(["dax_hmem", "kmem"]);
    }
    let modules = modules::closure(kernel, &wanted)?;
    let mut archive = Archive::default();
    for folder in ["bin", "lab", "lab/bin", "lab/systemd", "modules"] {
        archive.folder(folder);
    }
    archive.file("bin/busybox", 0o755, &busybox()?);
    archive.file("init", 0o755, INIT.as_bytes());
    archive.file("lab/main", 0o755, MAIN.as_bytes());
    for (name, text) in PROGRAMS {
        archive.file(&format!("lab/bin/{name}"), 0o755, text.as_bytes());
    }
    for (name, text) in UNITS {
        archive.file(&format!("lab/systemd/{name}"), 0o644, text.as_bytes());
    }
    let mut order = String::new();
    for module in &modules {
        archive.file(&format!("modules/{}.ko", module.name), 0o644, &module.object);
        order.push_str(&module.name);
        order.push('\n');
    }
    archive.file("modules/order", 0o644, order.as_bytes());
    archive.file("lab/command", 0o755, settings.command.as_bytes());
    archive.file("lab/settings", 0o644, variables(kernel, settings).as_bytes());
    Ok(archive.finish())
}

fn variables(kernel: &Kernel, settings: &Settings) -> String {
    let path = |path: &Path| quote(&path.to_string_lossy());
    let mut text = String::new();
    let mut set = |name: &str, value: String| text.push_str(&format!("{name}={value}\n"));
    set("LAB_MODULES", path(&kernel.modules()));
    set("LAB_CONFIG", path(&kernel.config()));
    set("LAB_NET", if settings.net { "1" } else { "" }.to_owned());
    set("LAB_DISK", if settings.disk { crate::DISK } else { "" }.to_owned());
    set("LAB_DEVICES", if settings.devices { "1" } else { "" }.to_owned());
    set("LAB_SYSTEMD", if settings.systemd { "1" } else { "" }.to_owned());
    set("LAB_SHELL", quote(settings.terminal.unwrap_or_default()));
    set("LAB_SHARE", settings.share.map(path).unwrap_or_default());
    text.push_str("export LAB_SHARE\n");
    text
}

/// A static busybox, because the guest runs it before the host's libraries are accessible.
fn busybox() -> Result<Vec<u8>> {
    let places = ["/bin/busybox", "/usr/bin/busybox"];
    let Some(path) = places.into_iter().find(|place| Path::new(place).exists()) else {
        return Err(Error::MissingProgram { program: "busybox", package: "busybox-static" });
    };
    let bytes = fs::read(path).map_err(Error::file("read", path))?;
    let asks_for_loader =
        bytes.windows(7).take(4096).any(|window| window == b"/ld-lin" || window == b"ld-linu");
    if asks_for_loader {
        return Err(Error::MissingProgram { program: "a static busybox", package: "busybox-static" });
    }
    Ok(bytes)
}

/// Quotes a word for the shell.
pub(crate) fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_survives_a_shell() {
        for word in ["plain", "two words", "it's", "$HOME `id` \\", "new\nline", ""] {
            let script = format!("printf %s {}", quote(word));
            let output = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }

    #[test]
    fn guest_scripts_are_valid_shell() {
        for (name, text) in PROGRAMS.into_iter().chain([("init", INIT), ("main", MAIN)]) {
            let output = std::process::Command::new("sh").args(["-n", "-c", text]).output().unwrap();
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
