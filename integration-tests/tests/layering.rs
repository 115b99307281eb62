//! The crates use each other as `ARCHITECTURE.md` draws it, and in no other way.

use std::path::Path;
use std::process::Command;

#[test]
fn crates_use_only_what_lies_below_them() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    assert!(metadata["packages"].as_array().is_some_and(|packages| packages.len() >= 8));
    let violations = integration_tests::layering::violations(&metadata);
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn the_broker_uses_the_client_for_its_commands_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../broker/src");
    let mut sources = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the sources are there") {
            let path = entry.expect("a folder can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name =
                    path.strip_prefix(&root).expect("below it").to_str().expect("plain names").to_owned();
                sources.push((name, std::fs::read_to_string(&path).expect("text")));
            }
        }
    }
    assert!(sources.len() > 50);
    let pairs = sources.iter().map(|(path, text)| (path.as_str(), text.as_str()));
    assert_eq!(integration_tests::layering::client_uses(pairs), [] as [String; 0]);
}
