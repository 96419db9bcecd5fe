//! The machine's apt sources, which name its Debian mirror, and a separate apt configuration for
//! the lab.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::{Error, Result};

/// The keyring that signs Debian's archive, from package debian-archive-keyring.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// One enabled binary source of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Source {
    uris: Vec<String>,
    suites: Vec<String>,
    components: Vec<String>,
    signed_by: Option<String>,
}

/// The mirror addresses that the machine itself uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mirrors {
    /// The main archive.
    pub(crate) archive: String,
    /// The security archive, where the machine names one.
    pub(crate) security: Option<String>,
}

impl Mirrors {
    /// Reads the mirrors out of the apt configuration folder `etc` (`/etc/apt`).
    pub(crate) fn of_machine(etc: &Path) -> Result<Mirrors> {
        let mut sources = Vec::new();
        let mut files = vec![etc.join("sources.list")];
        if let Ok(entries) = fs::read_dir(etc.join("sources.list.d")) {
            let mut parts: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            parts.sort();
            files.extend(parts);
        }
        for file in &files {
            let Ok(text) = fs::read_to_string(file) else { continue };
            match file.extension().and_then(|extension| extension.to_str()) {
                Some("list") => sources.extend(text.lines().filter_map(one_line)),
                Some("sources") => sources.extend(stanzas(&text).filter_map(|stanza| deb822(&stanza))),
                _ => {}
            }
        }
        pick(&sources).ok_or_else(|| Error::NoArchive {
            searched: format!("{0}/sources.list, {0}/sources.list.d", etc.display()),
        })
    }
}

fn pick(sources: &[Source]) -> Option<Mirrors> {
    let ours = |source: &&Source| {
        let key = source.signed_by.as_deref().is_none_or(|key| key.contains("debian-archive"));
        key && source.components.iter().any(|component| component == "main")
    };
    let address = |wanted: &str| {
        let ends = |uri: &&String| uri.trim_end_matches('/').rsplit('/').next() == Some(wanted);
        sources.iter().filter(ours).flat_map(|source| &source.uris).find(ends).cloned()
    };
    // The path of a mirror list file says nothing, so the suite decides.
    let by_suite = |wanted: &dyn Fn(&str) -> bool| {
        let has = |source: &&Source| source.suites.iter().any(|suite| wanted(suite));
        sources.iter().filter(ours).find(has).and_then(|source| source.uris.first()).cloned()
    };
    let archive = address("debian")
        .or_else(|| by_suite(&|suite| !suite.contains('/') && suite.ends_with("-updates")))?;
    let security = address("debian-security").or_else(|| by_suite(&|suite| suite.ends_with("-security")));
    Some(Mirrors { archive, security })
}

/// Parses `deb [options] uri suite component...`; anything else is `None`.
fn one_line(line: &str) -> Option<Source> {
    let line = line.split('#').next()?.trim();
    let mut rest = line.strip_prefix("deb")?.strip_prefix([' ', '\t'])?.trim_start();
    let mut signed_by = None;
    if let Some(options) = rest.strip_prefix('[') {
        let (options, after) = options.split_once(']')?;
        signed_by = options
            .split_whitespace()
            .find_map(|option| option.strip_prefix("signed-by="))
            .map(str::to_owned);
        rest = after;
    }
    let mut words = rest.split_whitespace().map(str::to_owned);
    Some(Source {
        uris: vec![words.next()?],
        suites: vec![words.next()?],
        components: words.collect(),
        signed_by,
    })
}

/// Splits a deb822 file into its stanzas, without comment lines.
fn stanzas(text: &str) -> impl Iterator<Item = Vec<String>> {
    let mut stanzas = vec![Vec::new()];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match (line.trim().is_empty(), stanzas.last_mut()) {
            (false, Some(stanza)) => stanza.push(line.to_owned()),
            _ => stanzas.push(Vec::new()),
        }
    }
    stanzas.into_iter().filter(|stanza| !stanza.is_empty())
}

fn deb822(stanza: &[String]) -> Option<Source> {
    let field = |name: &str| {
        let mut words = Vec::new();
        let mut inside = false;
        for line in stanza {
            let value = if line.starts_with([' ', '\t']) {
                inside.then_some(line.as_str())
            } else {
                let (key, value) = line.split_once(':')?;
                inside = key.eq_ignore_ascii_case(name);
                inside.then_some(value)
            };
            words.extend(value.into_iter().flat_map(str::split_whitespace).map(str::to_owned));
        }
        Some(words)
    };
    let disabled = field("Enabled")?.first().is_some_and(|value| value == "no" || value == "false");
    let binary = field("Types")?.iter().any(|kind| kind == "deb");
    (binary && !disabled).then_some(Source {
        uris: field("URIs")?,
        suites: field("Suites")?,
        components: field("Components")?,
        signed_by: field("Signed-By")?.first().cloned(),
    })
}

/// An apt that knows only the given suites. It has its own package lists and its own list of
/// installed packages.
#[derive(Debug)]
pub(crate) struct Apt {
    folder: PathBuf,
}

impl Apt {
    /// Prepares an apt in `folder` for the suites `(mirror address, suite)`.
    pub(crate) fn prepare(folder: &Path, suites: &[(&str, &str)]) -> Result<Apt> {
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(part)).map_err(Error::file("create", folder.join(part)))?;
        }
        let sources: String = suites
            .iter()
            .map(|(uri, suite)| {
                format!(
                    "Types: deb\nURIs: {uri}\nSuites: {suite}\nComponents: main\nSigned-By: {KEYRING}\n\n"
                )
            })
            .collect();
        for (name, content) in [("lab.sources", sources.as_str()), ("status", "")] {
            fs::write(folder.join(name), content).map_err(Error::file("write", folder.join(name)))?;
        }
        Ok(Apt { folder: folder.to_owned() })
    }

    /// Fetches the index of every suite and checks its signature.
    pub(crate) fn update(&self) -> Result<()> {
        self.run("apt-get", &["update", "-qq", "--error-on=any"], &self.folder).map(drop)
    }

    /// The names of all packages that begin with `prefix`.
    pub(crate) fn names(&self, prefix: &str) -> Result<Vec<String>> {
        let text = self.run("apt-cache", &["pkgnames", prefix], &self.folder)?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// One field of the candidate version of a package.
    pub(crate) fn field(&self, package: &str, field: &str) -> Result<Option<String>> {
        let text = self.run("apt-cache", &["show", "--no-all-versions", package], &self.folder)?;
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Ok(value.map(|value| value.trim().to_owned()))
    }

    /// Copies the machine's list of installed packages, so that [`Apt::lacking`] leaves them out.
    pub(crate) fn beside_machine(&self) -> Result<()> {
        let (from, to) = (Path::new("/var/lib/dpkg/status"), self.folder.join("status"));
        fs::copy(from, &to).map(drop).map_err(Error::file("copy the list of installed packages to", to))
    }

    /// `packages` and their dependencies that are not installed.
    pub(crate) fn lacking(&self, packages: &[&str]) -> Result<Vec<String>> {
        let mut arguments = vec!["-s", "-qq", "--no-install-recommends", "--reinstall", "install"];
        arguments.extend(packages);
        let text = self.run("apt-get", &arguments, &self.folder)?;
        Ok(to_install(&text))
    }

    /// Downloads packages into `into`; apt checks them against the signed index.
    pub(crate) fn download(&self, packages: &[String], into: &Path) -> Result<()> {
        let mut arguments = vec!["download", "-qq"];
        arguments.extend(packages.iter().map(String::as_str));
        self.run("apt-get", &arguments, into).map(drop)
    }

    fn run(&self, program: &'static str, arguments: &[&str], within: &Path) -> Result<String> {
        let folder = self.folder.display();
        let mut command = Command::new(program);
        command.current_dir(within).env("LC_ALL", "C");
        for option in [
            format!("Dir::Etc::sourcelist={folder}/lab.sources"),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            format!("Dir::State::lists={folder}/lists"),
            format!("Dir::State::status={folder}/status"),
            format!("Dir::Cache={folder}/cache"),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::Retries=2".to_owned(),
            "Acquire::http::Timeout=30".to_owned(),
            "APT::Sandbox::User=root".to_owned(),
        ] {
            command.arg("-o").arg(option);
        }
        command.args(arguments);
        text_of(&mut command, program, "apt")
    }
}

/// The packages in the output of a simulated installation: `Inst NAME [OLD] (NEW ...)`.
fn to_install(simulation: &str) -> Vec<String> {
    let names = simulation.lines().filter_map(|line| line.strip_prefix("Inst ")?.split(' ').next());
    names.map(str::to_owned).collect()
}

/// Runs a program and returns its output. If it fails, the error contains the end of its messages.
pub(crate) fn text_of(command: &mut Command, program: &'static str, package: &'static str) -> Result<String> {
    let output = output_of(command, program, package)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Like [`text_of`], for programs that print bytes.
pub(crate) fn output_of(
    command: &mut Command,
    program: &'static str,
    package: &'static str,
) -> Result<Output> {
    let output =
        command.stdin(std::process::Stdio::null()).output().map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => Error::MissingProgram { program, package },
            _ => Error::File { action: "run", path: PathBuf::from(program), source },
        })?;
    if output.status.success() {
        return Ok(output);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = stderr.lines().collect();
    let end = lines[lines.len().saturating_sub(6)..].join("; ");
    Err(Error::Program { program: program.to_owned(), status: output.status.to_string(), stderr: end })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deb822_sources_name_both_archives() {
        let folder = tempfile::tempdir().unwrap();
        let parts = folder.path().join("sources.list.d");
        fs::create_dir(&parts).unwrap();
        let text = "# a comment\nTypes: deb\n# inside\nURIs: http://mirror.example/debian\nSuites: bookworm\n \
                    bookworm-updates\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n\
                    Types: deb\nURIs: http://mirror.example/debian-security/\nSuites: bookworm-security\n\
                    Components: main\n";
        fs::write(parts.join("debian.sources"), text).unwrap();
        fs::write(parts.join("other.list"), "deb https://other.example/debian nodistro main\n").unwrap();
        assert_eq!(
            Mirrors::of_machine(folder.path()).unwrap(),
            Mirrors {
                archive: "http://mirror.example/debian".to_owned(),
                security: Some("http://mirror.example/debian-security/".to_owned()),
            }
        );
    }

    #[test]
    fn one_line_sources_are_read_with_and_without_options() {
        let source =
            one_line("deb [arch=amd64 signed-by=/k.gpg] http://m.example/debian stable main contrib # x")
                .unwrap();
        assert_eq!(source.uris, ["http://m.example/debian"]);
        assert_eq!(source.components, ["main", "contrib"]);
        assert_eq!(source.signed_by.as_deref(), Some("/k.gpg"));
        assert!(one_line("deb-src http://m.example/debian stable main").is_none());
        assert!(one_line("# deb http://m.example/debian stable main").is_none());
        assert!(one_line("deb [broken http://m.example/debian").is_none());
    }

    #[test]
    fn a_mirror_list_is_found_by_its_suite_and_foreign_archives_are_not() {
        let source = |uri: &str, suite: &str, key: Option<&str>| Source {
            uris: vec![uri.to_owned()],
            suites: vec![suite.to_owned()],
            components: vec!["main".to_owned()],
            signed_by: key.map(str::to_owned),
        };
        let sources = [
            source("https://vendor.example/debian", "bookworm", Some("/etc/keys/vendor.gpg")),
            source("mirror+file:///etc/apt/mirrors/debian.list", "bookworm-updates", None),
            source("mirror+file:///etc/apt/mirrors/debian-security.list", "bookworm-security", None),
        ];
        let mirrors = pick(&sources).unwrap();
        assert_eq!(mirrors.archive, "mirror+file:///etc/apt/mirrors/debian.list");
        assert_eq!(mirrors.security.as_deref(), Some("mirror+file:///etc/apt/mirrors/debian-security.list"));
        assert_eq!(pick(&sources[..1]), None);
    }

    #[test]
    fn a_simulation_names_what_would_be_installed() {
        let text = "Inst libpq5 [15.18] (15.20 Debian-Security:12/oldstable-security [amd64]) []\n\
                    Inst sysbench (1.0.20+ds-5 Debian:12.15/oldstable [amd64])\nConf sysbench (1.0.20+ds-5)\n";
        assert_eq!(to_install(text), ["libpq5", "sysbench"]);
    }

    #[test]
    fn disabled_and_source_only_stanzas_do_not_count() {
        let stanza = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let base = "URIs: http://m.example/debian\nSuites: sid\nComponents: main\n";
        assert!(deb822(&stanza(&format!("Types: deb\nEnabled: no\n{base}"))).is_none());
        assert!(deb822(&stanza(&format!("Types: deb-src\n{base}"))).is_none());
        assert!(deb822(&stanza(&format!("Types: deb deb-src\n{base}"))).is_some());
    }

    #[test]
    fn no_archive_is_an_error_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let error = Mirrors::of_machine(folder.path()).unwrap_err().to_string();
        assert!(error.contains("add a `deb` entry"), "{error}");
    }
}
