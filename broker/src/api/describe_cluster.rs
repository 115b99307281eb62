//! DescribeCluster (key 60, v0–v2).
//!
//! This broker, which is its own controller (KIP-700). v1 says what kind of endpoint is meant (KIP-919): controllers
//! have none here. v2 can ask for fenced brokers, of which there are none. Left out: racks.

use protocol::wire::describe_cluster_response::DescribeClusterBroker;
use protocol::wire::{DescribeClusterRequest, DescribeClusterResponse};
use protocol::{ErrorCode, StrBytes};

use super::authorized;
use super::refusal::Refusal;
use crate::context::RequestContext;

/// Endpoint type of brokers, and of controllers (`EndpointType`).
const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

/// Answers at once.
#[must_use]
pub fn handle(cx: &RequestContext, request: &DescribeClusterRequest) -> DescribeClusterResponse {
    let mut answer = DescribeClusterResponse::default();
    answer.error_message = None;
    answer.controller_id = -1;
    answer.cluster_authorized_operations = authorized::NOT_ASKED;
    if let Err(refusal) = check_endpoint(cx, request) {
        answer.error_code = refusal.code.code();
        answer.error_message = refusal.message();
        return answer;
    }
    answer.cluster_id = StrBytes::from(&*cx.broker.cluster_id);
    answer.controller_id = cx.broker.node_id;
    let mut broker = DescribeClusterBroker::default();
    broker.broker_id = cx.broker.node_id;
    broker.host = StrBytes::from(cx.broker.advertised.host.as_str());
    broker.port = i32::from(cx.broker.advertised.port);
    answer.brokers.push(broker);
    if request.include_cluster_authorized_operations {
        answer.cluster_authorized_operations = authorized::CLUSTER;
    }
    answer
}

fn check_endpoint(cx: &RequestContext, request: &DescribeClusterRequest) -> Result<(), Refusal> {
    match request.endpoint_type {
        BROKERS => Ok(()),
        _ if cx.api_version == 0 => Ok(()),
        CONTROLLERS => Err(Refusal::new(
            ErrorCode::MismatchedEndpointType,
            "this is a broker's endpoint: ask for brokers, there is no endpoint of controllers",
        )),
        other => Err(Refusal::new(
            ErrorCode::UnsupportedEndpointType,
            format!("unknown endpoint type {other}: ask for brokers (1)"),
        )),
    }
}
