//! The crates use each other as `ARCHITECTURE.md` draws it, and in no other way.

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
