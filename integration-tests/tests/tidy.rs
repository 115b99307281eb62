//! Every tracked file keeps the rules of the house (`integration_tests::tidy`), and every API has its file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace").to_owned()
}

fn tracked() -> Vec<PathBuf> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let list = String::from_utf8(output.stdout).expect("paths are UTF-8");
    list.split('\0').filter(|path| !path.is_empty()).map(PathBuf::from).collect()
}

#[test]
fn files_keep_the_rules() {
    let files = tracked();
    assert!(files.len() > 30, "git lists only {} files", files.len());
    let exists = |path: &Path| root().join(path).exists();
    let mut complaints = Vec::new();
    for file in files {
        let Ok(text) = fs::read_to_string(root().join(&file)) else { continue };
        complaints.extend(integration_tests::tidy::check(&file, &text, &exists));
    }
    let text: Vec<String> = complaints.iter().map(ToString::to_string).collect();
    assert!(text.is_empty(), "{} complaints:\n{}", text.len(), text.join("\n"));
}

#[test]
fn the_root_holds_only_what_a_newcomer_needs() {
    let at_root: Vec<PathBuf> = tracked().into_iter().filter(|path| path.components().count() == 1).collect();
    assert!(at_root.len() <= 14, "root clutter: {at_root:?}");
}

/// A link whose text is a function's name leads to the file in which that function stands.
#[test]
fn tests_that_documents_name_are_where_their_links_lead() {
    let mut named = 0;
    for file in tracked().into_iter().filter(|file| file.extension().is_some_and(|end| end == "md")) {
        let Ok(text) = fs::read_to_string(root().join(&file)) else { continue };
        for link in text.split("[`").skip(1) {
            let Some((name, (target, _))) =
                link.split_once("`](").and_then(|(name, rest)| Some((name, rest.split_once(')')?)))
            else {
                continue;
            };
            let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !is_name || !target.ends_with(".rs") {
                continue;
            }
            let path = root().join(&file).parent().expect("a file stands in a folder").join(target);
            let code = fs::read_to_string(&path).unwrap_or_default();
            assert!(code.contains(&format!("fn {name}(")), "{}: no {name} in {target}", file.display());
            named += 1;
        }
    }
    assert!(named > 40, "{named} links to tests: they are written otherwise now");
}
