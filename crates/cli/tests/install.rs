//! What `deploy/install.sh` puts where, keeps and removes, below a folder of its own.

// Helpers of tests, which clippy takes for other code.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
const CONFIGURATION: &str = "etc/thermocline/thermocline.toml";

/// An unpacked archive, and the folder that stands for the machine.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        let unit = fs::read_to_string(format!("{DEPLOY}/thermocline.service")).unwrap();
        place.pack("usr/bin/thermocline", "#!/bin/sh\necho thermocline 1\n");
        fs::set_permissions(place.packed("usr/bin/thermocline"), fs::Permissions::from_mode(0o755)).unwrap();
        place.pack("usr/lib/systemd/system/thermocline.service", &unit);
        place.pack("usr/share/man/man1/thermocline.1.gz", "page");
        place.pack("usr/share/zsh/vendor-completions/_thermocline", "completions");
        place.pack("usr/share/thermocline/thermocline.schema.json", "{}");
        place.pack(CONFIGURATION, "#:schema /usr/share/thermocline/thermocline.schema.json\nname = 1\n");
        place.pack("etc/thermocline/conf.d/README", "first\n");
        fs::copy(format!("{DEPLOY}/install.sh"), place.dir.path().join("archive/install.sh")).unwrap();
        place
    }

    fn packed(&self, file: &str) -> PathBuf {
        self.dir.path().join("archive/files").join(file)
    }

    fn pack(&self, file: &str, text: &str) {
        fs::create_dir_all(self.packed(file).parent().unwrap()).unwrap();
        fs::write(self.packed(file), text).unwrap();
    }

    fn machine(&self) -> PathBuf {
        self.dir.path().join("machine")
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.machine().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    fn run(&self, script: &Path, verb: &str, prefix: Option<&str>) -> Output {
        let mut command = Command::new("sh");
        command.arg(script).arg(verb).env("DESTDIR", self.machine()).env_remove("PREFIX");
        prefix.map(|prefix| command.env("PREFIX", prefix));
        command.output().unwrap()
    }

    /// Runs the archive's script, which is to succeed; what it says.
    fn does(&self, verb: &str) -> String {
        let output = self.run(&self.dir.path().join("archive/install.sh"), verb, None);
        assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// All files of the machine, and with them its folders that are empty.
    fn files(&self) -> Vec<String> {
        let output = Command::new("find")
            .args([".", "-mindepth", "1", "(", "-type", "f", "-o", "-empty", ")", "-printf", "%P\n"])
            .current_dir(self.machine())
            .output()
            .unwrap();
        let mut files: Vec<String> =
            String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
        files.sort();
        files
    }
}

#[test]
fn each_file_has_its_place_and_the_unit_runs_the_program_that_was_installed() {
    let place = Place::new();
    place.does("install");
    let own = |file: &String| !file.contains("/thermocline/install/");
    assert_eq!(
        place.files().into_iter().filter(own).collect::<Vec<_>>(),
        [
            "etc/thermocline/conf.d/README",
            CONFIGURATION,
            "usr/local/bin/thermocline",
            "usr/local/lib/systemd/system/thermocline.service",
            "usr/local/share/man/man1/thermocline.1.gz",
            "usr/local/share/thermocline/thermocline.schema.json",
            "usr/local/share/zsh/site-functions/_thermocline",
        ]
    );
    let mode = |file: &str| fs::metadata(place.machine().join(file)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("usr/local/bin/thermocline"), mode(CONFIGURATION)), (0o755, 0o644));
    let unit = place.text("usr/local/lib/systemd/system/thermocline.service");
    for line in ["ExecStart=", "ExecReload=", "ExecStopPost="] {
        assert!(unit.contains(&format!("\n{line}/usr/local/bin/thermocline ")), "{line} in {unit}");
    }
    assert!(!unit.contains("/usr/bin"), "{unit}");
    assert!(place.text(CONFIGURATION).starts_with("#:schema /usr/local/share/thermocline/"));
}

#[test]
fn an_upgrade_keeps_what_the_administrator_changed_and_removes_what_is_no_more() {
    let place = Place::new();
    place.does("install");
    let changed = place.text(CONFIGURATION) + "changed = 2\n";
    fs::write(place.machine().join(CONFIGURATION), &changed).unwrap();
    assert_eq!(place.does("install"), "", "this version's configuration is the same");

    place.pack(CONFIGURATION, "name = 3\n");
    place.pack("etc/thermocline/conf.d/README", "second\n");
    fs::remove_file(place.packed("usr/share/man/man1/thermocline.1.gz")).unwrap();
    let told = place.does("install");
    assert!(told.contains("/etc/thermocline/thermocline.toml was changed and is kept"), "{told}");
    assert_eq!(place.text(CONFIGURATION), changed);
    assert_eq!(place.text(&format!("{CONFIGURATION}.new")), "name = 3\n");
    assert_eq!(place.text("etc/thermocline/conf.d/README"), "second\n");
    assert!(!place.machine().join("usr/local/share/man/man1/thermocline.1.gz").exists());
    assert_eq!(place.does("install"), "", "it is told once");
}

#[test]
fn nothing_is_left_but_what_was_there() {
    let place = Place::new();
    for folder in ["usr/local/bin", "usr/local/share/man", "usr/local/share/thermocline"] {
        fs::create_dir_all(place.machine().join(folder)).unwrap();
    }
    fs::write(place.machine().join("usr/local/share/thermocline/mine"), "").unwrap();
    let before = place.files();
    place.does("install");
    place.does("install");
    place.does("purge");
    assert_eq!(place.files(), before);

    // By the copy that was installed, in two steps. Without a purge the configuration stays.
    place.does("install");
    let copy = place.machine().join("usr/local/share/thermocline/install/install.sh");
    let output = place.run(&copy, "uninstall", None);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut with_configuration = before.clone();
    with_configuration.extend(["etc/thermocline/conf.d/README".to_owned(), CONFIGURATION.to_owned()]);
    with_configuration.sort();
    assert_eq!(place.files(), with_configuration);
    place.does("purge");
    assert_eq!(place.files(), before);
}

#[test]
fn what_cannot_be_installed_changes_nothing() {
    let place = Place::new();
    fs::create_dir(place.machine()).unwrap();
    let archive = place.dir.path().join("archive/install.sh");
    for (verb, prefix, says) in [
        ("install", Some("here"), "absolute"),
        ("uninstall", None, "nothing is installed"),
        ("remove", None, "unknown: remove"),
    ] {
        let output = place.run(&archive, verb, prefix);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(says), "{verb}: {told}");
    }
    place.pack("usr/bin/thermocline", "#!/bin/sh\nexit 127\n");
    let output = place.run(&archive, "install", None);
    assert!(String::from_utf8_lossy(&output.stderr).contains("does not run on this machine"));
    assert!(!output.status.success() && place.files().is_empty());
}
