//! Starts QEMU and ensures that it never outlives the lab.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{Error, Machine, Result};

/// All settings for QEMU.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) machine: &'a Machine,
    /// Whether a device driver is to add the slow nodes.
    pub(crate) devices: bool,
    pub(crate) image: PathBuf,
    pub(crate) initrd: PathBuf,
    pub(crate) kernel_arguments: String,
    /// Socket for the kernel's console.
    pub(crate) console: &'a Path,
    /// Sockets for the named ports.
    pub(crate) ports: Vec<(&'static str, &'a Path)>,
    /// Socket at which QEMU offers the port through which programs in the guest talk to a plugin.
    pub(crate) plugin_port: Option<&'a Path>,
    /// Socket for the interactive terminal.
    pub(crate) terminal: Option<&'a Path>,
    /// The folder whose system the guest boots.
    pub(crate) root: &'a Path,
    /// Folder that the guest may write.
    pub(crate) share: Option<&'a Path>,
    /// Image of a disk; what the guest writes to it is discarded.
    pub(crate) disk: Option<&'a Path>,
    /// TCP ports passed from the host's loopback to the guest: (host, guest).
    pub(crate) forwards: &'a [(u16, u16)],
    /// TCG plugins, each `PATH[,key=value]...`.
    pub(crate) plugins: &'a [String],
    /// A file that the guest sees as the memory of a device, and its size in bytes, a power of two.
    pub(crate) shared_memory: Option<(&'a Path, u64)>,
}

/// All emulated features except fast byte-wise string operations, which kernels use to clear and
/// copy pages if they are available. Emulated, they take eight times as many steps as word-wise
/// ones, and up to seconds for a page that contained code.
const CPU: &str = "max,erms=off,fsrm=off";

impl Setup<'_> {
    /// QEMU's arguments.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> =
            ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-cpu", CPU]
                .map(str::to_owned)
                .into();
        let mut push = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
        push("-accel", "tcg,thread=multi".to_owned());
        push("-kernel", text(&self.image));
        push("-initrd", text(&self.initrd));
        push("-append", self.kernel_arguments.clone());
        push("-chardev", format!("socket,id=console,path={}", escaped(self.console)));
        push("-serial", "chardev:console".to_owned());
        push("-device", "virtio-serial-pci".to_owned());
        for (name, path) in &self.ports {
            push("-chardev", format!("socket,id={name},path={}", escaped(path)));
            push("-device", format!("virtserialport,chardev={name},name={name}"));
        }
        if let Some(path) = self.plugin_port {
            // QEMU is the server, because it creates its ports before it loads plugins.
            push("-chardev", format!("socket,id=lab.plugin,path={},server=on,wait=off", escaped(path)));
            push("-device", "virtserialport,chardev=lab.plugin,name=lab.plugin".to_owned());
        }
        if let Some(path) = self.terminal {
            push("-chardev", format!("socket,id=terminal,path={}", escaped(path)));
            push("-device", "virtconsole,chardev=terminal".to_owned());
        }
        let view = "security_model=none,multidevs=remap";
        push("-virtfs", format!("local,path={},mount_tag=host,readonly=on,{view}", escaped(self.root)));
        if let Some(path) = self.share {
            push("-virtfs", format!("local,path={},mount_tag=share,{view}", escaped(path)));
        }
        if let Some(path) = self.disk {
            push("-drive", format!("if=none,id=disk,format=raw,snapshot=on,file={}", escaped(path)));
            push("-device", "virtio-blk-pci,drive=disk".to_owned());
        }
        if !self.forwards.is_empty() {
            let forwards: String = self
                .forwards
                .iter()
                .map(|(host, guest)| format!(",hostfwd=tcp:127.0.0.1:{host}-10.0.2.15:{guest}"))
                .collect();
            push("-netdev", format!("user,id=net,restrict=on{forwards}"));
            push("-device", "virtio-net-pci,netdev=net,romfile=".to_owned());
        }
        for plugin in self.plugins {
            push("-plugin", plugin.clone());
        }
        if !self.plugins.is_empty() {
            push("-d", "plugin".to_owned());
        }
        arguments.extend(self.machine.arguments());
        if self.devices {
            arguments.extend(self.machine.device_arguments());
        }
        // After the memory of the nodes, because the plugin derives addresses from the order in
        // which QEMU creates its memory.
        if let Some((path, bytes)) = self.shared_memory {
            let backend =
                format!("memory-backend-file,id=shared,share=on,size={bytes},mem-path={}", escaped(path));
            arguments.extend(["-object".to_owned(), backend]);
            arguments.extend(["-device", "ivshmem-plain,memdev=shared"].map(str::to_owned));
        }
        arguments
    }

    /// Starts QEMU. The kernel kills it when the calling thread ends, for whatever reason.
    pub(crate) fn spawn(&self) -> Result<Qemu> {
        const QEMU: &str = "qemu-system-x86_64";
        let found = std::env::var_os("PATH")
            .is_some_and(|paths| std::env::split_paths(&paths).any(|folder| folder.join(QEMU).exists()));
        if !found {
            return Err(Error::MissingProgram { program: QEMU, package: "qemu-system-x86" });
        }
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", QEMU])
            .args(self.arguments())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| match source.kind() {
                std::io::ErrorKind::NotFound => {
                    Error::MissingProgram { program: "setpriv", package: "util-linux" }
                }
                _ => Error::file("run", "setpriv")(source),
            })?;
        Ok(Qemu { child })
    }
}

/// A running QEMU, killed when dropped.
#[derive(Debug)]
pub(crate) struct Qemu {
    pub(crate) child: Child,
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // Both fail only if QEMU has already ended, which is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A path inside one of QEMU's comma-separated options.
fn escaped(path: &Path) -> String {
    text(path).replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_carry_ports_share_forwards_and_plugins() {
        let machine = Machine::default();
        let setup = Setup {
            machine: &machine,
            devices: true,
            image: "/k".into(),
            initrd: "/i".into(),
            kernel_arguments: "console=ttyS0".to_owned(),
            console: Path::new("/run/a,b/console"),
            ports: vec![("lab.stdout", Path::new("/run/out"))],
            plugin_port: Some(Path::new("/run/port")),
            terminal: None,
            root: Path::new("/"),
            share: Some(Path::new("/tmp/share")),
            disk: Some(Path::new("/set,1")),
            forwards: &[(6400, 6379)],
            plugins: &["/p.so,size=8".to_owned()],
            shared_memory: Some((Path::new("/run/rings"), 4096)),
        };
        let line = setup.arguments().join(" ");
        for wanted in [
            "-machine max-ram-below-4g=2048M",
            "socket,id=console,path=/run/a,,b/console",
            "virtserialport,chardev=lab.stdout,name=lab.stdout",
            "socket,id=lab.plugin,path=/run/port,server=on,wait=off",
            "local,path=/,mount_tag=host,readonly=on",
            "local,path=/tmp/share,mount_tag=share,security_model",
            "-drive if=none,id=disk,format=raw,snapshot=on,file=/set,,1 -device virtio-blk-pci,drive=disk",
            "hostfwd=tcp:127.0.0.1:6400-10.0.2.15:6379",
            "-plugin /p.so,size=8 -d plugin",
            "id=shared,share=on,size=4096,mem-path=/run/rings -device ivshmem-plain,memdev=shared",
        ] {
            assert!(line.contains(wanted), "{wanted} is not in {line}");
        }
    }
}
