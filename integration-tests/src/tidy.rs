//! The rules of the house that no compiler knows, as pure functions over file texts.
//!
//! `tests/tidy.rs` runs them over every tracked file; the tests below break each rule on purpose.

use std::fmt;
use std::path::{Component, Path, PathBuf};

/// No source file is longer, unless a line near its top begins with [`LONG_FILE_MARK`] and says why.
pub const LINES_MAX: usize = 700;

/// Begins the line that excuses a long file.
pub const LONG_FILE_MARK: &str = "//! Long because ";

/// One broken rule at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Path relative to the repository's root.
    pub file: PathBuf,
    /// Line, from 1; 0 for the whole file.
    pub line: usize,
    /// What is wrong and what to do.
    pub text: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.text)
    }
}

/// Checks one file. `exists` tells whether a path, relative to the root, is there.
pub fn check(file: &Path, text: &str, exists: &dyn Fn(&Path) -> bool) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let mut complain = |line: usize, text: String| {
        complaints.push(Complaint { file: file.to_owned(), line, text });
    };
    let extension = file.extension().and_then(|e| e.to_str()).unwrap_or_default();
    let is_code = matches!(extension, "rs" | "java" | "go" | "py" | "js" | "mjs" | "sh");
    if is_code {
        let lines = text.lines().count();
        let excused = text.lines().take(10).any(|line| line.starts_with(LONG_FILE_MARK));
        if lines > LINES_MAX && !excused {
            complain(0, format!("{lines} lines, {LINES_MAX} at most: find the better cut"));
        }
    }
    for (index, line) in text.lines().enumerate() {
        for (word, why) in banned_words() {
            if line.contains(&word) {
                complain(index + 1, format!("{word:?}: {why}"));
            }
        }
        if is_code && line.ends_with([' ', '\t']) {
            complain(index + 1, "white space at the end of the line".to_owned());
        }
    }
    if extension == "md" {
        for (line, target) in links(text) {
            let path = resolve(file, &target);
            if !exists(&path) {
                complain(line, format!("dead link: {target}"));
            }
        }
    }
    complaints
}

/// Words that must not stand in any file, put together here so that this file does not hold them.
fn banned_words() -> Vec<(String, &'static str)> {
    let join = |parts: &[&str]| parts.concat();
    vec![
        (join(&["/wo", "rk/"]), "a path of one machine"),
        (join(&["/tm", "p/wt"]), "a path of one machine"),
        (join(&["/ro", "ot/"]), "a path of one machine"),
        (join(&["index.cra", "tes.io"]), "a registry host"),
        (join(&["repo.maven.ap", "ache.org"]), "a registry host"),
        (join(&["repo1.mav", "en.org"]), "a registry host"),
        (join(&["proxy.gol", "ang.org"]), "a registry host"),
        (join(&["registry.np", "mjs.org"]), "a registry host"),
        (join(&["pypi.", "org"]), "a registry host"),
        (join(&["deb.deb", "ian.org"]), "a registry host"),
        (join(&["FIX", "ME"]), "mend it, or open an issue"),
        (join(&["TO", "DO"]), "do it, or open an issue"),
        (join(&["XX", "X "]), "say what is wrong instead"),
    ]
}

/// Relative links of a Markdown text: line and target without its fragment.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_fence = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        }
        if in_fence {
            continue;
        }
        let mut rest = line;
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            let Some(end) = rest.find(')') else { break };
            let target = rest[..end].split('#').next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push((index + 1, target.to_owned()));
            }
            rest = &rest[end..];
        }
    }
    found
}

/// The path that `target` means in `file`, from the root, with `..` taken away.
fn resolve(file: &Path, target: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for component in file.parent().unwrap_or(Path::new("")).join(target).components() {
        match component {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(file: &str, text: &str) -> Vec<String> {
        let exists = |path: &Path| path == Path::new("docs/there.md");
        check(Path::new(file), text, &exists).into_iter().map(|c| c.text).collect()
    }

    #[test]
    fn long_files_need_a_reason() {
        let long = "//! Doc.\n".repeat(LINES_MAX + 1);
        assert_eq!(complaints("a.rs", &long).len(), 1);
        assert!(complaints("a.rs", &format!("{LONG_FILE_MARK}it is a table.\n{long}")).is_empty());
        assert!(complaints("a.rs", &"//! Doc.\n".repeat(LINES_MAX)).is_empty());
    }

    #[test]
    fn banned_words_are_found() {
        for (word, _) in banned_words() {
            assert_eq!(complaints("a.md", &format!("see {word}x")).len(), 1, "{word}");
        }
    }

    #[test]
    fn dead_links_are_found() {
        assert!(
            complaints("README.md", "[a](docs/there.md#part) [b](https://example.com) [c](#here)").is_empty()
        );
        assert!(complaints("docs/other.md", "[a](there.md) [b](../docs/there.md)").is_empty());
        assert_eq!(complaints("README.md", "[a](docs/gone.md)"), ["dead link: docs/gone.md"]);
        assert!(complaints("README.md", "```\n[a](docs/gone.md)\n```").is_empty());
    }

    #[test]
    fn trailing_space_is_found() {
        assert_eq!(complaints("a.rs", "let a = 1; \n").len(), 1);
    }
}
