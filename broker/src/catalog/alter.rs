//! Changes of single settings (KIP-339): what they make of what is set, and the change itself.

use std::sync::Arc;

use super::{Catalog, CatalogError, check_group_config, check_topic_config};
use crate::config::definition::list;
use crate::config::{Config, Overrides, find, group, topic};

/// What becomes of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has this value.
    Set(String),
    /// It has the default again. Settings that do not exist are at their default.
    Unset,
    /// These entries are added to its list, which is the default's where nothing is set.
    Append(String),
    /// These entries are taken out of its list.
    Subtract(String),
}

impl Catalog {
    /// Changes settings of a topic, all or none. With `only_check` nothing happens.
    ///
    /// # Errors
    /// Where there is no such topic, a setting does not take its value, or the change could not be stored.
    pub async fn alter_topic(
        &self,
        name: &str,
        changes: &[(String, Change)],
        only_check: bool,
    ) -> Result<(), CatalogError> {
        let _one = self.change.lock().await;
        let before = self.image().topic(name).cloned().ok_or(CatalogError::UnknownTopic)?;
        let after = altered_topic(&self.config, &before.configs, changes)?;
        if only_check || after == before.configs {
            return Ok(());
        }
        self.replace_topic_configs(name, after).await
    }

    /// Changes settings of a group, all or none; the group need not exist. With `only_check` nothing happens.
    ///
    /// # Errors
    /// Where a setting does not take its value, or the change could not be stored.
    pub async fn alter_group(
        &self,
        group: &Arc<str>,
        changes: &[(String, Change)],
        only_check: bool,
    ) -> Result<(), CatalogError> {
        let _one = self.change.lock().await;
        let before = self.image().group(group).map(|own| Overrides::clone(own)).unwrap_or_default();
        let after = altered_group(&self.config, &before, changes)?;
        if only_check || after == before {
            return Ok(());
        }
        self.replace_group_configs(group, after).await
    }
}

fn altered_topic(
    config: &Config,
    before: &Overrides,
    changes: &[(String, Change)],
) -> Result<Overrides, CatalogError> {
    let inherited = |name: &str| {
        let definition = find(topic::TOPIC, name).filter(|definition| definition.kind.is_list())?;
        Some(config.value(definition, before).unwrap_or_default())
    };
    let after = altered(before, changes, inherited, check_topic_config)?;
    topic::check_together(config, &after)?;
    Ok(after)
}

fn altered_group(
    config: &Config,
    before: &Overrides,
    changes: &[(String, Change)],
) -> Result<Overrides, CatalogError> {
    let inherited = |name: &str| {
        let definition = find(group::GROUP, name).filter(|definition| definition.kind.is_list())?;
        Some(config.value(definition, before).unwrap_or_default())
    };
    altered(before, changes, inherited, |name, value| check_group_config(config, name, value))
}

/// `list_now` gives what a list holds, set or not, and `None` where the setting is no list.
fn altered(
    before: &Overrides,
    changes: &[(String, Change)],
    list_now: impl Fn(&str) -> Option<String>,
    check: impl Fn(&str, &str) -> Result<(&'static str, String), CatalogError>,
) -> Result<Overrides, CatalogError> {
    let mut after = before.clone();
    let current = |name: &str| {
        list_now(name).ok_or_else(|| {
            let name = name.escape_debug();
            CatalogError::Config(format!("{name} is no list: set it instead of appending or subtracting"))
        })
    };
    for (name, change) in changes {
        let value = match change {
            Change::Unset => {
                after.remove(name);
                continue;
            }
            Change::Set(value) => value.clone(),
            Change::Append(added) => {
                let now = current(name)?;
                list(&now).into_iter().chain(list(added)).collect::<Vec<_>>().join(",")
            }
            Change::Subtract(gone) => {
                let now = current(name)?;
                let gone = list(gone);
                list(&now).into_iter().filter(|entry| !gone.contains(entry)).collect::<Vec<_>>().join(",")
            }
        };
        let (name, plain) = check(name, &value)?;
        after.insert(name.to_owned(), plain);
    }
    Ok(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic_after(before: &Overrides, name: &str, change: Change) -> Result<Option<String>, CatalogError> {
        let changes = [(name.to_owned(), change)];
        Ok(altered_topic(&Config::defaults(), before, &changes)?.get(name).cloned())
    }

    fn policy(value: &str) -> Overrides {
        [("cleanup.policy".to_owned(), value.to_owned())].into()
    }

    #[test]
    fn a05_lists_grow_and_shrink_from_their_default() {
        let name = "cleanup.policy";
        let compact = || Change::Append("compact".to_owned());
        let delete = || Change::Subtract("delete".to_owned());
        let grown = topic_after(&Overrides::new(), name, compact()).unwrap();
        assert_eq!(grown.as_deref(), Some("delete,compact"));
        assert_eq!(topic_after(&policy("delete,compact"), name, compact()).unwrap(), grown);
        let shrunk = topic_after(&policy("delete,compact"), name, delete()).unwrap();
        assert_eq!(shrunk.as_deref(), Some("compact"));
        assert_eq!(topic_after(&policy("compact"), name, delete()).unwrap(), shrunk);
        assert_eq!(topic_after(&Overrides::new(), name, delete()).unwrap().as_deref(), Some(""));
        assert_eq!(topic_after(&policy("compact"), name, Change::Unset).unwrap(), None);
    }

    #[test]
    fn a05_what_is_no_list_is_not_appended_to() {
        for name in ["retention.ms", "no.such.setting"] {
            for change in [Change::Append("5".to_owned()), Change::Subtract("5".to_owned())] {
                let error = topic_after(&Overrides::new(), name, change).unwrap_err();
                assert!(matches!(&error, CatalogError::Config(text) if text.contains(name)), "{error}");
            }
        }
    }

    #[test]
    fn a04_bad_values_name_their_setting() {
        for (name, value) in [
            ("compression.type", "foo"),
            ("cleanup.policy", "compactt"),
            ("retention.ms", "abc"),
            ("no.such.setting", "1"),
            ("segment.bytes", "5"),
            ("remote.storage.enable", "true"),
        ] {
            let error = topic_after(&Overrides::new(), name, Change::Set(value.to_owned())).unwrap_err();
            assert!(matches!(&error, CatalogError::Config(text) if text.contains(name)), "{error}");
        }
        assert_eq!(topic_after(&Overrides::new(), "no.such.setting", Change::Unset).unwrap(), None);
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        let least: Overrides = [("min.compaction.lag.ms".to_owned(), "9".to_owned())].into();
        let change = || Change::Set("5".to_owned());
        assert!(topic_after(&least, "max.compaction.lag.ms", change()).is_err());
        assert!(topic_after(&Overrides::new(), "max.compaction.lag.ms", change()).is_ok());
    }

    #[test]
    fn one_bad_change_undoes_the_others() {
        let changes = [
            ("share.isolation.level".to_owned(), Change::Set("read_committed".to_owned())),
            ("zz".to_owned(), Change::Set("1".to_owned())),
        ];
        let before = Overrides::new();
        assert!(altered_group(&Config::defaults(), &before, &changes).is_err());
        let after = altered_group(&Config::defaults(), &before, &changes[..1]).unwrap();
        assert_eq!(after.get("share.isolation.level").map(String::as_str), Some("read_committed"));
    }
}
