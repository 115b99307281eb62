//! docs/configuration.md lists every setting as the code defines it. With `SLUICE_WRITE_DOCS=1` this writes the page.

#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::path::Path;

use broker::config::broker::{BROKER, WITHOUT_EFFECT};
use broker::config::definition::{Definition, Kind};
use broker::config::group::GROUP;
use broker::config::topic::{TOPIC, UNLISTED};

const HEAD: &str = "# Settings

Names, values and defaults are Apache Kafka 4.4's where Kafka has the setting; what is Sluice's own begins with
`sluice.`, or stands under `group.sluice.`. This page is made from the code: a test holds it to that.

- A configuration file (`sluice serve --config FILE`) takes the settings of the broker, one `name=value` a line. A name
  that is unknown is refused, with the line and the nearest name.
- Topics and groups are set by Kafka's own means (`kafka-configs --entity-type topics`, `--entity-type groups`), also
  before the group has a member, and changes take effect at once. Where nothing is set, the broker's setting holds.
- Logs go to stderr; the environment variable `SLUICE_LOG` chooses how much (`warn`, `info`, `debug`, or a filter such as
  `broker::net=debug`).
- `sluice.metrics.listen` gives Prometheus its page, `http://HOST:PORT/metrics`.
";

fn values(kind: &Kind) -> String {
    let range = |low: String, high: String, most: String| {
        if high == most { format!("from {low}") } else { format!("{low} to {high}") }
    };
    match kind {
        Kind::Boolean => "true, false".to_owned(),
        Kind::Off(_) => "false".to_owned(),
        Kind::Short(low, high) => range(low.to_string(), high.to_string(), i16::MAX.to_string()),
        Kind::Int(low, high) => range(low.to_string(), high.to_string(), i32::MAX.to_string()),
        Kind::Long(low, high) => range(low.to_string(), high.to_string(), i64::MAX.to_string()),
        Kind::Double(low, high) => range(low.to_string(), high.to_string(), f64::MAX.to_string()),
        Kind::MinusOneOr(low, high) => format!("-1, or {low} to {high}"),
        Kind::Text => "text".to_owned(),
        Kind::Choice(words) => words.join(", "),
        Kind::List([]) | Kind::Replicas => "list".to_owned(),
        Kind::List(words) => format!("list of {}", words.join(", ")),
    }
}

fn default(definition: &Definition) -> String {
    let names: Vec<String> = definition.fallbacks.iter().map(|one| format!("`{}`", one.name)).collect();
    match (definition.default, names.is_empty()) {
        (Some(""), true) => "empty".to_owned(),
        (Some(default), true) => format!("`{default}`"),
        (_, false) => names.join(", "),
        (None, true) => String::new(),
    }
}

fn table(page: &mut String, title: &str, settings: &[&Definition]) {
    writeln!(page, "\n## {title}\n\n| setting | values | default | meaning |\n|---|---|---|---|").unwrap();
    for one in settings {
        let doc = one.doc.replace('|', "\\|");
        writeln!(page, "| `{}` | {} | {} | {doc} |", one.name, values(&one.kind), default(one)).unwrap();
    }
}

fn page() -> String {
    let ours = |one: &&Definition| one.name.contains("sluice.");
    let pick = |all: &'static [Definition], own: bool| -> Vec<&'static Definition> {
        all.iter().filter(|one| ours(one) == own).collect()
    };
    let mut page = HEAD.to_owned();
    table(&mut page, "Groups: key order", &pick(GROUP, true));
    table(&mut page, "Groups: as in Kafka", &pick(GROUP, false));
    table(&mut page, "Topics", &TOPIC.iter().collect::<Vec<_>>());
    // Not listed by tools where it is not set.
    table(
        &mut page,
        "Topics: Sluice's own",
        &UNLISTED.iter().filter(|one| one.name == "flush.policy").collect::<Vec<_>>(),
    );
    table(&mut page, "Broker: Sluice's own", &pick(BROKER, true));
    table(&mut page, "Broker: as in Kafka", &pick(BROKER, false));
    writeln!(page, "\n## Taken without an effect\n").unwrap();
    writeln!(page, "So that a configuration file of Kafka's can be used, these are read, and said to be without effect at the start:").unwrap();
    let names: Vec<String> = WITHOUT_EFFECT.iter().map(|name| format!("`{name}`")).collect();
    writeln!(page, "{}.", names.join(", ")).unwrap();
    page
}

#[test]
fn the_page_of_settings_is_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    if std::env::var_os("SLUICE_WRITE_DOCS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page(),
        "docs/configuration.md is not what the code defines: SLUICE_WRITE_DOCS=1 cargo test -p sluice-broker \
         --test configuration_page writes it"
    );
}
