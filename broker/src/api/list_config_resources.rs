//! ListConfigResources (key 74, v0–v1).
//!
//! Names the resources that have settings. v0 is ListClientMetricsResources (KIP-714), of which there are none; v1
//! tells all kinds or those asked for (KIP-1142): this broker, all topics, and the groups on which something is set,
//! whether they have members or not.

use protocol::wire::list_config_resources_response::ConfigResource;
use protocol::wire::{ListConfigResourcesRequest, ListConfigResourcesResponse};
use protocol::{ErrorCode, StrBytes};

use super::resource::ResourceType;
use crate::catalog::Image;
use crate::context::RequestContext;

/// Answers at once.
#[must_use]
pub fn handle(cx: &RequestContext, request: &ListConfigResourcesRequest) -> ListConfigResourcesResponse {
    let mut answer = ListConfigResourcesResponse::default();
    if cx.api_version == 0 {
        return answer;
    }
    let asked: Option<Vec<ResourceType>> =
        request.resource_types.iter().map(|code| ResourceType::from_code(*code)).collect();
    let Some(asked) = asked else {
        answer.error_code = ErrorCode::UnsupportedVersion.code();
        return answer;
    };
    let image = cx.broker.catalog.image();
    for kind in ResourceType::ALL {
        if asked.is_empty() || asked.contains(&kind) {
            let named = |name: StrBytes| {
                let mut resource = ConfigResource::default();
                resource.resource_name = name;
                resource.resource_type = kind.code();
                resource
            };
            answer.config_resources.extend(names(cx, &image, kind).into_iter().map(named));
        }
    }
    answer
}

fn names(cx: &RequestContext, image: &Image, kind: ResourceType) -> Vec<StrBytes> {
    match kind {
        ResourceType::Topic => image.topics().map(|topic| StrBytes::from(&*topic.name)).collect(),
        ResourceType::Broker => vec![StrBytes::from(cx.broker.node_id.to_string())],
        ResourceType::BrokerLogger | ResourceType::ClientMetrics => Vec::new(),
        ResourceType::Group => image.groups().map(|(group, _)| StrBytes::from(&**group)).collect(),
    }
}
