//! Configurations as recordings keep them: JSON, which those who query the tables can read.

use serde::Deserialize;
use serde_json::Value;
use thermocline_core::config::Config;

/// The configuration in the setting `config`.
///
/// It is read as TOML is: reading the same structures in one more way would make the command
/// larger by a fortieth.
///
/// # Errors
/// It is one that this version does not know.
pub fn parse(text: &str) -> Result<Config, String> {
    let read = || -> Result<Config, String> {
        let mut json: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        leave_out_nulls(&mut json);
        let value = toml::Value::try_from(json).map_err(|e| e.to_string())?;
        Config::deserialize(value).map_err(|e| e.message().to_owned())
    };
    read().map_err(|why| {
        format!("its configuration is not one of this version: {why}; use the version that wrote it")
    })
}

/// TOML has no null: what is not set is not there.
fn leave_out_nulls(json: &mut Value) {
    match json {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(leave_out_nulls);
        }
        Value::Array(all) => all.iter_mut().for_each(leave_out_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use thermocline_core::config::Scope;

    use super::*;

    #[test]
    fn every_value_comes_back() {
        let scope = Scope { name: "web".to_owned(), command: Some("nginx".to_owned()), ..Scope::default() };
        let mut config = Config { scope: vec![scope], ..Config::default() };
        config.tiers.nodes = vec![vec![0, 1], vec![2]];
        let text = serde_json::to_string(&config).expect("it is plain data");
        assert!(text.contains("null"), "something is not set");
        assert_eq!(
            serde_json::to_string(&parse(&text).expect("it is this version's")).expect("as before"),
            text
        );
    }
}
