//! Which crate may use which: the one picture of it, and the check against what cargo says.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Crate by crate, the crates of this workspace that it may use.
pub const ALLOWED: [(&str, &[&str]); 8] = [
    ("records", &[]),
    ("protocol", &["records"]),
    ("storage", &["records"]),
    ("coordinator", &["records"]),
    ("broker", &["records", "protocol", "storage", "coordinator", "client"]),
    ("client", &["records", "protocol"]),
    ("integration-tests", &["records", "protocol", "storage", "coordinator", "broker", "client"]),
    ("benches", &["records", "protocol", "storage", "coordinator", "broker", "client", "integration-tests"]),
];

/// Crates that may not be used by these crates of ours, and why.
pub const FORBIDDEN: [(&str, &str, &str); 8] = [
    ("coordinator", "tokio", "a pure state machine waits for nothing"),
    ("coordinator", "parking_lot", "a pure state machine has no threads"),
    ("coordinator", "rand", "randomness is handed in"),
    ("records", "tokio", "bytes of records know no sockets"),
    ("protocol", "tokio", "bytes of requests know no sockets"),
    ("storage", "tokio", "the disk is served by plain threads"),
    ("broker", "kafka-protocol", "its decoder aborts on hostile counts"),
    ("protocol", "kafka-protocol", "the second codec is for tests and the client"),
];

/// What is wrong with the layers, by the output of `cargo metadata --no-deps`; empty if nothing is.
pub fn violations(metadata: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        ALLOWED.iter().map(|(name, uses)| (*name, uses.iter().copied().collect())).collect();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = short(package["name"].as_str().unwrap_or_default());
        let Some(may) = allowed.get(name) else {
            wrong.push(format!("{name}: a crate that the layers do not know"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let full = dependency["name"].as_str().unwrap_or_default();
            let of_tests = dependency["kind"].as_str() == Some("dev");
            let ours = full.starts_with("sluice-");
            if ours && !may.contains(short(full)) {
                wrong.push(format!("{name} must not use {}", short(full)));
            }
            for (who, what, why) in FORBIDDEN {
                if who == name && what == full && !of_tests {
                    wrong.push(format!("{name} must not use {what}: {why}"));
                }
            }
        }
    }
    wrong
}

/// Places of the broker that may use the client, as paths below `broker/src` (decisions 0002 and 0006).
const MAY_USE_CLIENT: [&str; 4] = ["demo", "cli/groups", "cli/keys", "cli/remote"];

/// Sources of the broker that use the client and may not, as (path below `broker/src`, text) pairs.
pub fn client_uses<'a>(sources: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let uses =
        |text: &str| text.lines().any(|line| line.contains("client::{") || line.contains("use client::"));
    let may = |path: &str| {
        MAY_USE_CLIENT
            .iter()
            .any(|place| path.strip_prefix(place).is_some_and(|rest| rest.starts_with(['.', '/'])))
    };
    sources
        .into_iter()
        .filter(|(path, text)| !may(path) && uses(text))
        .map(|(path, _)| format!("broker/src/{path} must not use the client: only its commands may"))
        .collect()
}

fn short(name: &str) -> &str {
    name.strip_prefix("sluice-").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str, uses: &[&str]) -> Value {
        let dependencies: Vec<Value> = uses.iter().map(|name| json!({"name": name, "kind": null})).collect();
        json!({"packages": [{"name": name, "dependencies": dependencies}]})
    }

    #[test]
    fn edges_that_point_back_are_found() {
        assert!(violations(&package("sluice-storage", &["sluice-records", "redb"])).is_empty());
        assert_eq!(violations(&package("sluice-storage", &["sluice-protocol"])).len(), 1);
        assert_eq!(violations(&package("sluice-coordinator", &["tokio"])).len(), 1);
        assert_eq!(violations(&package("sluice-extra", &[])).len(), 1);
    }

    #[test]
    fn the_client_is_for_commands_that_talk_to_a_broker() {
        let line = "use client::KeyShareConsumer;\n";
        assert!(
            client_uses([
                ("demo.rs", line),
                ("demo/workers.rs", line),
                ("cli/keys.rs", line),
                ("cli/groups/reset.rs", line),
                ("net.rs", "use crate::net;\n")
            ])
            .is_empty()
        );
        assert_eq!(client_uses([("cli/serve.rs", line), ("cli.rs", line), ("demolition.rs", line)]).len(), 3);
        assert_eq!(client_uses([("api/fetch.rs", line)]).len(), 1);
    }

    #[test]
    fn tests_may_use_the_second_codec() {
        let metadata = json!({"packages": [{"name": "sluice-protocol", "dependencies": [{"name": "kafka-protocol", "kind": "dev"}]}]});
        assert!(violations(&metadata).is_empty());
    }
}
