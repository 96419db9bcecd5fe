//! Kernel releases as they appear in package names, and their order by age.

use std::cmp::Ordering;

/// The release in the name of a signed amd64 image package: `6.12.117+deb12-amd64` in
/// `linux-image-6.12.117+deb12-amd64`, or `6.1.0-56-amd64` in the older naming. `None` for
/// metapackages and for cloud, real-time, debug and unsigned images.
pub(crate) fn of_package(name: &str) -> Option<&str> {
    let release = name.strip_prefix("linux-image-")?;
    let version = release.strip_suffix("-amd64")?;
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let (upstream, is_debians) = match version.split_once('+') {
        Some((upstream, debian)) => {
            let plain = |c: char| c.is_ascii_digit() || c.is_ascii_lowercase() || ".+~".contains(c);
            (upstream, debian.starts_with("deb") && debian.chars().all(plain))
        }
        None => version.split_once('-').map(|(upstream, abi)| (upstream, is_number(abi)))?,
    };
    (is_debians && upstream.split('.').all(is_number)).then_some(release)
}

/// Compares two releases number by number, ignoring the letters in between.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    numbers(a).cmp(numbers(b)).then_with(|| a.cmp(b))
}

fn numbers(release: &str) -> impl Iterator<Item = u64> + '_ {
    let release = release.strip_suffix("-amd64").unwrap_or(release);
    release.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_signed_images_have_a_release() {
        assert_eq!(of_package("linux-image-6.12.117+deb12-amd64"), Some("6.12.117+deb12-amd64"));
        assert_eq!(of_package("linux-image-6.12.90+deb12.1-amd64"), Some("6.12.90+deb12.1-amd64"));
        assert_eq!(of_package("linux-image-6.1.0-56-amd64"), Some("6.1.0-56-amd64"));
        for other in [
            "linux-image-amd64",
            "linux-image-6.1.0-56-cloud-amd64",
            "linux-image-6.1.0-56-amd64-dbg",
            "linux-image-6.12-amd64",
            "linux-image-7.2.13+deb14-cloud-amd64",
            "linux-image-7.2.13+deb14-rt-amd64",
            "linux-image-7.2.13+deb14-amd64-dbg",
            "linux-image-7.2.13+deb14-amd64-unsigned",
            "linux-headers-7.2.13+deb14-amd64",
        ] {
            assert_eq!(of_package(other), None, "{other}");
        }
    }

    #[test]
    fn releases_compare_by_number() {
        assert_eq!(compare("6.12.117+deb12-amd64", "6.12.95+deb12-amd64"), Ordering::Greater);
        assert_eq!(compare("6.12.90+deb12.1-amd64", "6.12.90+deb12-amd64"), Ordering::Greater);
        assert_eq!(compare("6.1.0-9-amd64", "6.1.0-56-amd64"), Ordering::Less);
        assert_eq!(compare("7.2.13+deb14-amd64", "7.10.1+deb14-amd64"), Ordering::Less);
        assert_eq!(compare("6.12.9+deb12-amd64", "6.12.9+deb12-amd64"), Ordering::Equal);
    }
}
