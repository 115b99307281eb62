//! ApiVersions, DescribeCluster, Metadata.

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, BrokerId, DescribeClusterRequest, MetadataRequest,
};

use super::support::{Fixture, text, topic_name};

impl Fixture {
    fn api_versions(&mut self, version: i16) -> ApiVersionsResponse {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(text("test"))
            .with_client_software_version(text("1"));
        self.client.call(version, &request)
    }
}

#[test]
fn s30_features_are_those_of_kafka_4_4() {
    let mut fixture = Fixture::start();
    let answer = fixture.api_versions(4);
    let share = answer.supported_features.iter().find(|feature| &*feature.name == "share.version");
    let share = share.expect("share groups are a feature");
    assert_eq!((share.min_version, share.max_version), (0, 2));
    let level = |name: &str| {
        let feature = answer.finalized_features.iter().find(|feature| &*feature.name == name);
        feature.map(|feature| (feature.min_version_level, feature.max_version_level))
    };
    assert_eq!(level("share.version"), Some((2, 2)));
    // KIP-848, KIP-1071 and transactions are not served, so nobody is told that they are.
    for absent in ["group.version", "streams.version", "transaction.version"] {
        assert_eq!(level(absent), None, "{absent}");
        assert!(answer.supported_features.iter().all(|feature| &*feature.name != absent), "{absent}");
    }
    assert_eq!(level("metadata.version"), Some((33, 33)));
    assert!(answer.finalized_features_epoch >= 0);
    // Clients of v3 cannot read a least level of 0.
    let older = fixture.api_versions(3);
    assert!(older.supported_features.iter().all(|feature| feature.min_version > 0));
    assert!(fixture.api_versions(2).supported_features.is_empty());
}

#[test]
fn w19_a_client_says_which_broker_it_means() {
    let mut fixture = Fixture::start();
    let own = fixture.client.call(12, &MetadataRequest::default()).cluster_id.expect("a cluster id");
    // The last layout of the codec is version 4: version 5 adds cluster and node behind the names.
    let mut means = |cluster: Option<&str>, node: i32| {
        let mut body = vec![5, b't', b'e', b's', b't', 2, b'1'];
        match cluster {
            None => body.push(0),
            Some(cluster) => {
                body.push(u8::try_from(cluster.len() + 1).expect("a short id"));
                body.extend(cluster.as_bytes());
            }
        }
        body.extend(node.to_be_bytes());
        body.push(0);
        let answer = fixture.client.exchange(18, 5, 2, &body);
        (i16::from_be_bytes([answer[4], answer[5]]), answer[6] > 1)
    };
    let own = Some(&*own);
    for (cluster, node, code) in
        [(None, -1, 0), (own, 1, 0), (own, 7, 129), (Some("wrong"), 1, 129), (own, -1, 42), (None, 1, 42)]
    {
        assert_eq!(means(cluster, node), (code, code == 0), "{cluster:?} {node}");
    }
}

#[test]
fn describe_cluster() {
    let mut fixture = Fixture::start();
    let (host, port) = fixture.broker.bootstrap().rsplit_once(':').expect("HOST:PORT");
    let (host, port) = (host.to_owned(), port.parse::<i32>().expect("a port"));
    let request = DescribeClusterRequest::default()
        .with_endpoint_type(1)
        .with_include_cluster_authorized_operations(true);
    for version in 0..=2 {
        let answer = fixture.client.call(version, &request);
        assert_eq!((answer.error_code, answer.cluster_id.len()), (0, 22));
        assert_eq!(answer.controller_id, BrokerId(1));
        assert_eq!(answer.cluster_authorized_operations, 8096);
        let [broker] = &answer.brokers[..] else { panic!("one broker: {answer:?}") };
        assert_eq!((broker.broker_id, &*broker.host, broker.port), (BrokerId(1), host.as_str(), port));
    }
    for (endpoint, code) in [(2, 114), (0, 115), (7, 115)] {
        let other = DescribeClusterRequest::default().with_endpoint_type(endpoint);
        let answer = fixture.client.call(1, &other);
        assert_eq!((answer.error_code, answer.brokers.len()), (code, 0));
    }
}

#[test]
fn metadata_tells_what_may_be_done_with_topics_that_do_not_exist_too() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    let named = |name: &str| MetadataRequestTopic::default().with_name(Some(topic_name(name)));
    let request = MetadataRequest::default()
        .with_topics(Some(vec![named("t"), named("nope"), named("a b")]))
        .with_allow_auto_topic_creation(false)
        .with_include_topic_authorized_operations(true);
    let topics = fixture.client.call(12, &request).topics;
    assert_eq!(topics.iter().map(|topic| topic.error_code).collect::<Vec<_>>(), [0, 3, 17]);
    assert!(topics.iter().all(|topic| topic.topic_authorized_operations == 3576));
}
