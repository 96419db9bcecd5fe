//! Ranges of keys that name something: files, cgroups and groups.

use serde_json::{Value, json};

use crate::config::schema::Allowed;

/// Longest path that a system call takes (Linux PATH_MAX without its end).
const PATH_BYTES_MAX: usize = 4095;
/// Longest path of a Unix socket (Linux UNIX_PATH_MAX without its end).
const SOCKET_BYTES_MAX: usize = 107;

fn is_absolute(path: &str) -> bool {
    path.starts_with('/') && !path.contains('\0') && path.len() <= PATH_BYTES_MAX
}

/// An absolute path.
#[derive(Clone, Copy, Debug)]
pub struct AbsolutePath;

impl Allowed<String> for AbsolutePath {
    fn allows(&self, value: &String) -> bool {
        is_absolute(value)
    }

    fn words(&self) -> String {
        "an absolute path".to_owned()
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "pattern": "^/[^\\x00]*$", "maxLength": PATH_BYTES_MAX })
    }
}

/// What is allowed, or nothing.
#[derive(Clone, Copy, Debug)]
pub struct OrNothing<A>(pub A);

impl<T, A: Allowed<T>> Allowed<Option<T>> for OrNothing<A> {
    fn allows(&self, value: &Option<T>) -> bool {
        value.as_ref().is_none_or(|value| self.0.allows(value))
    }

    fn words(&self) -> String {
        format!("{}, or unset", self.0.words())
    }

    fn schema(&self) -> Value {
        self.0.schema()
    }
}

/// An absolute path that a Unix socket can have.
#[derive(Clone, Copy, Debug)]
pub struct SocketPath;

impl Allowed<String> for SocketPath {
    fn allows(&self, value: &String) -> bool {
        let name = value.rsplit('/').next().unwrap_or_default();
        is_absolute(value) && value.len() <= SOCKET_BYTES_MAX && !["", ".", ".."].contains(&name)
    }

    fn words(&self) -> String {
        format!("an absolute path that ends in a name, of at most {SOCKET_BYTES_MAX} bytes")
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "pattern": "^/[^\\x00]*[^/\\x00]$", "maxLength": SOCKET_BYTES_MAX })
    }
}

/// The path of a cgroup, or nothing.
#[derive(Clone, Copy, Debug)]
pub struct CgroupPath;

impl Allowed<Option<String>> for CgroupPath {
    fn allows(&self, value: &Option<String>) -> bool {
        let fits = |path: &String| {
            let length = 1..=PATH_BYTES_MAX;
            let stays = path.split('/').all(|name| !["..", "."].contains(&name));
            length.contains(&path.len()) && !path.contains('\0') && stays
        };
        value.as_ref().is_none_or(fits)
    }

    fn words(&self) -> String {
        "a path below the cgroup root without . or .., / for all of it; or unset".to_owned()
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "minLength": 1, "maxLength": PATH_BYTES_MAX, "pattern": "^[^\\x00]*$" })
    }
}

/// The name of a group of users, or nothing.
#[derive(Clone, Copy, Debug)]
pub struct GroupName;

impl Allowed<Option<String>> for GroupName {
    fn allows(&self, value: &Option<String>) -> bool {
        let fits = |name: &String| !name.is_empty() && !name.contains(|c: char| c == ':' || c.is_control());
        value.as_ref().is_none_or(fits)
    }

    fn words(&self) -> String {
        "a group's name, or unset".to_owned()
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "minLength": 1, "pattern": "^[^:]*$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_have_names_that_the_kernel_takes() {
        let allowed = |path: &str| SocketPath.allows(&path.to_owned());
        assert!(allowed("/run/t.sock") && allowed(&format!("/{}", "a".repeat(106))));
        for path in
            ["", "t.sock", "/", "/run/", "/run/.", "/run/..", "/a\0b", &format!("/{}", "a".repeat(107))]
        {
            assert!(!allowed(path), "{path:?}");
        }
    }

    #[test]
    fn cgroups_lie_below_their_root() {
        let allowed = |path: &str| CgroupPath.allows(&Some(path.to_owned()));
        assert!(
            CgroupPath.allows(&None) && allowed("/") && allowed("a.slice/b") && allowed("/sys/fs/cgroup/a")
        );
        for path in ["", "../etc", "/a/../../b", "a/./b", "a\0", &"/a".repeat(4096)] {
            assert!(!allowed(path), "{}", path.len());
        }
    }

    #[test]
    fn groups_have_names() {
        let allowed = |name: &str| GroupName.allows(&Some(name.to_owned()));
        assert!(GroupName.allows(&None) && allowed("adm"));
        assert!(!allowed("") && !allowed("a:b") && !allowed("a\nb"));
    }
}
