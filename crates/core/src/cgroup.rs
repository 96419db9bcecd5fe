//! Paths of cgroup v2, as configurations and the kernel write them.

/// A cgroup's path below the hierarchy's root, with one slash before it and none after; the root is
/// "/". A path of the folder in the file system is accepted too.
pub fn normal(path: &str) -> String {
    let below = ["/sys/fs/cgroup/unified/", "/sys/fs/cgroup/"].iter().find_map(|m| path.strip_prefix(m));
    format!("/{}", below.unwrap_or(path).trim_matches('/'))
}

/// Whether `path` is `subtree` or below it; both normal.
pub fn is_within(path: &str, subtree: &str) -> bool {
    match path.strip_prefix(subtree) {
        Some(rest) => rest.is_empty() || rest.starts_with('/') || subtree == "/",
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtrees_end_at_a_slash() {
        assert!(is_within("/a/b", "/a"));
        assert!(is_within("/a", "/a"));
        assert!(is_within("/anything", "/"));
        assert!(!is_within("/ab", "/a"));
        assert!(!is_within("/", "/a"));
    }

    #[test]
    fn paths_are_understood_in_each_form() {
        for path in ["a/b", "/a/b/", "/sys/fs/cgroup/a/b", "/sys/fs/cgroup/unified/a/b/"] {
            assert_eq!(normal(path), "/a/b", "{path}");
        }
        assert_eq!(normal("/"), "/");
    }
}
