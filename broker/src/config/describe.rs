//! Settings as tools are shown them: what holds, where it comes from, and what would hold otherwise.

use super::definition::{Definition, Fallback};
use super::{Config, Overrides, broker, group, topic};

/// Where a value comes from, with the numbers of DescribeConfigs (`DescribeConfigsResponse.ConfigSource`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum Source {
    /// Set on the topic.
    Topic = 1,
    /// Set in the broker's file or command line.
    Static = 4,
    /// Nobody set it.
    Default = 5,
    /// Set on the group.
    Group = 8,
}

/// One value that a setting has or would have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synonym {
    /// The setting's own name, or the broker setting's that it falls back to.
    pub name: &'static str,
    /// The value as that setting has it, in its unit.
    pub value: String,
    /// Who set it.
    pub source: Source,
}

/// One setting of a resource.
#[derive(Clone, Debug)]
pub struct Described {
    /// What it is.
    pub definition: &'static Definition,
    /// What holds; `None` where nothing does.
    pub value: Option<String>,
    /// Where it comes from.
    pub source: Source,
    /// What was looked at, the first holds (`ConfigHelper`, `DescribeConfigsResponse.ConfigSynonym`).
    pub synonyms: Vec<Synonym>,
}

impl Config {
    /// All settings of a topic, by name.
    #[must_use]
    pub fn describe_topic(&self, own: &Overrides) -> Vec<Described> {
        let unlisted = topic::UNLISTED.iter().filter(|definition| own.contains_key(definition.name));
        let table = topic::TOPIC.iter().chain(unlisted);
        table.map(|definition| self.describe(definition, own, Source::Topic)).collect()
    }

    /// All settings of a group, by name. A group that nobody has set anything on has them too.
    #[must_use]
    pub fn describe_group(&self, own: &Overrides) -> Vec<Described> {
        let mut all: Vec<Described> =
            group::GROUP.iter().map(|definition| self.describe(definition, own, Source::Group)).collect();
        for described in &mut all {
            // Kafka names the default of a group's setting that no broker setting stands behind.
            if let (true, Some(default)) =
                (described.definition.fallbacks.is_empty(), described.definition.default)
            {
                described.synonyms.push(default_of(described.definition.name, default));
            }
        }
        all
    }

    /// All settings of the broker, in the order of their table.
    #[must_use]
    pub fn describe_broker(&self) -> Vec<Described> {
        broker::BROKER.iter().map(|definition| self.describe_own(definition)).collect()
    }

    fn describe(&self, definition: &'static Definition, own: &Overrides, owner: Source) -> Described {
        let mut synonyms = Vec::new();
        if let Some(value) = own.get(definition.name) {
            synonyms.push(Synonym { name: definition.name, value: value.clone(), source: owner });
        }
        for Fallback { name, .. } in definition.fallbacks {
            synonyms.extend(self.set_and_default(name));
        }
        let source = synonyms.first().map_or(Source::Default, |first| first.source);
        Described { definition, value: self.value(definition, own), source, synonyms }
    }

    fn describe_own(&self, definition: &'static Definition) -> Described {
        let mut synonyms = self.set_and_default(definition.name);
        if synonyms.is_empty() && definition.name == "node.id" {
            // Without a file there still is a number.
            synonyms.push(default_of("node.id", &self.node_id.to_string()));
        }
        let (value, source) = match synonyms.first() {
            Some(first) => (Some(first.value.clone()), first.source),
            None => (None, Source::Default),
        };
        Described { definition, value, source, synonyms }
    }

    /// What was set of a broker setting, then its default, as far as there are such.
    fn set_and_default(&self, name: &str) -> Vec<Synonym> {
        let definition = super::find(broker::BROKER, name).expect("a setting of the table");
        let set = self.set.get(name).map(|value| Synonym {
            name: definition.name,
            value: value.clone(),
            source: Source::Static,
        });
        let default = definition.default.map(|value| default_of(definition.name, value));
        set.into_iter().chain(default).collect()
    }
}

fn default_of(name: &'static str, value: &str) -> Synonym {
    Synonym { name, value: value.to_owned(), source: Source::Default }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(described: Vec<Described>, name: &str) -> Described {
        described.into_iter().find(|one| one.definition.name == name).expect("it is in the list")
    }

    fn plain(described: &Described) -> Vec<(&str, &str, Source)> {
        described.synonyms.iter().map(|one| (one.name, one.value.as_str(), one.source)).collect()
    }

    fn own(name: &str, value: &str) -> Overrides {
        [(name.to_owned(), value.to_owned())].into()
    }

    #[test]
    fn a06_defaults_of_a_topic_are_the_brokers() {
        let config = Config::defaults();
        let all = config.describe_topic(&Overrides::new());
        assert_eq!(all.len(), 37);
        assert!(all.iter().all(|one| one.source == Source::Default && one.value.is_some()));
        let segment = one(all, "segment.bytes");
        assert_eq!(plain(&segment), [("log.segment.bytes", "1073741824", Source::Default)]);
    }

    #[test]
    fn a06_what_is_set_comes_first_then_the_file_then_the_default() {
        let config = Config::with(&[("log.roll.ms", "7000000"), ("log.roll.hours", "7")]).unwrap();
        let inherited = one(config.describe_topic(&Overrides::new()), "segment.ms");
        assert_eq!((inherited.value.as_deref(), inherited.source), (Some("7000000"), Source::Static));
        let behind = [
            ("log.roll.ms", "7000000", Source::Static),
            ("log.roll.hours", "7", Source::Static),
            ("log.roll.hours", "168", Source::Default),
        ];
        assert_eq!(plain(&inherited), behind);
        let set = one(config.describe_topic(&own("segment.ms", "5")), "segment.ms");
        assert_eq!((set.value.as_deref(), set.source), (Some("5"), Source::Topic));
        assert_eq!(plain(&set)[0], ("segment.ms", "5", Source::Topic));
        assert_eq!(plain(&set)[1..], behind);
    }

    #[test]
    fn values_in_other_units_hold_in_the_topics() {
        let config = Config::with(&[("log.retention.hours", "2")]).unwrap();
        let retention = one(config.describe_topic(&Overrides::new()), "retention.ms");
        assert_eq!((retention.value.as_deref(), retention.source), (Some("7200000"), Source::Static));
    }

    #[test]
    fn a07_a_group_has_settings_before_it_exists() {
        let config = Config::with(&[("group.share.session.timeout.ms", "50000")]).unwrap();
        let all = config.describe_group(&own("share.auto.offset.reset", "earliest"));
        let reset = one(all.clone(), "share.auto.offset.reset");
        assert_eq!(
            plain(&reset),
            [
                ("share.auto.offset.reset", "earliest", Source::Group),
                ("share.auto.offset.reset", "latest", Source::Default)
            ]
        );
        let timeout = one(all, "share.session.timeout.ms");
        assert_eq!((timeout.value.as_deref(), timeout.source), (Some("50000"), Source::Static));
    }

    #[test]
    fn a_broker_without_a_file_has_a_number() {
        let node = one(Config::defaults().describe_broker(), "node.id");
        assert_eq!((node.value.as_deref(), node.source), (Some("1"), Source::Default));
        let node = one(Config::with(&[("node.id", "7")]).unwrap().describe_broker(), "node.id");
        assert_eq!((node.value.as_deref(), node.source), (Some("7"), Source::Static));
    }

    #[test]
    fn everything_is_documented() {
        let config = Config::defaults();
        for one in config
            .describe_broker()
            .into_iter()
            .chain(config.describe_topic(&Overrides::new()))
            .chain(config.describe_group(&Overrides::new()))
        {
            assert!(one.definition.doc.ends_with('.'), "{}", one.definition.name);
        }
    }
}
