//! DescribeConfigs (key 32, v1–v4).
//!
//! Settings of topics, groups and this broker, defaults included; all of them, or those whose names are asked for. A
//! group need not exist (KIP-1240). v1 adds synonyms: what was looked at, the first holds (KIP-226); v3 types and
//! documentation (KIP-569). Nothing of the broker can be changed while it runs, so all of it is read-only. A kind of
//! resource that does not exist refuses the whole request, as in Kafka. Left out: loggers, metrics of clients;
//! sensitive settings, which there are none of.

use protocol::wire::describe_configs_request::DescribeConfigsResource;
use protocol::wire::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use protocol::wire::{DescribeConfigsRequest, DescribeConfigsResponse};
use protocol::{ErrorCode, StrBytes};

use super::fixed;
use super::refusal::Refusal;
use super::resource::{self, BrokerName, ResourceType};
use crate::catalog::{CatalogError, names};
use crate::config::{Described, Overrides};
use crate::context::RequestContext;

/// Resources of one request: each takes a few bytes to ask for and thousands to answer. The stock tool asks for all
/// topics at once.
const RESOURCES_MAX: usize = 10_000;

/// Answers at once.
#[must_use]
pub fn handle(cx: &RequestContext, request: &DescribeConfigsRequest) -> DescribeConfigsResponse {
    let kinds: Option<Vec<ResourceType>> =
        request.resources.iter().map(|resource| ResourceType::from_code(resource.resource_type)).collect();
    let mut answer = DescribeConfigsResponse::default();
    for (place, resource) in request.resources.iter().enumerate() {
        let described = match &kinds {
            Some(_) if request.resources.len() > RESOURCES_MAX => {
                Err(Refusal::invalid(format!("too many resources: name {RESOURCES_MAX} at most")))
            }
            Some(kinds) => describe(cx, kinds[place], resource),
            None => Err(Refusal::invalid("unknown resource type: use 2 (topic), 4 (broker) or 32 (group)")),
        };
        answer.results.push(result(cx, request, resource, described));
    }
    answer
}

fn describe(
    cx: &RequestContext,
    kind: ResourceType,
    resource: &DescribeConfigsResource,
) -> Result<Vec<Described>, Refusal> {
    let name = &*resource.resource_name;
    let config = &cx.broker.config;
    let image = cx.broker.catalog.image();
    match kind {
        ResourceType::Topic => {
            names::check(name).map_err(CatalogError::Name)?;
            let topic = image.topic(name).ok_or(CatalogError::UnknownTopic)?;
            Ok(config.describe_topic(&topic.configs))
        }
        ResourceType::Group if name.is_empty() => {
            Err(Refusal::invalid("a group's id is empty: name a group"))
        }
        ResourceType::Group => {
            let nothing = Overrides::new();
            Ok(config.describe_group(image.group(name).map_or(&nothing, |own| own)))
        }
        ResourceType::Broker => match resource::broker(cx, name)? {
            BrokerName::This => Ok(config.describe_broker()),
            // What is set for all brokers while they run: nothing.
            BrokerName::All => Ok(Vec::new()),
        },
        ResourceType::BrokerLogger | ResourceType::ClientMetrics => Err(resource::not_served(kind)),
    }
}

fn result(
    cx: &RequestContext,
    request: &DescribeConfigsRequest,
    resource: &DescribeConfigsResource,
    described: Result<Vec<Described>, Refusal>,
) -> DescribeConfigsResult {
    let mut result = DescribeConfigsResult::default();
    result.resource_type = resource.resource_type;
    result.resource_name = resource.resource_name.clone();
    let keys = resource.configuration_keys.as_deref().unwrap_or_default();
    match described {
        Ok(described) => {
            let read_only = ResourceType::from_code(resource.resource_type) == Some(ResourceType::Broker);
            result.error_code = ErrorCode::None.code();
            result.configs = described
                .into_iter()
                .filter(|one| keys.is_empty() || keys.iter().any(|key| **key == *one.definition.name))
                .map(|one| setting(cx, request, one, read_only))
                .collect();
        }
        Err(refusal) => {
            result.error_code = refusal.code.code();
            result.error_message = refusal.message();
        }
    }
    result
}

fn setting(
    cx: &RequestContext,
    request: &DescribeConfigsRequest,
    described: Described,
    read_only: bool,
) -> DescribeConfigsResourceResult {
    let mut setting = DescribeConfigsResourceResult::default();
    setting.name = fixed(described.definition.name);
    setting.value = described.value.map(StrBytes::from);
    setting.read_only = read_only;
    setting.config_source = described.source as i8;
    if request.include_synonyms {
        setting.synonyms = described
            .synonyms
            .into_iter()
            .map(|one| {
                let mut synonym = DescribeConfigsSynonym::default();
                synonym.name = fixed(one.name);
                synonym.value = Some(StrBytes::from(one.value));
                synonym.source = one.source as i8;
                synonym
            })
            .collect();
    }
    setting.documentation = None;
    if cx.api_version >= 3 {
        setting.config_type = described.definition.kind.wire_type();
        if request.include_documentation {
            setting.documentation = Some(fixed(described.definition.doc));
        }
    }
    setting
}
