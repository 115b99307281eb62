//! IncrementalAlterConfigs (key 44, v0–v1).
//!
//! Changes single settings of topics and groups (KIP-339), all those of a resource or none; the change is stored
//! and holds when it is answered. Groups need not exist (KIP-1240). Values that a setting does not take, and appending to
//! what is no list, answer INVALID_CONFIG; missing values, operations that do not exist, settings and resources that
//! stand twice INVALID_REQUEST. Settings of the broker cannot be changed while it runs: INVALID_REQUEST, as Kafka
//! answers for those that it cannot change. Left out: loggers, metrics of clients.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use protocol::StrBytes;
use protocol::wire::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use protocol::wire::incremental_alter_configs_response::AlterConfigsResourceResponse;
use protocol::wire::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};

use super::refusal::Refusal;
use super::resource::{self, ResourceType};
use crate::catalog::{CatalogError, Change, names};
use crate::context::RequestContext;

/// Changes resources one after another.
pub async fn handle(
    cx: &RequestContext,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let mut counts: HashMap<(i8, StrBytes), u32> = HashMap::new();
    for resource in &request.resources {
        *counts.entry((resource.resource_type, resource.resource_name.clone())).or_default() += 1;
    }
    let mut answer = IncrementalAlterConfigsResponse::default();
    for resource in request.resources {
        let named = (resource.resource_type, resource.resource_name.clone());
        let changed = match counts[&named] {
            1 => alter(cx, &resource, request.validate_only).await,
            _ => Err(Refusal::invalid("the resource is named twice: name it once")),
        };
        let mut response = AlterConfigsResourceResponse::default();
        (response.resource_type, response.resource_name) = named;
        response.error_message = None;
        if let Err(refusal) = changed {
            response.error_code = refusal.code.code();
            response.error_message = refusal.message();
        }
        answer.responses.push(response);
    }
    answer
}

async fn alter(
    cx: &RequestContext,
    resource: &AlterConfigsResource,
    validate_only: bool,
) -> Result<(), Refusal> {
    let kind = ResourceType::from_code(resource.resource_type)
        .ok_or_else(|| Refusal::invalid("unknown resource type: use 2 (topic), 4 (broker) or 32 (group)"))?;
    let name = &*resource.resource_name;
    let changes = changes(&resource.configs)?;
    match kind {
        ResourceType::Topic if name.is_empty() => {
            Err(Refusal::invalid("the topic's name is empty: name a topic"))
        }
        ResourceType::Topic => {
            names::check(name).map_err(CatalogError::Name)?;
            Ok(cx.broker.catalog.alter_topic(name, &changes, validate_only).await?)
        }
        ResourceType::Group if name.is_empty() => {
            Err(Refusal::invalid("a group's id is empty: name a group"))
        }
        ResourceType::Group => {
            Ok(cx.broker.catalog.alter_group(&Arc::from(name), &changes, validate_only).await?)
        }
        ResourceType::Broker => {
            resource::broker(cx, name)?;
            refuse_broker(&changes)
        }
        ResourceType::BrokerLogger | ResourceType::ClientMetrics => Err(resource::not_served(kind)),
    }
}

/// Reads what becomes of each setting.
fn changes(asked: &[AlterableConfig]) -> Result<Vec<(String, Change)>, Refusal> {
    let mut seen = HashSet::new();
    asked
        .iter()
        .map(|setting| {
            let name = || setting.name.escape_debug();
            let value = || {
                let value = setting.value.as_ref().map(ToString::to_string);
                value.ok_or_else(|| Refusal::invalid(format!("{} has no value: give one, or delete it", name())))
            };
            let change = match setting.config_operation {
                0 => Change::Set(value()?),
                1 => Change::Unset,
                2 => Change::Append(value()?),
                3 => Change::Subtract(value()?),
                other => {
                    return Err(Refusal::invalid(format!(
                        "unknown operation {other} on {}: use 0 (set), 1 (delete), 2 (append) or 3 (subtract)",
                        name()
                    )));
                }
            };
            if !seen.insert(&setting.name) {
                return Err(Refusal::invalid(format!("{} stands twice: name it once", name())));
            }
            Ok((setting.name.to_string(), change))
        })
        .collect()
}

/// Nothing is set on a running broker, so taking something back changes nothing.
fn refuse_broker(changes: &[(String, Change)]) -> Result<(), Refusal> {
    let set = changes.iter().filter(|(_, change)| *change != Change::Unset);
    let names: Vec<String> = set.map(|(name, _)| name.escape_debug().to_string()).collect();
    match names.is_empty() {
        true => Ok(()),
        false => Err(Refusal::invalid(format!(
            "cannot change {} while the broker runs: set it in its configuration file and start it again",
            names.join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(name: &str, operation: i8, value: Option<&str>) -> AlterableConfig {
        let mut setting = AlterableConfig::default();
        setting.name = StrBytes::from(name);
        setting.config_operation = operation;
        setting.value = value.map(StrBytes::from);
        setting
    }

    #[test]
    fn a05_operations() {
        let asked = [
            setting("a", 0, Some("1")),
            setting("b", 1, None),
            setting("c", 2, Some("2")),
            setting("d", 3, Some("3")),
        ];
        let read = [
            ("a".to_owned(), Change::Set("1".to_owned())),
            ("b".to_owned(), Change::Unset),
            ("c".to_owned(), Change::Append("2".to_owned())),
            ("d".to_owned(), Change::Subtract("3".to_owned())),
        ];
        assert_eq!(changes(&asked).unwrap(), read);
        for bad in [
            vec![setting("a", 0, None)],
            vec![setting("a", 2, None)],
            vec![setting("a", 3, None)],
            vec![setting("a", 9, Some("1"))],
            vec![setting("a", -1, Some("1"))],
            vec![setting("a", 0, Some("1")), setting("a", 1, None)],
        ] {
            let refusal = changes(&bad).unwrap_err();
            assert_eq!(refusal.code, protocol::ErrorCode::InvalidRequest, "{bad:?}");
        }
    }

    #[test]
    fn the_broker_is_not_changed_while_it_runs() {
        let set = [("num.partitions".to_owned(), Change::Set("2".to_owned()))];
        assert!(refuse_broker(&set).is_err());
        assert!(refuse_broker(&[("num.partitions".to_owned(), Change::Unset)]).is_ok());
    }
}
