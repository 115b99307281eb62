//! docs/key-share-protocol.md lists every field of the key-share messages as the schemas define them. With
//! `SLUICE_WRITE_DOCS=1` this writes the tables.

#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

const SCHEMAS: [&str; 10] = [
    include_str!("../schemas/KeyShareFetchRequest.json"),
    include_str!("../schemas/KeyShareFetchResponse.json"),
    include_str!("../schemas/KeyShareAcknowledgeRequest.json"),
    include_str!("../schemas/KeyShareAcknowledgeResponse.json"),
    include_str!("../schemas/KeyShareCommitRequest.json"),
    include_str!("../schemas/KeyShareCommitResponse.json"),
    include_str!("../schemas/KeyShareDescribeRequest.json"),
    include_str!("../schemas/KeyShareDescribeResponse.json"),
    include_str!("../schemas/KeyShareAlterRequest.json"),
    include_str!("../schemas/KeyShareAlterResponse.json"),
];

/// One row a field in wire order; a field of an array's elements stands behind it, one dot deeper.
fn rows(table: &mut String, holder: &Value, depth: usize) {
    for field in holder["fields"].as_array().into_iter().flatten() {
        let text = |name: &str| field[name].as_str().unwrap_or_default();
        let is_struct = field.get("fields").is_some();
        let kind = match (text("type").strip_prefix("[]"), is_struct) {
            (Some(_), true) => "array".to_owned(),
            (Some(element), false) => format!("array of {element}"),
            (None, true) => "struct".to_owned(),
            (None, false) => text("type").to_owned(),
        };
        let nullable = if field.get("nullableVersions").is_some() { ", or null" } else { "" };
        let dots = "· ".repeat(depth);
        writeln!(
            table,
            "| {dots}`{}` | {kind}{nullable} | {} |",
            text("name"),
            text("about").replace('|', "\\|")
        )
        .unwrap();
        rows(table, field, depth + 1);
    }
}

fn tables() -> Vec<(String, String)> {
    let table = |schema: &str| {
        let schema: Value = serde_json::from_str(schema).unwrap();
        let name = schema["name"].as_str().unwrap().to_owned();
        let mut table = format!("**{name}**\n\n| field | type | meaning |\n|---|---|---|\n");
        rows(&mut table, &schema, 0);
        (name, table)
    };
    SCHEMAS.into_iter().map(table).collect()
}

#[test]
fn the_page_lists_every_field_as_the_schemas_do() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/key-share-protocol.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let mut wanted = page.clone();
    for (name, table) in tables() {
        let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
        let from =
            wanted.find(&begin).unwrap_or_else(|| panic!("{name} has no place on the page")) + begin.len();
        let to = wanted.find(&end).unwrap_or_else(|| panic!("{name} has no end on the page"));
        wanted.replace_range(from..to, &table);
    }
    if std::env::var_os("SLUICE_WRITE_DOCS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
        return;
    }
    assert!(
        page == wanted,
        "the page is out of date: run the test with SLUICE_WRITE_DOCS=1 and look at the change"
    );
}
