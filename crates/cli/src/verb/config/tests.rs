//! Checks schema, defaults, samples and broken configurations against each other.

use serde_json::{Value, json};
use thermocline_core::config::Config;

use super::*;

fn validator() -> jsonschema::Validator {
    jsonschema::validator_for(&json_schema()).unwrap()
}

/// A TOML text as the JSON that an editor would validate.
fn value(text: &str) -> Value {
    json!(toml::from_str::<toml::Table>(text).unwrap())
}

#[test]
fn defaults_and_samples_are_valid_by_the_schema() {
    let schema = validator();
    for text in [
        "",
        &annotated(),
        "[manager]\nname = \"observe\"\n",
        "[[scope]]\nname = \"db\"\ncgroup = \"/db.slice\"\ntop_tier_cap_mib = 1024\n",
        "[tiers]\nnodes = [[0, 1], [2]]\nexclude = [3]\n[source.hwsample]\nenabled = \"auto\"\n",
        "[rule]\nname = \"fault-count\"\n[rule.fault-count]\nrestamp = false\n",
        "[source.chmu]\nunit_bytes = 512\n[daemon]\nsocket_group = \"adm\"\n",
    ] {
        thermocline_front::config::parse(text, "sample.toml", |_| {}).unwrap_or_else(|e| panic!("{e}"));
        let errors: Vec<String> = schema.iter_errors(&value(text)).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{text}: {errors:?}");
    }
    // An unset key is null here, and absent in a file.
    let mut whole = json!(Config::default());
    strip_nulls(&mut whole);
    assert!(schema.is_valid(&whole));
}

fn strip_nulls(value: &mut Value) {
    if let Value::Object(members) = value {
        members.retain(|_, member| !member.is_null());
        members.values_mut().for_each(strip_nulls);
    }
}

#[test]
fn what_the_schema_refuses_the_check_refuses() {
    let schema = validator();
    for text in [
        "[admission]\nrate_limt_mbps = 3\n",
        "[admission]\nrate_limit_mbps = 0\n",
        "[admission]\nrate_limit_mbps = \"fast\"\n",
        "[rule]\nname = \"fastest\"\n",
        "[nonsense]\n",
        "[engine.tick_ms]\na = 1\n",
        "[scope]\nname = \"a\"\n",
        "[source.chmu]\nunit_bytes = 5000\n",
        "[source.hwsample]\nenabled = \"yes\"\n",
        "[daemon]\nsocket = \"relative\"\n",
        "[tiers]\nnodes = [0, 1]\n",
        "[[scope]]\npids = [-1]\n",
    ] {
        assert!(!schema.is_valid(&value(text)), "the schema takes {text}");
        assert!(thermocline_front::config::parse(text, "t.toml", |_| {}).is_err(), "the check takes {text}");
    }
}

#[test]
fn every_default_and_range_agrees_with_the_check() {
    let schema = validator();
    let mut tried = 0;
    for (section, fields) in Config::sections() {
        for field in fields {
            let bounds = ["minimum", "maximum"].map(|bound| field.schema[bound].as_i64());
            let beyond = bounds.into_iter().zip([-1, 1]).flat_map(|(bound, step)| {
                bound.into_iter().flat_map(move |bound| [(bound, true), (bound.saturating_add(step), false)])
            });
            for (number, inside) in beyond.filter(|(number, inside)| *inside || *number != i64::MAX) {
                let text = match section.as_str() {
                    "scope" => format!("[[scope]]\ncgroup = \"/a\"\n{} = {number}\n", field.name),
                    section => format!("[{section}]\n{} = {number}\n", field.name),
                };
                assert_eq!(schema.is_valid(&value(&text)), inside, "{text}");
                let error =
                    thermocline_front::config::parse(&text, "t.toml", |_| {}).err().unwrap_or_default();
                let of_range =
                    error.contains(&format!("{number} is not allowed")) || error.contains("invalid");
                assert_eq!(of_range && !error.contains("of the scope"), !inside, "{text}{error}");
                tried += 1;
            }
        }
    }
    assert!(tried > 300, "{tried}");
}

#[test]
fn a_key_is_explained_and_a_misspelt_one_is_told() {
    let told = explain::explain("admission.rate_limit_mbps").unwrap();
    for part in [
        "unit     MB/s",
        "allowed  1 to 65536",
        "default  256",
        "reload   yes",
        "THERMOCLINE_ADMISSION_RATE_LIMIT_MBPS",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(explain::explain("engine.record").unwrap().contains("needs a restart"));
    assert!(explain::explain("scope[3].cgroup").unwrap().contains("cgroup v2"));
    assert!(explain::explain("rule").unwrap().contains("rule.latency.feedback"));
    let error = explain::explain("admission.rate_limt_mbps").unwrap_err().to_string();
    assert!(error.contains("did you mean `admission.rate_limit_mbps`"), "{error}");
}
