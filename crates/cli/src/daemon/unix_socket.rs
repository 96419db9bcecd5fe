//! A Unix socket that only its owner and, if given, a group may open.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use anyhow::Context;
use thermocline_linux::private::Folder;

/// The path of a listening socket; removed when dropped.
#[derive(Debug)]
pub struct UnixSocket {
    folder: Folder,
    name: String,
}

impl UnixSocket {
    /// Listens on `path`, the value of the configuration's `key`.
    ///
    /// # Errors
    /// The folder is not ours alone, something other than a socket of ours has that name, or the
    /// socket cannot be created.
    pub fn bind(
        path: &Path,
        group: Option<&str>,
        key: &'static str,
    ) -> anyhow::Result<(UnixSocket, UnixListener)> {
        let shown = path.display();
        let gid = group.map(gid_of).transpose()?;
        let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        let (Some(above), Some(name)) = (path.parent(), name) else {
            anyhow::bail!("{key}: {shown} names no file; give a path as /run/thermocline/NAME.sock");
        };
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        let folder = Folder::make(above).context(key)?;
        folder.remove_socket(&name).context(key)?;
        let listener = UnixListener::bind(path).with_context(|| format!("cannot listen on {shown}"))?;
        let mode = if gid.is_some() { 0o660 } else { 0o600 };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
            .with_context(|| format!("cannot set the permissions of {shown}"))?;
        if let Some(gid) = gid {
            std::os::unix::fs::chown(path, None, Some(gid))
                .with_context(|| format!("cannot give {shown} to the group {gid}"))?;
            folder.let_pass(gid).context("daemon.socket_group")?;
        }
        Ok((UnixSocket { folder, name }, listener))
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        let _ = self.folder.remove_socket(&self.name);
    }
}

fn gid_of(name: &str) -> anyhow::Result<u32> {
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let gid = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    });
    gid.with_context(|| {
        format!("daemon.socket_group: no group `{name}` in /etc/group; create it or unset the key")
    })
}
